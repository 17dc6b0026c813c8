// Content of the page besides the program: the Gaussians, and a JSON about them.

/** Decodes base64 in pieces, since a text of 100 MB would be doubled otherwise. */
function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const padding = base64.endsWith('==') ? 2 : base64.endsWith('=') ? 1 : 0;
  const bytes = new Uint8Array(base64.length / 4 * 3 - padding);
  const piece = 1 << 20; // A multiple of 4 letters, which are 3 bytes.
  for (let from = 0, at = 0; from < base64.length; from += piece) {
    const letters = atob(base64.slice(from, from + piece));
    for (let i = 0; i < letters.length; i++) bytes[at++] = letters.charCodeAt(i);
  }
  return bytes;
}

/** Returns the JSON of the page; README.md lists its keys. */
export function sceneOfPage() {
  return JSON.parse(document.getElementById('scene').textContent);
}

/** Returns the SPZ of the page and removes its text from the document. */
export function splatsOfPage() {
  const element = document.getElementById('splats');
  const bytes = bytesOf(element.textContent.trim());
  element.remove();
  return bytes;
}
