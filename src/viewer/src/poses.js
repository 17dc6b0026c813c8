// Where cameras stand and what they see. The scene has COLMAP's axes: a camera looks along its z,
// and its y points down.
import { Matrix3, Matrix4, Vector3 } from 'three';

/** Vertical field of view of the start where the page has no cameras, degrees. */
const USUAL_FIELD = 50;

const column = ({ rotation }, k) => new Vector3(rotation[0][k], rotation[1][k], rotation[2][k]);

/** Unit vector along which a camera looks. */
export const forwardOf = camera => column(camera, 2).normalize();

/** The upward direction of the scene: the mean of the cameras', or that of the page. */
export function upOf(cameras, usual) {
  const sum = new Vector3();
  for (const camera of cameras) sum.sub(column(camera, 1));
  return sum.length() > 0.1 * cameras.length ? sum.normalize() : new Vector3(...usual);
}

/** From where a scene is seen that has no cameras: its front by custom, and a little from above. */
export function awayFromFront(up) {
  const front = Math.abs(up.y) > 0.5 ? [0, 0, up.y] : Math.abs(up.z) > 0.5 ? [0, -up.z, 0] : [0, 0, 1];
  return new Vector3(...front).addScaledVector(up, 0.25);
}

/**
 * The point that all cameras look at: the nearest to their axes by least squares. Where they look in
 * parallel, or apart, it is the middle of the Gaussians.
 */
export function focusOf(cameras, middle) {
  const sum = new Matrix3().multiplyScalar(0);
  const right = new Vector3();
  for (const camera of cameras) {
    const axis = forwardOf(camera);
    const [x, y, z] = axis.toArray();
    // The projection onto the plane across the axis: I - axis axisT.
    const across = new Matrix3(1 - x * x, -x * y, -x * z, -x * y, 1 - y * y, -y * z, -x * z, -y * z, 1 - z * z);
    const position = new Vector3(...camera.position);
    right.add(position.applyMatrix3(across));
    sum.elements.forEach((_, i) => { sum.elements[i] += across.elements[i]; });
  }
  // Parallel axes leave the sum without an inverse; its determinant is at most (2n/3)^3.
  if (cameras.length < 2 || sum.determinant() < 1e-3 * cameras.length ** 3) return middle.clone();
  const focus = right.applyMatrix3(sum.invert());
  const inFront = cameras.filter(camera => aheadOf(camera, focus) > 0).length;
  return inFront > cameras.length / 2 ? focus : middle.clone();
}

/** How far ahead of a camera a point is, along its axis. */
export function aheadOf(camera, point) {
  return point.clone().sub(new Vector3(...camera.position)).dot(forwardOf(camera));
}

/** World from camera, with the camera's axes of WebGL: y up, looking along -z. */
export function worldFrom(camera) {
  const [x, y, z] = [0, 1, 2].map(k => column(camera, k));
  return new Matrix4().makeBasis(x, y.negate(), z.negate()).setPosition(...camera.position);
}

/** What a camera's picture shows: size, focal lengths and principal point, pixels. */
export function lensOf(camera) {
  const [width, height] = camera.size_px;
  const [fx, fy] = camera.focal_px;
  const [cx, cy] = camera.principal_px;
  return { width, height, fx, fy, cx, cy };
}

/** A lens with square pixels and its axis in the middle. */
export const plainLens = ({ width, height, fy }) => ({ width, height, fx: fy, fy, cx: width / 2, cy: height / 2 });

export function usualLens() {
  const fy = 0.5 / Math.tan(USUAL_FIELD / 2 * Math.PI / 180);
  return plainLens({ width: 1, height: 1, fy });
}

/** Pixels of the window for a pixel of the picture, which is as large as fits. */
const zoomOf = (lens, width, height) => Math.min(width / lens.width, height / lens.height);

/** Sets the camera's projection: the picture of the lens in the middle of a window of this size. */
export function project(view, lens, width, height) {
  const zoom = zoomOf(lens, width, height);
  view.aspect = width / height;
  // The controls pan by this angle.
  view.fov = 2 * Math.atan(height / (2 * zoom * lens.fy)) * 180 / Math.PI;
  view.updateProjectionMatrix();
  const elements = view.projectionMatrix.elements;
  elements[0] = 2 * zoom * lens.fx / width;
  elements[8] = -2 * zoom * (lens.cx - lens.width / 2) / width;
  elements[9] = 2 * zoom * (lens.cy - lens.height / 2) / height;
  view.projectionMatrixInverse.copy(view.projectionMatrix).invert();
}
