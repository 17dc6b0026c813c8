// Opens an exported page from the disk and looks at it: check.mjs MODEL SCENE CONVERT OUT.
// MODEL is a trained folder with pictures of `splat render`, SCENE its COLMAP scene, CONVERT the
// example of splat-formats. The page and screenshots go to OUT.
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { conclude, expect, launched, recordViolations, settled, until } from './browser.mjs';
import { modelOf } from './model.mjs';
import { contrast, psnr, spread } from './pictures.mjs';

const [folder, scene, example, out] = process.argv.slice(2).map(path => resolve(path));
mkdirSync(out, { recursive: true });
const model = modelOf(folder, scene);
const hostile = '</script><img src="//example.invalid/x" onerror="document.title=1">';
model.cameras[1].name = hostile;

/** A page of the model with these cameras. */
function exported(name, cameras) {
  const [file, list] = [join(out, `${name}.html`), join(out, `${name}.json`)];
  writeFileSync(list, JSON.stringify(cameras));
  console.log(execFileSync(example, [model.cloud, file, list], { encoding: 'utf8' }).trim());
  return pathToFileURL(file).href;
}
const url = exported('scene', model.cameras);
const plain = exported('plain', []);

const browser = await launched();
const problems = [];

/** The page in a window of this size, ready; `before` runs first. */
async function opened(viewport, options = {}, before = () => {}, address = url) {
  const context = await browser.newContext({ viewport, deviceScaleFactor: 1, offline: true, ...options });
  const page = await context.newPage();
  await page.addInitScript(recordViolations);
  await page.addInitScript(before);
  page.on('request', request => {
    if (request.url() !== address && !/^(data|blob):/.test(request.url())) problems.push(request.url());
  });
  page.on('console', message => message.type() === 'error' && problems.push(message.text()));
  page.on('pageerror', error => problems.push(String(error)));
  await page.goto(address);
  await until(page, () => document.body.dataset.state !== 'loading');
  return page;
}

async function close(page) {
  problems.push(...await page.evaluate(() => window.violations));
  await page.context().close();
}

const [width, height] = model.cameras[0].size_px;

/** A window with room for a mouse between the panels. */
const SMALL = { width: 640, height: 480 };

async function pictures() {
  const page = await opened({ width, height });
  const { state, splats } = await page.evaluate(() => ({ ...document.body.dataset }));
  expect('state', state === 'ready', state);
  expect('Gaussians', Number(splats) > 0, Number(splats));
  const shown = [];
  const chosen = [0, 1, Math.floor(model.cameras.length / 2), model.cameras.length - 1];
  for (const i of chosen) {
    await page.selectOption('#camera', String(i));
    shown.push(await settled(page));
    const exact = psnr(shown.at(-1), readFileSync(model.rendered(i)));
    expect(`camera ${i} against splat render, dB`, exact > 30, exact);
  }
  writeFileSync(join(out, 'camera.png'), shown[0]);
  expect('spread of the values', spread(shown[0]) > 10, spread(shown[0]));
  expect('two cameras, dB', psnr(shown[0], shown[2]) < 20, psnr(shown[0], shown[2]));
  await page.focus('#view');
  await page.keyboard.press('Home');
  const start = await settled(page);
  expect('Home is the first camera', start.equals(shown[0]), start.equals(shown[0]));
  await page.keyboard.press('.');
  const next = await settled(page);
  expect('the next camera by key', next.equals(shown[1]), next.equals(shown[1]));
  await page.keyboard.press(',');
  await page.keyboard.press('h');
  const plain = await settled(page);
  const degree = await page.inputValue('#harmonics');
  expect('a lower degree of harmonics, dB', degree === '2' && !plain.equals(start), psnr(plain, start));
  await close(page);
}

async function motion() {
  const page = await opened(SMALL);
  const [right, down] = [SMALL.width / 2, SMALL.height / 2];
  const moves = {
    'key W': () => page.keyboard.press('w', { delay: 400 }),
    'key E': () => page.keyboard.press('e', { delay: 400 }),
    'an arrow': () => page.keyboard.press('ArrowLeft', { delay: 400 }),
    'the mouse': async () => {
      await page.mouse.move(right, down);
      await page.mouse.down();
      await page.mouse.move(right / 2, 0.8 * down, { steps: 4 });
      await page.mouse.up();
    },
    'the right button': async () => {
      await page.mouse.move(right, down);
      await page.mouse.down({ button: 'right' });
      await page.mouse.move(right / 2, 0.8 * down, { steps: 4 });
      await page.mouse.up({ button: 'right' });
    },
    'the wheel': async () => {
      await page.mouse.move(right, down);
      await page.mouse.wheel(0, 300);
    },
    'key F': () => page.keyboard.press('f'),
    turntable: async () => {
      await page.keyboard.press('r');
      await page.waitForTimeout(500);
      await page.keyboard.press('r');
    },
  };
  let before = await settled(page);
  for (const [what, move] of Object.entries(moves)) {
    await move();
    const after = await settled(page);
    expect(`${what} moves, dB`, psnr(before, after) < 40 && spread(after) > 3, psnr(before, after));
    before = after;
  }
  await close(page);
}

async function controls() {
  const page = await opened({ width: 1280, height: 800 });
  await settled(page);
  await page.screenshot({ path: join(out, 'wide.png') });
  const order = [];
  const rings = [];
  for (;;) {
    await page.keyboard.press('Tab');
    const { id, ring } = await page.evaluate(() => {
      const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement);
      return { id: document.activeElement.id, ring: outlineStyle === 'solid' && parseFloat(outlineWidth) >= 2 };
    });
    if (!id || order.includes(id)) break;
    order.push(id);
    if (!ring) rings.push(id);
    if (id === 'turn') await page.screenshot({ path: join(out, 'focus.png') });
  }
  const all = await page.evaluate(() => [...document.querySelectorAll('#view, nav button, nav select')].map(it => it.id));
  expect('Tab order', order.join() === all.join() && all.length === 10, order);
  expect('without a ring', rings.length === 0, rings);
  await page.keyboard.press('?');
  const isOpen = await page.evaluate(() => document.getElementById('keys').open);
  await page.screenshot({ path: join(out, 'help.png') });
  await page.keyboard.press('Escape');
  const isClosed = await page.evaluate(() => !document.getElementById('keys').open);
  expect('help opens and closes', isOpen && isClosed, [isOpen, isClosed]);
  await page.selectOption('#camera', '1');
  const said = await page.textContent('#status');
  expect('a hostile name stays text', said.includes(hostile), said);
  await close(page);
}

/** One finger turns the scene. */
async function touch(page) {
  const before = await settled(page);
  const devtools = await page.context().newCDPSession(page);
  const send = (type, touchPoints) => devtools.send('Input.dispatchTouchEvent', { type, touchPoints });
  await send('touchStart', [{ x: 200, y: 400 }]);
  for (const x of [180, 150, 120]) await send('touchMove', [{ x, y: 390 }]);
  await send('touchEnd', []);
  const after = await settled(page);
  expect('a finger moves, dB', psnr(before, after) < 40 && spread(after) > 3, psnr(before, after));
}

async function looks(colorScheme) {
  const phone = { width: 390, height: 844 };
  const page = await opened(phone, { colorScheme, hasTouch: true, isMobile: true });
  await settled(page);
  await page.screenshot({ path: join(out, `phone-${colorScheme}.png`) });
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  expect(`${colorScheme}: width`, wide <= phone.width, wide);
  const small = await page.evaluate(() => [...document.querySelectorAll('nav button, nav select')].filter(it => {
    const { left, top, right, bottom } = it.getBoundingClientRect();
    return right - left < 44 || bottom - top < 44 || left < 0 || right > innerWidth || bottom > innerHeight;
  }).map(it => it.id));
  expect(`${colorScheme}: small or outside`, small.length === 0, small);
  await page.evaluate(() => document.getElementById('turn').setAttribute('aria-pressed', true));
  const colors = await page.evaluate(() => [...document.querySelectorAll('h1, #count, nav button, nav select, label')].map(it => {
    let behind = it;
    while (getComputedStyle(behind).backgroundColor === 'rgba(0, 0, 0, 0)') behind = behind.parentElement;
    return [getComputedStyle(it).color, getComputedStyle(behind).backgroundColor];
  }));
  if (colorScheme === 'light') await touch(page);
  const least = Math.min(...colors.map(([text, behind]) => contrast(text, behind)));
  expect(`${colorScheme}: least contrast`, least >= 4.5, least);
  await close(page);
}

async function stillness() {
  const page = await opened({ width, height }, { reducedMotion: 'reduce' });
  const before = await settled(page);
  await page.keyboard.press('r');
  const after = await settled(page);
  const pressed = await page.getAttribute('#turn', 'aria-pressed');
  expect('without motion the turntable goes in steps, dB', pressed === 'false' && psnr(before, after) < 40, psnr(before, after));
  await close(page);
}

async function withoutWebgl2() {
  const page = await opened({ width: 390, height: 844 }, {}, () => {
    HTMLCanvasElement.prototype.getContext = () => null;
  });
  const [state, said] = await page.evaluate(() => [document.body.dataset.state, document.getElementById('message').textContent]);
  expect('without WebGL2', state === 'no-webgl2' && said.includes('WebGL2'), [state, said]);
  await page.screenshot({ path: join(out, 'no-webgl2.png') });
  await close(page);
}

async function withoutCameras() {
  const page = await opened(SMALL, {}, () => {}, plain);
  await page.keyboard.press(',');
  const shown = await settled(page);
  const isHidden = await page.isHidden('#camera');
  expect('without cameras, spread of the values', isHidden && spread(shown) > 10, spread(shown));
  await close(page);
}

try {
  await pictures();
  await motion();
  await controls();
  await looks('light');
  await looks('dark');
  await stillness();
  await withoutCameras();
  await withoutWebgl2();
  expect('requests, violations and errors', problems.length === 0, problems);
} finally {
  await browser.close();
}
conclude();
