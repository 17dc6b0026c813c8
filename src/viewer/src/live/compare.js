// Compares a camera's photograph with the render.
import { lensOf } from '../poses.js';

/** Largest width of compared photographs, px. */
const MOST_WIDTH = 1600;

/** Factor by which differences are amplified. */
const GAIN = 4;

const byId = id => document.getElementById(id);

export const MODES = ['render', 'photograph', 'difference', 'slider'];

/** Returns the lens at another width, px. */
function scaled(lens, width) {
  const zoom = width / lens.width;
  const height = Math.max(1, Math.round(lens.height * zoom));
  return { width, height, fx: lens.fx * zoom, fy: lens.fy * zoom, cx: lens.cx * zoom, cy: lens.cy * zoom };
}

const pixels = canvas => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);

/** Returns the differences of two pictures of equal size, on a canvas, and the PSNR, dB. */
function difference(one, other) {
  const [a, b] = [pixels(one), pixels(other)];
  let squares = 0;
  for (let i = 0; i < a.data.length; i++) {
    if (i % 4 === 3) continue;
    const away = a.data[i] - b.data[i];
    squares += away * away;
    a.data[i] = GAIN * Math.abs(away);
  }
  const canvas = Object.assign(document.createElement('canvas'), { width: a.width, height: a.height });
  canvas.getContext('2d').putImageData(a, 0, 0);
  const psnr = 10 * Math.log10(255 * 255 * 0.75 * a.data.length / squares);
  return { canvas, psnr };
}

export class Compare {
  /** Without a stage there are only photographs. */
  constructor(api, stage, pilot, scene, say) {
    Object.assign(this, { api, stage, pilot, scene, say, mode: 'render', index: 0, asked: 0 });
    this.canvas = byId('compare');
    for (const mode of MODES) byId(`mode-${mode}`).addEventListener('click', () => this.setMode(mode));
    byId('split').addEventListener('input', () => this.paint());
    new ResizeObserver(() => this.paint()).observe(this.canvas);
    pilot.onLeave = () => this.setMode('render');
    this.mark();
  }

  setMode(mode) {
    if (!this.isOffered(mode)) {
      const hasPhoto = this.isOffered('photograph');
      this.say(hasPhoto ? 'There are no Gaussians to compare it with' : 'There is no photograph of this camera here');
      return;
    }
    if (mode === this.mode) return;
    // The photograph is shown from its camera.
    if (this.mode === 'render') this.pilot.goTo(this.scene.cameras[this.index]);
    this.mode = mode;
    this.mark();
    this.refresh();
  }

  /** Changes the camera. */
  setCamera(index) {
    this.index = index;
    this.pictures = null;
    this.offer();
    if (!this.isOffered(this.mode)) this.setMode('render');
    else this.refresh();
  }

  /** Returns true if the content of a mode is available. */
  isOffered(mode) {
    if (mode === 'render') return true;
    const hasPhoto = this.scene.cameras[this.index]?.has_photo ?? false;
    return hasPhoto && (mode === 'photograph' || Boolean(this.stage.model()));
  }

  offer() {
    for (const mode of MODES) byId(`mode-${mode}`).disabled = !this.isOffered(mode);
  }

  /** Updates after the Gaussians changed. */
  redraw() {
    this.pictures = null;
    this.offer();
    this.refresh();
  }

  mark() {
    for (const mode of MODES) byId(`mode-${mode}`).setAttribute('aria-pressed', mode === this.mode);
    byId('split-label').hidden = this.mode !== 'slider';
    this.canvas.hidden = this.mode === 'render';
    byId('measured').textContent = '';
  }

  async refresh() {
    if (this.mode === 'render') return;
    const asked = ++this.asked;
    try {
      const pictures = this.pictures ?? await this.fetch();
      // Something else may have been requested meanwhile.
      if (asked !== this.asked) return;
      this.pictures = pictures;
      this.paint();
    } catch (error) {
      if (asked === this.asked) this.say(error.message);
    }
  }

  /** Returns photograph, render and difference at one size. */
  async fetch() {
    const lens = lensOf(this.scene.cameras[this.index]);
    const bitmap = await this.api.photograph(this.index, Math.min(lens.width, MOST_WIDTH));
    const photograph = Object.assign(document.createElement('canvas'), { width: bitmap.width, height: bitmap.height });
    photograph.getContext('2d').drawImage(bitmap, 0, 0);
    if (!this.stage.model()) return { photograph };
    const through = { ...scaled(lens, bitmap.width), height: bitmap.height };
    const render = await this.stage.drawThrough(through);
    return { photograph, render, ...difference(photograph, render) };
  }

  paint() {
    if (this.mode === 'render' || !this.pictures) return;
    const { photograph, render = photograph, canvas: apart = photograph, psnr } = this.pictures;
    const { clientWidth, clientHeight } = this.canvas;
    Object.assign(this.canvas, { width: clientWidth, height: clientHeight });
    const context = this.canvas.getContext('2d');
    context.fillRect(0, 0, clientWidth, clientHeight);
    const zoom = Math.min(clientWidth / photograph.width, clientHeight / photograph.height);
    const [width, height] = [photograph.width * zoom, photograph.height * zoom];
    const [left, top] = [(clientWidth - width) / 2, (clientHeight - height) / 2];
    const draw = picture => context.drawImage(picture, left, top, width, height);
    draw(this.mode === 'difference' ? apart : photograph);
    if (this.mode === 'slider') {
      const share = Number(byId('split').value) / 100;
      const from = Math.round(photograph.width * share);
      const rest = photograph.width - from;
      if (rest > 0) context.drawImage(render, from, 0, rest, render.height, left + from * zoom, top, rest * zoom, height);
      context.fillStyle = '#fff';
      context.fillRect(left + from * zoom - 1, top, 2, height);
      context.fillStyle = '#000';
    }
    byId('measured').textContent = psnr ? `As drawn here: ${psnr.toFixed(2)} dB` : '';
    this.canvas.dataset.psnr = psnr ?? '';
  }
}
