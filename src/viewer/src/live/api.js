// Requests to the server.

/** The token is missing or wrong. */
export class Unauthorized extends Error {}

const WRONG = 'The token is missing or wrong.';

/** The server refuses with a reason. */
export class Refused extends Error {}

/** Key of the token in the tab's storage, so that the page can be reloaded. */
const KEPT = 'token';

/** Returns the token of the address, and removes it there; else the token that the tab stored. */
export function tokenOfAddress() {
  const token = new URLSearchParams(location.hash.slice(1)).get('t') ?? '';
  if (token) history.replaceState(null, '', location.pathname);
  try {
    return token || (sessionStorage.getItem(KEPT) ?? '');
  } catch {
    // Some browsers forbid storage.
    return token;
  }
}

/** Stores a valid token until the tab is closed. */
export function keepToken(token) {
  try {
    sessionStorage.setItem(KEPT, token);
  } catch {
    // Without storage the page asks again after a reload.
  }
}

export class Api {
  constructor(token) {
    this.token = token;
  }

  async fetch(path, options = {}) {
    // Headers cannot hold other characters.
    if (!/^[!-~]+$/.test(this.token)) throw new Unauthorized(WRONG);
    const headers = { Authorization: `Bearer ${this.token}` };
    const response = await fetch(`/api/${path}`, { cache: 'no-store', ...options, headers });
    if (response.status === 401) throw new Unauthorized(WRONG);
    if (!response.ok) {
      const { error } = await response.json().catch(() => ({ error: `The server says ${response.status}.` }));
      throw new Refused(error);
    }
    return response;
  }

  async json(path) {
    return (await this.fetch(path)).json();
  }

  async bytes(path) {
    return new Uint8Array(await (await this.fetch(path)).arrayBuffer());
  }

  /** Fetches a photograph with a maximum width, pixels. */
  async photograph(index, width) {
    return createImageBitmap(await (await this.fetch(`photo/${index}?width=${width}`)).blob());
  }

  /** Requests `pause`, `resume`, `checkpoint` or `stop`. */
  async control(action) {
    await this.fetch('control', { method: 'POST', body: JSON.stringify({ action }) });
  }
}
