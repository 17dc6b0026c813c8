// Loads files of splat-formats with Babylon.js, three.js and Spark in Chromium, and compares the result with the
// scene: loaders.mjs CONVERT SCENE.ply OUT. See README.md.
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { dirname, extname, join, normalize, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { conclude, expect, launched } from './browser.mjs';

const [convert, scene, out] = process.argv.slice(2).map(path => resolve(path));
const here = dirname(fileURLToPath(import.meta.url));
const TIMEOUT_MS = 120_000;
const C0 = 0.28209479177387814;
/**
 * Minimum similarity, dB, of Babylon.js's picture of a file to that of the PLY; .splat lacks harmonics. A mirrored
 * picture has 12 dB.
 */
const pictureDb = kind => (kind === 'splat' ? 22 : 28);

/** Largest errors of a file: positions, log-scales, rotations in degrees, opacities, colours, harmonics. */
const FILE = {
  'ply': [0, 0, 0, 0, 0, 0],
  'compressed.ply': [9e-3, 4e-3, 0.3, 0.0021, 0.0025, 0.016],
  'splat': [0, 2e-6, 1, 0.0021, 0.0021, 0],
  'spz': [2.5e-4, 0.0315, 0.3, 0.0021, 0.0038, 0.0041],
  // Harmonics are quantised to a palette, so compare with this crate's reader.
  'sog': [2e-3, 0.06, 1, 0.0021, 0.01, 0],
  'glb': [0, 0, 0, 0, 0, 0],
};

/** Files whose rows are in another order than the scene. */
const SORTED = ['compressed.ply', 'splat', 'sog'];

/** Additional errors of a store. */
const STORE = {
  // Bytes. Those of rotations and harmonics have steps of 2 / 255. Some of its readers truncate.
  babylon: [0, 1e-6, 1.2, 0.004, 0.004, 0.012],
  // It reads the images of SOG from a canvas, which premultiplies alpha: the opacity for colours, 252 to 255 for
  // rotations. Colours are compared times the opacity.
  babylonCanvas: [0, 1e-6, 1.7, 0.004, 0.004, 0.012],
  // Bytes as well; covariances are exact.
  three: [0, 1e-5, 0.01, 0.002, 0.002, 0.004],
  // 16-bit floats; axes of 10 and 10 bits and angles of 12; harmonics of 7, 8 and 6 bits.
  spark: [0, 0.004, 0.5, 0.0005, 0.0005, 0.017],
  // It takes the angle from w directly: 127/128, which .splat stores for 1, is 14.4 degrees.
  sparkSplat: [0, 0.004, 14, 0.0005, 0.0005, 0],
  // Floats.
  points: [0, 1e-6, 0.01, 1e-6, 1e-6, 0],
};

/**
 * Readers of loaders_page.mjs, their stores, and files. three.js cannot read compressed PLY and SOG, and Spark 2.2.0
 * cannot read SPZ version 4.
 */
const LOADS = [
  ['Babylon.js', 'babylon', 'babylon', ['ply', 'compressed.ply', 'splat', 'spz', 'v4.spz', 'glb']],
  ['Babylon.js', 'babylon', 'babylonCanvas', ['sog']],
  ['Babylon.js without @adobe/spz', 'babylonAlone', 'babylon', ['spz']],
  ['three.js', 'threeSplats', 'three', ['ply', 'splat', 'spz', 'v4.spz']],
  ['three.js', 'threeGlb', 'three', ['glb']],
  ['three.js, as points', 'threePoints', 'points', ['glb']],
  ['Spark', 'spark', 'spark', ['ply', 'compressed.ply', 'spz', 'sog']],
  ['Spark', 'spark', 'sparkSplat', ['splat']],
];

/** Returns the columns of a PLY of 32-bit floats, as in loaders_page.mjs; sizes are logarithms. */
function readPly(path) {
  const bytes = readFileSync(path);
  const start = bytes.indexOf('end_header\n') + 'end_header\n'.length;
  const head = bytes.toString('latin1', 0, start);
  const names = [...head.matchAll(/^property float (\S+)$/gm)].map(([, name]) => name);
  const count = Number(head.match(/^element vertex (\d+)$/m)[1]);
  const stride = 4 * names.length;
  if (bytes.length !== start + count * stride) throw new Error(`${path}: not a PLY of floats alone`);
  const at = (i, name) => bytes.readFloatLE(start + i * stride + 4 * names.indexOf(name));
  const columns = list => Array.from({ length: count }, (_, i) => list.map(name => at(i, name)));
  const rest = names.filter(name => name.startsWith('f_rest_')).length / 3;
  const coefficients = Array.from({ length: rest }, (_, k) => [0, 1, 2].map(c => `f_rest_${c * rest + k}`)).flat();
  return {
    positions: columns(['x', 'y', 'z']),
    logScales: columns(['scale_0', 'scale_1', 'scale_2']),
    rotations: columns(['rot_0', 'rot_1', 'rot_2', 'rot_3']).map(unit),
    opacities: columns(['opacity']).map(([x]) => [1 / (1 + Math.exp(-x))]),
    colors: columns(['f_dc_0', 'f_dc_1', 'f_dc_2']).map(row => row.map(x => 0.5 + C0 * x)),
    sh: columns(coefficients),
  };
}

const unit = row => row.map(x => x / Math.hypot(...row));

/** Converts to the axes of GLB: half a turn about z, which flips the sign of harmonics of odd order. */
function turned({ positions, rotations, sh, ...others }) {
  const signs = [1, 2, 3].flatMap(d => Array.from({ length: 2 * d + 1 }, (_, k) => (-1) ** (k - d)));
  return {
    ...others,
    positions: positions.map(([x, y, z]) => [-x, -y, z]),
    rotations: rotations.map(([w, x, y, z]) => [-z, -y, x, w]),
    sh: sh.map(row => row.map((value, j) => value * signs[Math.floor(j / 3)])),
  };
}

/** Returns xx xy xz yy yz zz. */
function covariance([w, x, y, z], logScales) {
  const axes = [
    [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
    [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
    [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
  ];
  const squares = logScales.map(s => Math.exp(2 * s));
  const entry = (i, j) => squares.reduce((sum, square, k) => sum + axes[i][k] * square * axes[j][k], 0);
  return [entry(0, 0), entry(0, 1), entry(0, 2), entry(1, 1), entry(1, 2), entry(2, 2)];
}

/** Frobenius norm of a symmetric matrix whose off-diagonal entries are stored once. */
const frobenius = ([xx, xy, xz, yy, yz, zz]) => Math.hypot(xx, yy, zz, Math.SQRT2 * Math.hypot(xy, xz, yz));

/** Finds, for each row of `wanted`, the nearest row of `found` by position and, slightly, by colour. */
function matched(wanted, found) {
  const keys = columns => columns.positions.map((row, i) => [...row, ...columns.colors[i].map(x => 0.01 * x)]);
  const all = keys(found);
  const order = keys(wanted).map(key => {
    const distances = all.map(other => other.reduce((sum, x, j) => sum + (x - key[j]) ** 2, 0));
    return distances.reduce((best, distance, i) => (distance < distances[best] ? i : best), 0);
  });
  if (new Set(order).size !== order.length) throw new Error('rows do not match one another');
  return order;
}

/** Returns the maximum of numbers and 0; NaN if any is NaN. */
const most = values => values.reduce((high, x) => Math.max(high, x), 0);
const worst = (a, b) => most(a.map((row, i) => most(row.map((x, j) => Math.abs(x - b[i][j])))));
const degrees = (a, b) => 360 / Math.PI * Math.acos(Math.min(1, Math.abs(a.reduce((sum, x, j) => sum + x * b[j], 0))));

/** Returns `[what, error, bound]` for each column. */
function errors(wanted, given, kind, store) {
  const count = wanted.positions.length;
  const mapped = (columns, change) => Object.fromEntries(Object.entries(columns).map(([name, of]) => [name, change(of)]));
  const row = (flat, i) => flat.slice(i * flat.length / count, (i + 1) * flat.length / count);
  const columns = mapped(given, flat => wanted.positions.map((_, i) => row(flat, i)));
  const order = SORTED.includes(kind) ? matched(wanted, columns) : wanted.positions.map((_, i) => i);
  const found = mapped(columns, rows => order.map(i => rows[i]));
  const [position, scale, rotation, opacity, color, sh] = FILE[kind].map((bound, i) => bound + STORE[store][i]);
  const result = [['position', worst(wanted.positions, found.positions), position]];
  if (found.covariances) {
    // The change of a covariance of norm 1 by a scale factor and by a rotation angle.
    const grown = Math.exp(2 * scale);
    const matrices = wanted.rotations.map((quaternion, i) => covariance(quaternion, wanted.logScales[i]));
    const off = matrices.map((entries, i) => frobenius(entries.map((x, j) => x - found.covariances[i][j])) / frobenius(entries));
    result.push(['covariance', most(off), grown - 1 + 2 * grown * rotation * Math.PI / 180]);
  } else {
    result.push(['log_scale', worst(wanted.logScales, found.scales.map(sizes => sizes.map(Math.log))), scale]);
    result.push(['rotation', most(wanted.rotations.map((quaternion, i) => degrees(quaternion, unit(found.rotations[i])))), rotation]);
  }
  result.push(['opacity', worst(wanted.opacities, found.opacities), opacity]);
  const weights = wanted.opacities.map(([opaque]) => (store === 'babylonCanvas' ? opaque : 1));
  const shown = colors => colors.map((rgb, i) => rgb.map(x => x * weights[i]));
  result.push(['color', worst(shown(wanted.colors), shown(found.colors)), color]);
  if (kind !== 'splat') {
    const [here, there] = [found, wanted].map(({ sh: [first] }) => first.length / 3);
    if (here !== there) throw new Error(`${here} harmonics, not ${there}`);
    result.push(['sh', worst(wanted.sh, found.sh), sh]);
  }
  return result;
}

const TYPES = { '.js': 'text/javascript', '.mjs': 'text/javascript', '.wasm': 'application/wasm' };
const imports = {
  'fflate': '/node_modules/fflate/esm/browser.js',
  'three': '/node_modules/three/build/three.module.js',
  'three/webgpu': '/node_modules/three/build/three.webgpu.js',
  'three/tsl': '/node_modules/three/build/three.tsl.js',
  'three/addons/': '/node_modules/three/examples/jsm/',
  '@babylonjs/': '/node_modules/@babylonjs/',
  '@sparkjsdev/spark': '/node_modules/@sparkjsdev/spark/dist/spark.module.js',
};
const page = `<!doctype html><title>check</title><script type="importmap">${JSON.stringify({ imports })}</script>
<script type="module" src="/loaders_page.mjs"></script>`;

/** Serves the page, this folder and, below /files, OUT. */
const server = createServer(({ url }, response) => {
  const path = normalize(decodeURIComponent(new URL(url, 'http://localhost').pathname));
  const [, below] = path.match(/^\/files(\/.*)$/) ?? [];
  try {
    const body = path === '/' ? page : readFileSync(below ? join(out, below) : join(here, path));
    const type = path === '/' ? 'text/html' : TYPES[extname(path)] ?? 'application/octet-stream';
    response.writeHead(200, { 'Content-Type': type }).end(body);
  } catch {
    response.writeHead(404).end();
  }
});
await new Promise(done => { server.listen(0, '127.0.0.1', done); });
const origin = `http://127.0.0.1:${server.address().port}`;
const browser = await launched();

/** Loads a file with a reader, in a new page without other requests. */
async function loaded(reader, file, view) {
  const context = await browser.newContext();
  const tab = await context.newPage();
  const failed = new Promise((_, fail) => {
    tab.on('pageerror', fail);
    setTimeout(() => fail(new Error('nothing within two minutes')), TIMEOUT_MS).unref();
  });
  failed.catch(() => {});
  await tab.route(url => url.origin !== origin && url.protocol.startsWith('http'), route => route.abort());
  try {
    await tab.goto(origin);
    const asked = [reader, `${origin}/files/${file}`, view];
    const answer = tab.evaluate(([name, url, from]) => window.readers[name](url, from), asked);
    answer.catch(() => {});
    return await Promise.race([answer, failed]);
  } finally {
    await context.close();
  }
}

/** Returns the similarity of two pictures (lists of bytes) in decibels. */
const decibels = (a, b) => 10 * Math.log10(255 ** 2 * a.length / a.reduce((sum, x, i) => sum + (x - b[i]) ** 2, 0));

/** A camera from which Babylon.js, which mirrors y, sees the whole scene. */
function viewOf({ positions }) {
  const mean = [0, 1, 2].map(axis => positions.reduce((sum, row) => sum + row[axis], 0) / positions.length);
  const square = positions.reduce((sum, row) => sum + row.reduce((part, x, axis) => part + (x - mean[axis]) ** 2, 0), 0);
  return { center: [mean[0], -mean[1], mean[2]], distance: 3 * Math.sqrt(square / positions.length) };
}

mkdirSync(out, { recursive: true });
const wanted = readPly(scene);
const view = viewOf(wanted);
const kinds = [...new Set(LOADS.flatMap(([, , , of]) => of))];
const converted = (from, to) => execFileSync(convert, [from, to], { stdio: ['ignore', 'ignore', 'inherit'] });
for (const kind of kinds) converted(scene, join(out, `ours.${kind}`));
const own = join(out, 'ours.sog.ply');
converted(join(out, 'ours.sog'), own);
const read = readPly(own);
const ofPalette = matched(wanted, read).map(i => read.sh[i]);
/** Expected content of files that differ from the scene. */
const exact = { glb: turned(wanted), sog: { ...wanted, sh: ofPalette } };
const brief = x => Number(x.toPrecision(3));
let first;
try {
  for (const [library, reader, store, files] of LOADS) {
    for (const file of files) {
      const kind = file.replace('v4.', '');
      const what = `${library}: ${file}`;
      try {
        const { picture, ...columns } = await loaded(reader, `ours.${file}`, view);
        const count = columns.positions.length / 3;
        if (count !== wanted.positions.length) throw new Error(`${count} Gaussians, not ${wanted.positions.length}`);
        const results = errors(exact[kind] ?? wanted, columns, kind, store);
        if (picture) {
          first ??= picture;
          // Equal pictures have infinite decibels, which JSON cannot hold.
          results.push(['picture_db', Math.min(99, decibels(first, picture)), pictureDb(kind)]);
        }
        const holds = results.every(([name, x, bound]) => (name === 'picture_db' ? x >= bound : x <= bound * 1.02 + 1e-9));
        const table = Object.fromEntries(results.map(([name, ...pair]) => [name, pair.map(brief)]));
        expect(what, holds, { count, ...table });
      } catch (error) {
        expect(what, false, String(error.message ?? error).split('\n')[0]);
      }
    }
  }
} finally {
  await browser.close();
  server.close();
}
conclude();
