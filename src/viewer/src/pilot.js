// Moves the camera: orbiting by mouse and touch, flying by keys, jumping to the cameras of the scene.
import { Matrix4, Quaternion, Vector3 } from 'three';
import { OrbitControls } from 'three/addons/controls/OrbitControls.js';
import { aheadOf, awayFromFront, focusOf, forwardOf, lensOf, plainLens, project, upOf, usualLens, worldFrom } from './poses.js';

/** Scene radii per second, and the factor with Shift. */
const SPEED = 0.6;
const FAST = 4;

/** Degrees per second of looking around, and of the turntable. */
const LOOK = 60;
const TURN = 12;

/** Duration in seconds that a key press counts for at once. */
const FIRST_STEP = 1 / 60;

/** Smallest angle of the view from straight up or down, degrees. */
const POLE = 3;

/** Effects of held keys: right, up, forward; turn right, turn up. */
const MOVES = { KeyD: [1, 0, 0], KeyA: [-1, 0, 0], KeyE: [0, 1, 0], KeyQ: [0, -1, 0], KeyW: [0, 0, 1], KeyS: [0, 0, -1] };
const LOOKS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

const radians = degrees => degrees * Math.PI / 180;

export class Pilot {
  constructor(stage, canvas, { cameras, center, radius, up }) {
    Object.assign(this, { stage, canvas, cameras, radius, middle: new Vector3(...center) });
    this.view = stage.camera;
    this.up = upOf(cameras, up);
    this.focus = focusOf(cameras, this.middle);
    this.lens = usualLens();
    this.held = new Set();
    this.isTurning = false;
    this.view.up.copy(this.up);
    this.controls = new OrbitControls(this.view, canvas);
    this.controls.zoomToCursor = false;
    this.controls.minDistance = 1e-3 * radius;
    this.controls.maxDistance = 1e3 * radius;
    this.controls.addEventListener('start', () => this.leavePicture());
    this.controls.addEventListener('change', () => this.stage.moved());
    this.stage.onResize = () => this.project();
  }

  /** Takes the position and lens of a camera. */
  goTo(camera) {
    worldFrom(camera).decompose(this.view.position, this.view.quaternion, new Vector3());
    const ahead = aheadOf(camera, this.focus);
    const distance = ahead > 0.05 * this.radius ? ahead : this.radius;
    this.controls.target.copy(this.view.position).addScaledVector(forwardOf(camera), distance);
    this.lens = lensOf(camera);
    this.project();
    this.stage.moved();
  }

  /** Shows the whole scene from the current direction. */
  fit() {
    this.leavePicture();
    const away = this.view.position.clone().sub(this.controls.target);
    if (away.lengthSq() === 0) away.copy(awayFromFront(this.up));
    const field = radians(Math.min(this.view.fov, this.view.fov * this.view.aspect));
    this.place(this.middle, away.setLength(1.1 * this.radius / Math.sin(field / 2)));
  }

  /** Goes to the first camera, or to a view of the whole scene. */
  home() {
    if (this.cameras.length > 0) {
      this.goTo(this.cameras[0]);
      return;
    }
    this.lens = usualLens();
    this.place(this.middle, awayFromFront(this.up));
    this.fit();
  }

  place(target, away) {
    this.controls.target.copy(target);
    this.view.position.copy(target).add(away);
    this.project();
    this.aim();
  }

  /** Looks at the target. The controls notify the stage if that moved the camera. */
  aim() {
    this.controls.update();
    this.stage.moved();
  }

  /** Leaves the exact picture of a camera: upright, with the axis in the middle. */
  leavePicture() {
    this.onLeave?.();
    this.lens = plainLens(this.lens);
    this.project();
  }

  project() {
    const { clientWidth, clientHeight } = this.canvas;
    if (clientWidth > 0 && clientHeight > 0) project(this.view, this.lens, clientWidth, clientHeight);
  }

  /** Handles a key press. Returns true if the key moves the camera. */
  press(code) {
    if (!(code in MOVES || code in LOOKS)) return false;
    if (!this.held.has(code)) {
      this.held.add(code);
      // A press shorter than a frame must have an effect.
      this.step(FIRST_STEP, false);
    }
    return true;
  }

  release(code) {
    this.held.delete(code);
  }

  releaseAll() {
    this.held.clear();
  }

  isMoving() {
    return this.held.size > 0 || this.isTurning;
  }

  /** Moves by the held keys and by the turntable. */
  step(seconds, isFast) {
    if (!this.isMoving()) return;
    this.leavePicture();
    for (const code of this.held) {
      if (code in MOVES) this.fly(MOVES[code], seconds * (isFast ? FAST : 1));
      else this.look(LOOKS[code], seconds);
    }
    if (this.isTurning) this.turn(TURN * seconds);
    else this.aim();
  }

  fly([right, up, forward], seconds) {
    const step = new Vector3(right, up, -forward).applyQuaternion(this.view.quaternion);
    step.multiplyScalar(SPEED * this.radius * seconds);
    this.view.position.add(step);
    this.controls.target.add(step);
  }

  look([right, up], seconds) {
    const ahead = this.controls.target.clone().sub(this.view.position);
    const side = ahead.clone().cross(this.up).normalize();
    ahead.applyAxisAngle(this.up, -radians(LOOK * seconds) * right);
    const raised = ahead.clone().applyAxisAngle(side, radians(LOOK * seconds) * up);
    const fromUp = raised.angleTo(this.up);
    const isUpright = fromUp > radians(POLE) && fromUp < Math.PI - radians(POLE);
    this.controls.target.copy(this.view.position).add(isUpright ? raised : ahead);
  }

  /** Rotates around the point that the cameras look at. */
  turn(degrees) {
    this.leavePicture();
    const turn = new Quaternion().setFromAxisAngle(this.up, radians(degrees));
    const around = new Matrix4().makeRotationFromQuaternion(turn);
    for (const point of [this.view.position, this.controls.target]) {
      point.sub(this.focus).applyMatrix4(around).add(this.focus);
    }
    this.aim();
  }
}
