// Reads an SPZ with @adobe/spz and writes its columns as JSON: spz.mjs IN OUT.
// With a third argument, packs the JSON of that name as an SPZ: spz.mjs - OUT JSON.
import { readFileSync, writeFileSync } from 'node:fs';
import createSpz from '@adobe/spz';

const spz = await createSpz();
const [input, output, json] = process.argv.slice(2);
const columns = ['positions', 'scales', 'rotations', 'alphas', 'colors', 'sh'];
if (json) {
    const from = JSON.parse(readFileSync(json, 'utf8'));
    const { numPoints, shDegree } = from;
    const cloud = { numPoints, shDegree, antialiased: false, extensions: [] };
    for (const column of columns) cloud[column] = new Float32Array(from[column]);
    const options = { version: from.version, from: spz.CoordinateSystem.UNSPECIFIED, sh1Bits: 8, shRestBits: 8 };
    writeFileSync(output, spz.saveSpzToBuffer(cloud, options));
} else {
    const cloud = spz.loadSpzFromBuffer(readFileSync(input), { to: spz.CoordinateSystem.UNSPECIFIED });
    const found = { numPoints: cloud.numPoints, shDegree: cloud.shDegree };
    // An alpha of 255 has an infinite logit, which JSON cannot hold.
    const finite = (x) => Math.max(-60, Math.min(60, x));
    for (const column of columns) found[column] = Array.from(cloud[column], finite);
    writeFileSync(output, JSON.stringify(found));
}
