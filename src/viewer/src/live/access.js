// Access by token.
import { setState } from '../state.js';
import { Api, Unauthorized, keepToken, tokenOfAddress } from './api.js';

const byId = id => document.getElementById(id);

/** Asks for the token until the server accepts it. Returns the API and the server's description of the scene. */
export async function admitted() {
  const api = new Api(tokenOfAddress());
  for (;;) {
    try {
      if (api.token) {
        const scene = await api.json('scene');
        keepToken(api.token);
        return { api, scene };
      }
    } catch (error) {
      if (!(error instanceof Unauthorized)) throw error;
      byId('access-problem').textContent = error.message;
    }
    api.token = await askedToken();
  }
}

/** Returns the token that the user types or pastes, alone or with the whole address. */
export function askedToken() {
  const form = byId('access');
  const { state } = document.body.dataset;
  const said = byId('message').textContent;
  setState('no-token', '');
  form.hidden = false;
  byId('token').value = '';
  byId('token').focus();
  return new Promise(resolve => {
    form.addEventListener('submit', event => {
      event.preventDefault();
      form.hidden = true;
      setState(state, said);
      resolve(byId('token').value.trim().replace(/^.*#t=/, ''));
    }, { once: true });
  });
}
