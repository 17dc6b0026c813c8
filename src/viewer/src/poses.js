// Camera poses and projections. The scene has COLMAP's axes: a camera looks along its z, and its y is down.
import { Matrix3, Matrix4, Vector3 } from 'three';

/** Vertical field of view for pages without cameras, degrees. */
const USUAL_FIELD = 50;

const column = ({ rotation }, k) => new Vector3(rotation[0][k], rotation[1][k], rotation[2][k]);

/** Returns the unit vector along which a camera looks. */
export const forwardOf = camera => column(camera, 2).normalize();

/** Returns the scene's up direction: the mean of the cameras', or `usual`. */
export function upOf(cameras, usual) {
  const sum = new Vector3();
  for (const camera of cameras) sum.sub(column(camera, 1));
  return sum.length() > 0.1 * cameras.length ? sum.normalize() : new Vector3(...usual);
}

/** Returns the viewing direction for scenes without cameras: the conventional front, from slightly above. */
export function awayFromFront(up) {
  const front = Math.abs(up.y) > 0.5 ? [0, 0, up.y] : Math.abs(up.z) > 0.5 ? [0, -up.z, 0] : [0, 0, 1];
  return new Vector3(...front).addScaledVector(up, 0.25);
}

/**
 * Returns the point that the cameras look at: the nearest to their axes by least squares. If they look in
 * parallel or diverge, returns `middle`.
 */
export function focusOf(cameras, middle) {
  const sum = new Matrix3().multiplyScalar(0);
  const right = new Vector3();
  for (const camera of cameras) {
    const axis = forwardOf(camera);
    const [x, y, z] = axis.toArray();
    // Projection onto the plane perpendicular to the axis: I - axis axisT.
    const across = new Matrix3(1 - x * x, -x * y, -x * z, -x * y, 1 - y * y, -y * z, -x * z, -y * z, 1 - z * z);
    const position = new Vector3(...camera.position);
    right.add(position.applyMatrix3(across));
    sum.elements.forEach((_, i) => { sum.elements[i] += across.elements[i]; });
  }
  // The sum is singular for parallel axes; its determinant is at most (2n/3)^3.
  if (cameras.length < 2 || sum.determinant() < 1e-3 * cameras.length ** 3) return middle.clone();
  const focus = right.applyMatrix3(sum.invert());
  const inFront = cameras.filter(camera => aheadOf(camera, focus) > 0).length;
  return inFront > cameras.length / 2 ? focus : middle.clone();
}

/** Returns the distance of a point in front of a camera, along its axis. */
export function aheadOf(camera, point) {
  return point.clone().sub(new Vector3(...camera.position)).dot(forwardOf(camera));
}

/** Returns the transform from camera to world, with camera axes of WebGL: y up, looking along -z. */
export function worldFrom(camera) {
  const [x, y, z] = [0, 1, 2].map(k => column(camera, k));
  return new Matrix4().makeBasis(x, y.negate(), z.negate()).setPosition(...camera.position);
}

/** Returns the lens of a camera: size, focal lengths and principal point, pixels. */
export function lensOf(camera) {
  const [width, height] = camera.size_px;
  const [fx, fy] = camera.focal_px;
  const [cx, cy] = camera.principal_px;
  return { width, height, fx, fy, cx, cy };
}

/** Returns a lens with square pixels and a centred axis. */
export const plainLens = ({ width, height, fy }) => ({ width, height, fx: fy, fy, cx: width / 2, cy: height / 2 });

export function usualLens() {
  const fy = 0.5 / Math.tan(USUAL_FIELD / 2 * Math.PI / 180);
  return plainLens({ width: 1, height: 1, fy });
}

/** Returns the window pixels per picture pixel for the largest picture that fits. */
const zoomOf = (lens, width, height) => Math.min(width / lens.width, height / lens.height);

/** Sets the projection that centres the lens' picture in a window of this size. */
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
