// The canvas. Draws the Gaussians only when something changed.
import { PerspectiveCamera, Scene, WebGLRenderer } from 'three';
import { SparkRenderer, SplatFileType, SplatMesh } from '@sparkjsdev/spark';
import { project } from './poses.js';

/** Variance that trainers add to Gaussians on the screen, px². */
const DILATION = 0.3;

/** Frame time that is too slow for full resolution, ms, and the number of such frames in a row to react to. */
const SLOW_MS = 40;
const SLOW_FRAMES = 4;

/** Largest time step of a frame, ms: a stall must not make the camera jump. */
const LONGEST_MS = 250;

/** Delay at rest before Gaussians are sorted again, ms: while moving, Spark sorts only after large steps. */
const REST_MS = 120;

/** Interval of checks whether sorting is done, ms. */
const SORTING_MS = 10;

export class Stage {
  /** Fails without WebGL2. `onFrame(seconds)` runs before each picture; true requests another. */
  constructor(canvas, { antialiased, radius }, onFrame) {
    this.renderer = new WebGLRenderer({ canvas, antialias: false });
    this.renderer.setClearColor(0, 1);
    this.camera = new PerspectiveCamera(50, 1, 1e-3 * radius, 1e4 * radius);
    this.scene = new Scene();
    this.onFrame = onFrame;
    // Classic models are dilated as in training; antialiased ones also get fainter as they get wider.
    const blur = antialiased ? { preBlurAmount: 0, blurAmount: DILATION } : { preBlurAmount: DILATION, blurAmount: 0 };
    this.spark = new SparkRenderer({
      renderer: this.renderer,
      onDirty: () => this.request(),
      sortRadial: false,
      maxStdDev: 3,
      accumExtSplats: true,
      enableLod: false,
      ...blur,
    });
    this.scene.add(this.spark);
    this.pixelRatio = Math.min(window.devicePixelRatio || 1, 2);
    this.slow = 0;
    this.asked = 0;
    this.shown = 0;
    this.isMoving = false;
    this.isShown = true;
  }

  /**
   * Unpacks an SPZ and shows it instead of the current one. Returns the number of Gaussians. `inOrder` resolves when
   * they are sorted.
   */
  async show(spz) {
    const mesh = new SplatMesh({ fileBytes: spz, fileType: SplatFileType.SPZ, extSplats: true, raycastable: false });
    await mesh.initialized;
    const before = this.mesh;
    this.mesh = mesh;
    mesh.visible = this.isShown;
    this.scene.add(mesh);
    if (before) {
      if (before.maxSh !== undefined) mesh.maxSh = before.maxSh;
      this.scene.remove(before);
    }
    this.resize();
    this.inOrder = this.sort().then(() => {
      before?.dispose();
      this.request();
    });
    return mesh.numSplats;
  }

  /** Shows or hides the Gaussians. */
  setShown(isShown) {
    this.isShown = isShown;
    if (this.mesh) this.mesh.visible = isShown;
    this.moved();
  }

  /** Sets the highest degree of harmonics to draw. */
  setDegree(degree) {
    if (!this.mesh) return;
    this.mesh.maxSh = degree;
    this.mesh.updateGenerator();
    this.sortAtRest();
    this.request();
  }

  /** Adapts to the size of the window. */
  resize() {
    const { clientWidth, clientHeight } = this.renderer.domElement;
    this.renderer.setPixelRatio(this.pixelRatio);
    this.renderer.setSize(clientWidth, clientHeight, false);
    this.onResize?.(clientWidth, clientHeight);
    this.request();
  }

  /** Requests a picture. */
  request() {
    if (this.asked) return;
    this.askedAt = performance.now();
    this.asked = requestAnimationFrame(now => this.frame(now));
  }

  /** Requests a picture after a move, and a sorted one at rest. */
  moved() {
    this.request();
    this.sortAtRest();
  }

  frame(now) {
    this.asked = 0;
    this.slowDown(now - this.askedAt > SLOW_MS);
    // After a rest, the first frame has no time step.
    const since = this.isMoving ? Math.min(now - this.shown, LONGEST_MS) : 0;
    this.shown = now;
    this.isMoving = this.onFrame(since / 1000);
    if (this.isMoving) this.request();
    this.renderer.render(this.scene, this.camera);
  }

  /** Lowers the resolution if frames are slow. */
  slowDown(isSlow) {
    this.slow = isSlow ? this.slow + 1 : 0;
    if (this.slow >= SLOW_FRAMES && this.pixelRatio > 1) {
      this.pixelRatio = 1;
      this.resize();
    }
  }

  sortAtRest() {
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.spark.update({ scene: this.scene, camera: this.camera }), REST_MS);
  }

  /** Applies changes and sorts the Gaussians. */
  async sort() {
    // Spark ignores changes while it sorts.
    await this.sorted();
    await this.spark.update({ scene: this.scene, camera: this.camera });
    await this.sorted();
  }

  async sorted() {
    while (this.spark.sorting || this.spark.sortDirty) await new Promise(done => { setTimeout(done, SORTING_MS); });
  }

  /** Returns the Gaussians, or the mesh of a triangle model; undefined before either is loaded. */
  model() {
    return this.mesh ?? this.triangles;
  }

  /** Draws only the model through a lens at its size, px, sorted, onto a new canvas. */
  async drawThrough(lens) {
    const { width, height } = lens;
    const canvas = document.createElement('canvas');
    Object.assign(canvas, { width, height });
    this.renderer.setPixelRatio(1);
    this.renderer.setSize(width, height, false);
    project(this.camera, lens, width, height);
    const parts = this.scene.children.filter(part => part !== this.spark);
    const before = parts.map(part => part.visible);
    for (const part of parts) part.visible = part === this.model();
    await this.sort();
    this.renderer.render(this.scene, this.camera);
    parts.forEach((part, i) => { part.visible = part === this.mesh ? this.isShown : before[i]; });
    // The renderer's canvas keeps its picture only until the browser shows it.
    canvas.getContext('2d').drawImage(this.renderer.domElement, 0, 0);
    this.resize();
    this.sortAtRest();
    return canvas;
  }

  /** Returns the picture as a PNG. */
  picture() {
    // The canvas keeps its picture only until the browser shows it.
    this.renderer.render(this.scene, this.camera);
    return new Promise((resolve, reject) => {
      this.renderer.domElement.toBlob(blob => (blob ? resolve(blob) : reject(new Error('no picture'))), 'image/png');
    });
  }
}
