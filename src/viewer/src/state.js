// State of the page, for people and for tests.
import licenses from '../LICENSES.txt';

export const NO_WEBGL2 = 'This browser cannot draw the scene: it has no WebGL2. Turn on hardware acceleration in its '
  + 'settings, or open the page in another browser.';

/** Sets the state (`loading`, `ready`, `no-webgl2`, `no-token` or `error`) and a sentence about it. */
export function setState(state, text) {
  document.body.dataset.state = state;
  document.getElementById('message').textContent = text;
}

export function hasWebgl2() {
  const context = document.createElement('canvas').getContext('webgl2');
  // Browsers limit the number of contexts.
  context?.getExtension('WEBGL_lose_context')?.loseContext();
  return context !== null;
}

/** Fills in the licences. */
export function showLicenses() {
  document.getElementById('licenses').textContent = licenses;
}

/** Reports the loss of the graphics context. */
export function watchContext(canvas) {
  canvas.addEventListener('webglcontextlost', () => {
    setState('error', 'The graphics driver took the picture away: load the page again.');
  });
}
