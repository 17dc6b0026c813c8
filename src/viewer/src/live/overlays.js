// Objects drawn with the Gaussians: points, cameras, meshes.
import {
  BufferAttribute, BufferGeometry, Color, Group, LineBasicMaterial, LineSegments, Points, PointsMaterial, SRGBColorSpace,
} from 'three';
import { GLTFLoader } from 'three/addons/loaders/GLTFLoader.js';
import { worldFrom } from '../poses.js';

/** Bytes per point: three floats, three bytes of colour and a padding byte. */
const POINT_BYTES = 16;

/** Depth of a camera's pyramid, relative to the scene's radius. */
const PYRAMID = 0.06;

const COLORS = { training: 0x4c8dff, held_out: 0xff9d2e };

/** Builds the points of `/api/points`. */
export function pointsOf(bytes) {
  const count = Math.floor(bytes.length / POINT_BYTES);
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  const [places, colors] = [new Float32Array(3 * count), new Float32Array(3 * count)];
  // Vertex colours are linear.
  const linear = Float32Array.from({ length: 256 }, (_, i) => new Color().setRGB(i / 255, 0, 0, SRGBColorSpace).r);
  for (let i = 0; i < count; i++) {
    for (let axis = 0; axis < 3; axis++) {
      places[3 * i + axis] = view.getFloat32(POINT_BYTES * i + 4 * axis, true);
      colors[3 * i + axis] = linear[bytes[POINT_BYTES * i + 12 + axis]];
    }
  }
  const geometry = new BufferGeometry();
  geometry.setAttribute('position', new BufferAttribute(places, 3));
  geometry.setAttribute('color', new BufferAttribute(colors, 3));
  return new Points(geometry, new PointsMaterial({ size: 2, sizeAttenuation: false, vertexColors: true }));
}

/** Builds a pyramid for each camera. */
export function pyramidsOf({ cameras, radius }) {
  const [places, colors] = [[], []];
  for (const camera of cameras) {
    const { size_px: [width, height], focal_px: [fx, fy], principal_px: [cx, cy] } = camera;
    const depth = PYRAMID * radius;
    const corner = (x, y) => [(x - cx) / fx * depth, -(y - cy) / fy * depth, -depth];
    const corners = [corner(0, 0), corner(width, 0), corner(width, height), corner(0, height)];
    const apex = [0, 0, 0];
    const lines = corners.flatMap((one, i) => [apex, one, one, corners[(i + 1) % 4]]);
    const color = new Color(COLORS[camera.split]);
    const world = worldFrom(camera).elements;
    for (const [x, y, z] of lines) {
      places.push(...[0, 1, 2].map(k => world[k] * x + world[4 + k] * y + world[8 + k] * z + world[12 + k]));
      colors.push(color.r, color.g, color.b);
    }
  }
  const geometry = new BufferGeometry();
  geometry.setAttribute('position', new BufferAttribute(new Float32Array(places), 3));
  geometry.setAttribute('color', new BufferAttribute(new Float32Array(colors), 3));
  return new LineSegments(geometry, new LineBasicMaterial({ vertexColors: true }));
}

/** Loads a GLB and rotates it to the scene's axes: glTF is y-up, COLMAP is y-down. */
export async function meshOf(bytes) {
  const { scene } = await new GLTFLoader().parseAsync(bytes.buffer, '');
  const turned = new Group();
  turned.rotation.x = Math.PI;
  turned.add(scene);
  return turned;
}

/** Frees the GPU memory of an object. */
function dispose(object) {
  object.traverse(part => {
    part.geometry?.dispose();
    for (const material of [part.material ?? []].flat()) {
      material.map?.dispose();
      material.dispose();
    }
  });
}

/** Optional objects of the scene, created on demand. */
export class Overlays {
  constructor(stage) {
    Object.assign(this, { stage, shown: new Map() });
  }

  /** Shows the result of `make` under this name, replacing the previous one. Returns it, or null if hidden since. */
  async show(name, make) {
    this.hide(name);
    const token = {};
    this.shown.set(name, token);
    const object = await make();
    // It may have been hidden meanwhile.
    if (this.shown.get(name) !== token) {
      dispose(object);
      return null;
    }
    this.shown.set(name, object);
    this.stage.scene.add(object);
    this.stage.moved();
    return object;
  }

  hide(name) {
    const object = this.shown.get(name);
    this.shown.delete(name);
    if (!object?.isObject3D) return;
    this.stage.scene.remove(object);
    dispose(object);
    this.stage.moved();
  }
}
