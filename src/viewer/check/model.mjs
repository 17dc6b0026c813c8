// A trained model: its cameras as the page wants them, and what the trainer drew from them.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** COLMAP's models of cameras that have no distortion: how many focal lengths. */
const FOCALS = { 0: 1, 1: 2 };

/** Principal point of the first camera of a COLMAP scene, which `cameras.json` leaves out. */
function principalOf(scene) {
  const bytes = readFileSync(join(scene, 'sparse/0/cameras.bin'));
  // Count u64, id u32, model u32, width and height u64, then doubles.
  const focals = FOCALS[bytes.readUInt32LE(12)];
  if (!focals) throw new Error(`${scene}: the first camera is not a pinhole`);
  const at = 32 + 8 * focals;
  return [bytes.readDoubleLE(at), bytes.readDoubleLE(at + 8)];
}

const pngs = folder => readdirSync(folder).filter(name => name.endsWith('.png')).length;

/** `{cloud, cameras, rendered(index)}`: the PLY, the cameras, and the picture of each. */
export function modelOf(folder, scene) {
  const iterations = readdirSync(join(folder, 'point_cloud')).map(name => Number(name.split('_')[1]));
  const last = Math.max(...iterations);
  const pictures = split => join(folder, split, `ours_${last}`, 'renders');
  const heldOut = pngs(pictures('test'));
  const principal_px = principalOf(scene);
  // The held-out cameras come first.
  const cameras = JSON.parse(readFileSync(join(folder, 'cameras.json'))).map((camera, i) => ({
    name: camera.img_name,
    position: camera.position,
    rotation: camera.rotation,
    focal_px: [camera.fx, camera.fy],
    principal_px,
    size_px: [camera.width, camera.height],
    split: i < heldOut ? 'held_out' : 'training',
  }));
  const rendered = i => {
    const [split, number] = i < heldOut ? ['test', i] : ['train', i - heldOut];
    return join(pictures(split), `${String(number).padStart(5, '0')}.png`);
  };
  return { cloud: join(folder, 'point_cloud', `iteration_${last}`, 'point_cloud.ply'), cameras, rendered };
}
