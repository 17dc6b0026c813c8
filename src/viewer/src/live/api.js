// What the server is asked for.

/** The token is missing or wrong. */
export class Unauthorized extends Error {}

const WRONG = 'The token is missing or wrong.';

/** The server refuses, and says why. */
export class Refused extends Error {}

/** Under which this tab keeps the token, so that the page can be loaded again. */
const KEPT = 'token';

/** The token of the address, which does not keep it, or else the one that this tab had. */
export function tokenOfAddress() {
  const token = new URLSearchParams(location.hash.slice(1)).get('t') ?? '';
  if (token) history.replaceState(null, '', location.pathname);
  try {
    return token || (sessionStorage.getItem(KEPT) ?? '');
  } catch {
    // Some browsers are told to keep nothing.
    return token;
  }
}

/** Keeps a token that is right for as long as the tab is open. */
export function keepToken(token) {
  try {
    sessionStorage.setItem(KEPT, token);
  } catch {
    // The page then asks when it is loaded again.
  }
}

export class Api {
  constructor(token) {
    this.token = token;
  }

  async fetch(path, options = {}) {
    // No header holds other characters.
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

  /** A photograph at most so many pixels wide. */
  async photograph(index, width) {
    return createImageBitmap(await (await this.fetch(`photo/${index}?width=${width}`)).blob());
  }

  /** Asks the run to pause, resume, write a checkpoint or stop. */
  async control(action) {
    await this.fetch('control', { method: 'POST', body: JSON.stringify({ action }) });
  }
}
