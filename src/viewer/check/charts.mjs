// Draws the charts of a run in Chromium: charts.mjs. Each point has to be seen, also a single one.
import { readFileSync } from 'node:fs';
import { PNG } from 'pngjs';
import { conclude, expect, launched } from './browser.mjs';

const source = path => readFileSync(new URL(`../src/${path}`, import.meta.url), 'utf8');
const page = `<!doctype html><style>${source('page.css')}${source('served.css')}
#charts svg { background: #808080; }</style>
<div id="charts" style="width: 300px"></div>
<script type="module">${source('live/charts.js')}
window.Chart = Chart;</script>`;

const browser = await launched();
const tab = await browser.newPage();
await tab.setContent(page);
await tab.waitForFunction(() => window.Chart);

/** Pixels of a chart of these curves that a curve of its own has coloured, by column. */
async function coloured(lists, color) {
  await tab.evaluate(points => {
    document.getElementById('charts').replaceChildren();
    const series = points.map((_, i) => `curve ${i}`);
    new window.Chart(document.getElementById('charts'), 'PSNR', { series }).update(points);
  }, lists);
  const svg = tab.locator('#charts svg');
  const value = await tab.evaluate(name => getComputedStyle(document.querySelector(name)).stroke, color);
  const wanted = value.match(/[\d.]+/g).slice(0, 3).map(Number);
  const { width, height, data } = PNG.sync.read(await svg.screenshot());
  const isCurve = at => wanted.every((part, i) => Math.abs(data[4 * at + i] - part) < 40);
  // The border of the chart is no curve.
  const inside = (_, at) => at % width > 1 && at % width < width - 2 && at >= 2 * width && at < (height - 2) * width;
  const columns = new Map();
  Array.from({ length: width * height }, (_, at) => at).filter(inside).filter(isCurve)
    .forEach(at => columns.set(at % width, (columns.get(at % width) ?? 0) + 1));
  return [...columns.values()];
}

const point = (iteration, value) => ({ iteration, value });
const isDot = columns => columns.length >= 5 && columns.length <= 9 && Math.max(...columns) >= 5 && Math.max(...columns) <= 9;
const alone = await coloured([[point(6000, 30)]], '.curve-0');
expect('a single point is a dot', isDot(alone), alone);
const beside = await coloured([[point(10, 12)], [point(10, 20), point(500, 30)]], '.curve-0');
expect('a single point beside a curve, at its first iteration, is a whole dot', isDot(beside), beside);
const dashed = await coloured([[], [point(6000, 30)]], '.curve-1');
expect('a single point of the dashed curve is a dot', isDot(dashed), dashed);
const line = await coloured([[point(0, 10), point(6000, 30)]], '.curve-0');
expect('two points are a line', line.length > 200 && Math.max(...line) < 6, line.length);
await browser.close();
conclude();
