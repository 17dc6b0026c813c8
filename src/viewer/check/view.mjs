// Looks at the page of `splat view`: view.mjs SPLAT MODEL OUT.
// MODEL is a trained folder, with held-out views and the pictures of `splat render`; it is copied, and the
// copy is changed as a run does. Screenshots go to OUT.
import { spawn } from 'node:child_process';
import { appendFileSync, cpSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { conclude, expect, launched, recordViolations, settled, until } from './browser.mjs';
import { contrast, psnr, spread } from './pictures.mjs';

const [program, given, out] = process.argv.slice(2).map(path => resolve(path));
mkdirSync(out, { recursive: true });
const folder = mkdtempSync(join(tmpdir(), 'splat-view-'));
const model = join(folder, 'model');
cpSync(given, model, { recursive: true });
const iterations = readdirSync(join(model, 'point_cloud')).map(name => Number(name.split('_')[1]));
const last = Math.max(...iterations);
const cloud = iteration => join(model, 'point_cloud', `iteration_${iteration}`);
const log = join(model, 'run.jsonl');

/** The server, and the address that it prints. */
async function served(port = 0) {
  const server = spawn(program, ['view', '-m', model, `--port=${port}`, '--quiet'], { stdio: ['ignore', 'pipe', 'inherit'] });
  const address = await new Promise(done => { server.stdout.once('data', text => done(String(text).trim())); });
  return { server, address };
}

let { server, address } = await served();
const [origin, token] = address.split('/#t=');
const ask = path => fetch(`${origin}/api/${path}`, { headers: { Authorization: `Bearer ${token}` } });
const scene = await (await ask('scene')).json();
const { size_px: [width, height] } = scene.cameras[0];
/** What `splat render` drew from a camera. */
const rendered = index => {
  const { split } = scene.cameras[index];
  const number = scene.cameras.slice(0, index).filter(camera => camera.split === split).length;
  const [below, name] = [split === 'held_out' ? 'test' : 'train', `${String(number).padStart(5, '0')}.png`];
  const picture = kind => readFileSync(join(model, below, `ours_${last}`, kind, name));
  return { render: picture('renders'), photograph: picture('gt') };
};

const browser = await launched();
const problems = [];

async function opened(viewport, options = {}, before = () => {}, url = address) {
  const context = await browser.newContext({ viewport, deviceScaleFactor: 1, ...options });
  const page = await context.newPage();
  await page.addInitScript(recordViolations);
  await page.addInitScript(before);
  page.on('request', request => {
    if (!request.url().startsWith(`${origin}/`) && !/^(data|blob):/.test(request.url())) problems.push(request.url());
  });
  page.on('pageerror', error => problems.push(String(error)));
  await page.goto(url);
  await until(page, () => document.body.dataset.state !== 'loading');
  return page;
}

const data = page => page.evaluate(() => ({ ...document.body.dataset }));
const shown = page => until(page, () => document.body.dataset.generation !== '0');

async function close(page) {
  problems.push(...await page.evaluate(() => window.violations));
  await page.context().close();
}

/** The side panel takes this of the window's width, px. */
const SIDE = 352;

async function pictures() {
  const page = await opened({ width: width + SIDE, height });
  await shown(page);
  expect('the address keeps no token', !page.url().includes(token), page.url());
  const drawn = [];
  const training = scene.cameras.findIndex(camera => camera.split === 'training');
  const chosen = [0, training, Math.floor(scene.cameras.length / 2)];
  for (const i of chosen) {
    await page.selectOption('#camera', String(i));
    drawn.push(await settled(page));
    const exact = psnr(drawn.at(-1), rendered(i).render);
    expect(`camera ${i} against splat render, dB`, exact > 30, exact);
  }
  writeFileSync(join(out, 'view-camera.png'), drawn[1]);
  expect('spread of the values', spread(drawn[0]) > 10, spread(drawn[0]));
  expect('two cameras, dB', psnr(drawn[0], drawn[2]) < 20, psnr(drawn[0], drawn[2]));
  const { render, photograph } = rendered(training);
  await page.selectOption('#camera', String(training));
  await page.click('#mode-difference');
  await until(page, () => document.getElementById('compare').dataset.psnr);
  const here = Number(await page.getAttribute('#compare', 'data-psnr'));
  const there = psnr(render, photograph);
  expect(`to the photograph, dB (splat render: ${there.toFixed(2)})`, Math.abs(here - there) < 3, here);
  // What else is shown is not compared.
  await page.check('#show-cameras');
  await page.uncheck('#show-splats');
  await page.click('#mode-render');
  await page.selectOption('#camera', '0');
  await page.selectOption('#camera', String(training));
  await page.evaluate(() => { document.getElementById('compare').dataset.psnr = ''; });
  await page.click('#mode-difference');
  await until(page, () => document.getElementById('compare').dataset.psnr);
  const again = Number(await page.getAttribute('#compare', 'data-psnr'));
  // Drawn twice, the order of Gaussians as near as one's own may differ.
  expect('Gaussians alone are compared, dB', Math.abs(again - here) < 0.05, again);
  await page.check('#show-splats');
  await page.screenshot({ path: join(out, 'view-difference.png') });
  await page.focus('#show-cameras');
  await page.keyboard.press('Space');
  expect('Space presses what it is on', !await page.isChecked('#show-cameras'), await page.isChecked('#show-cameras'));
  await page.keyboard.press('1');
  await page.waitForTimeout(500);
  const [pressed, isSeen] = await page.evaluate(() => [
    document.getElementById('mode-photograph').getAttribute('aria-pressed'), !document.getElementById('compare').hidden,
  ]);
  expect('key 1 shows the photograph', pressed === 'true' && isSeen, [pressed, isSeen]);
  await page.screenshot({ path: join(out, 'view-photograph.png') });
  await page.focus('#view');
  await page.keyboard.press('w', { delay: 200 });
  expect('moving shows the render', await page.isHidden('#compare'), await page.isHidden('#compare'));
  await page.selectOption('#filter', 'worst');
  const worst = await page.evaluate(() => Number(document.getElementById('camera').options[0].value));
  const least = Math.min(...scene.cameras.map(camera => camera.psnr ?? Infinity));
  expect('the worst held-out view comes first', scene.cameras[worst].psnr === least, worst);
  await close(page);
}

async function parts() {
  const page = await opened({ width: 640 + SIDE, height: 480 });
  await shown(page);
  await page.focus('#view');
  await page.keyboard.press('f');
  let before = await settled(page);
  for (const [key, what] of [['p', 'points'], ['c', 'cameras']]) {
    await page.keyboard.press(key);
    await page.waitForTimeout(500);
    const after = await settled(page);
    expect(`${what} are drawn, dB`, psnr(before, after) < 45, psnr(before, after));
    before = after;
  }
  await page.click('#show-splats');
  const without = await settled(page);
  expect('without Gaussians, dB', psnr(before, without) < 30, psnr(before, without));
  await page.screenshot({ path: join(out, 'view-parts.png') });
  await close(page);
}

async function run() {
  const page = await opened({ width: 1280, height: 800 });
  await shown(page);
  const before = await data(page);
  const lines = [];
  for (let step = 1; step <= 40; step++) {
    const [iteration, l1] = [last + 10 * step, 0.05 / step];
    const event = { time: 1e9 + step, event: 'step', iteration, iterations: last + 1000, l1, ssim: 0.9, total: l1, gaussians: 5000 + step, ms: 1 };
    lines.push(JSON.stringify(event));
  }
  lines.push(JSON.stringify({ time: 1e9 + 41, event: 'rung', iteration: last + 400, rung: 'image_cache', given_up: true, bytes: 5e8, held: 1, budget: 2 }));
  const measured = { name: scene.cameras[0].name, psnr: 12.3 };
  lines.push(JSON.stringify({ time: 1e9 + 42, event: 'evaluated', iteration: last + 400, split: 'test', mean: { psnr: 12.3 }, views: [measured] }));
  // The last line is cut off, as a reader may find it.
  appendFileSync(log, `${lines.join('\n')}\n{"time":1,"ev`);
  await until(page, () => document.body.dataset.iteration !== '0' && document.getElementById('rungs').children.length > 0);
  const after = await data(page);
  expect('counters move', Number(after.iteration) === last + 400 && after.iteration !== before.iteration, after.iteration);
  const caption = await page.textContent('#charts figure:nth-child(3) figcaption');
  expect('Gaussians are told', caption.includes('5,040'), caption);
  const option = await page.textContent('#camera option');
  expect('the list has the newest PSNR', option.includes('12.3 dB'), option);
  // A run saves newer Gaussians.
  cpSync(cloud(last), cloud(last + 500), { recursive: true });
  await until(page, () => document.body.dataset.generation === '2');
  const swapped = await data(page);
  expect('newer Gaussians are shown', Number(swapped.shown) === last + 500 && Number(swapped.splats) > 0, swapped);
  await page.screenshot({ path: join(out, 'view-run.png') });
  rmSync(cloud(last + 500), { recursive: true });
  await close(page);
}

async function access() {
  const wrong = await opened({ width: 1280, height: 800 }, {}, () => {}, `${origin}/#t=0123`);
  const state = (await data(wrong)).state;
  expect('a wrong token asks for the right one', state === 'no-token' && await wrong.isVisible('#token'), state);
  await wrong.screenshot({ path: join(out, 'view-token.png') });
  await wrong.fill('#token', address);
  await wrong.press('#token', 'Enter');
  await shown(wrong);
  expect('the address can be pasted', (await data(wrong)).state === 'ready', (await data(wrong)).state);
  await wrong.reload();
  await shown(wrong);
  expect('loaded again, the page asks for no token', (await data(wrong)).state === 'ready', (await data(wrong)).state);
  await close(wrong);
}

async function keyboard() {
  const page = await opened({ width: 1280, height: 900 });
  await shown(page);
  const order = [];
  const rings = [];
  for (;;) {
    await page.keyboard.press('Tab');
    const { id, ring } = await page.evaluate(() => {
      const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement);
      const { id, tagName } = document.activeElement;
      return { id: id || tagName, ring: outlineStyle === 'solid' && parseFloat(outlineWidth) >= 2 };
    });
    if (id === 'BODY' || (order.includes(id) && id !== 'SUMMARY')) break;
    order.push(id);
    if (!ring) rings.push(id);
    if (order.length > 60) break;
  }
  const all = await page.evaluate(() => [...document.querySelectorAll('#side button, #side select, #side input')]
    .filter(it => it.offsetParent && !it.disabled).map(it => it.id));
  const missed = all.filter(id => !order.includes(id));
  expect('not reached by Tab', missed.length === 0 && all.length >= 14, missed);
  expect('without a ring', rings.length === 0, rings);
  await close(page);
}

async function looks(colorScheme) {
  const phone = { width: 390, height: 844 };
  const page = await opened(phone, { colorScheme, hasTouch: true, isMobile: true });
  await shown(page);
  await settled(page);
  await page.screenshot({ path: join(out, `view-phone-${colorScheme}.png`) });
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  expect(`${colorScheme}: width`, wide <= phone.width, wide);
  const small = await page.evaluate(() => [...document.querySelectorAll('#side button, #side select')].filter(it => {
    const { left, top, right, bottom } = it.getBoundingClientRect();
    return it.offsetParent && (right - left < 44 || bottom - top < 44 || left < 0 || right > innerWidth);
  }).map(it => it.id));
  expect(`${colorScheme}: small or outside`, small.length === 0, small);
  const colors = await page.evaluate(() => [...document.querySelectorAll('h1, h2, #count, #side button, #side select, #side label, #side p, figcaption')].map(it => {
    let behind = it;
    while (getComputedStyle(behind).backgroundColor === 'rgba(0, 0, 0, 0)') behind = behind.parentElement;
    return [getComputedStyle(it).color, getComputedStyle(behind).backgroundColor];
  }));
  const least = Math.min(...colors.map(([text, behind]) => contrast(text, behind)));
  expect(`${colorScheme}: least contrast`, least >= 4.5, least);
  await close(page);
}

async function withoutWebgl2() {
  const page = await opened({ width: 1280, height: 800 }, {}, () => {
    const get = HTMLCanvasElement.prototype.getContext;
    HTMLCanvasElement.prototype.getContext = function (kind, ...rest) { return kind === 'webgl2' ? null : get.call(this, kind, ...rest); };
  });
  await until(page, () => document.getElementById('compare').width > 300);
  const [state, said] = await page.evaluate(() => [document.body.dataset.state, document.getElementById('message').textContent]);
  expect('without WebGL2', state === 'no-webgl2' && said.includes('WebGL2'), [state, said]);
  const drawn = spread(await page.locator('#compare').screenshot());
  expect('without WebGL2 the photograph is seen, spread of the values', drawn > 10, drawn);
  await page.screenshot({ path: join(out, 'view-no-webgl2.png') });
  await close(page);
}

async function serverGone() {
  const page = await opened({ width: 1280, height: 800 });
  await shown(page);
  server.kill();
  await until(page, () => !document.getElementById('away').hidden);
  const [said, count] = await page.evaluate(() => [document.getElementById('away').textContent, document.getElementById('count').textContent]);
  expect('a server that is gone is told, and what is shown stays', said.length > 0 && count.length > 0, said);
  const { port } = new URL(origin);
  ({ server, address } = await served(port));
  await until(page, () => document.body.dataset.state === 'no-token');
  await page.screenshot({ path: join(out, 'view-anew.png') });
  await page.fill('#token', address);
  await page.press('#token', 'Enter');
  await shown(page);
  await until(page, () => document.getElementById('away').hidden);
  const state = (await data(page)).state;
  expect('a server that was started anew is asked with its token', state === 'ready' && address.startsWith(origin), state);
  // The same tab, another token.
  await Promise.all([page.waitForEvent('load'), page.goto(`${origin}/#t=0123`)]);
  await until(page, () => document.body.dataset.state === 'no-token');
  expect('a new address in the same tab is taken', !page.url().includes('0123'), page.url());
  await close(page);
}

try {
  await pictures();
  await parts();
  await run();
  await access();
  await keyboard();
  await looks('light');
  await looks('dark');
  await withoutWebgl2();
  await serverGone();
  expect('requests, violations and errors', problems.length === 0, problems);
} finally {
  server.kill();
  await browser.close();
  rmSync(folder, { recursive: true });
}
conclude();
