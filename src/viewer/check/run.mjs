// Presses the buttons of a run: run.mjs SPLAT OUT.
// Trains the demonstration, looks at it on the page of `splat view`, and pauses, resumes, saves and stops it
// there. The screenshot goes to OUT.
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { conclude, expect, launched, recordViolations, until } from './browser.mjs';

const [program, out] = process.argv.slice(2).map(path => resolve(path));
mkdirSync(out, { recursive: true });
const folder = mkdtempSync(join(tmpdir(), 'splat-run-'));
const model = join(folder, 'model');
const wait = ms => new Promise(done => { setTimeout(done, ms); });

/** Polls for at most a minute. */
async function eventually(what, holds) {
  for (let i = 0; i < 600; i++) {
    if (holds()) return;
    await wait(100);
  }
  throw new Error(`never: ${what}`);
}

const log = join(model, 'run.jsonl');
/** Whole lines of the run's log. */
function events() {
  const text = existsSync(log) ? readFileSync(log, 'utf8') : '';
  return text.slice(0, text.lastIndexOf('\n') + 1).split('\n').filter(Boolean).map(line => JSON.parse(line));
}
const asked = action => events().some(event => event.event === 'control' && event.action === action);
const checkpoints = () => {
  const place = join(model, 'checkpoints');
  return existsSync(place) ? readdirSync(place).length : 0;
};

const flags = ['--demo', '-m', model, '--device=cpu', '--iterations=1000000', '--live-every=1', '--quiet'];
const training = spawn(program, ['train', ...flags], { stdio: ['ignore', 'inherit', 'inherit'] });
const ended = new Promise(done => { training.once('exit', code => done(code)); });
let server;
let browser;
try {
  await eventually('the run trains', () => events().some(event => event.event === 'step'));
  server = spawn(program, ['view', '-m', model, '--port=0', '--quiet'], { stdio: ['ignore', 'pipe', 'inherit'] });
  const address = await new Promise(done => { server.stdout.once('data', text => done(String(text).trim())); });
  browser = await launched();
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
  await page.addInitScript(recordViolations);
  await page.goto(address);
  await until(page, () => Number(document.body.dataset.iteration) > 0 && !document.getElementById('controls').hidden);
  const iteration = async () => Number(await page.getAttribute('body', 'data-iteration'));
  const first = await iteration();
  await until(page, () => document.body.dataset.generation !== '0');
  expect('Gaussians of a run that has saved none are shown', Number(await page.getAttribute('body', 'data-splats')) > 0,
    await page.getAttribute('body', 'data-splats'));
  await wait(3000);
  const later = await iteration();
  expect('counters move while it trains', later > first, [first, later]);

  await page.click('#pause');
  await eventually('the run is paused', () => asked('pause'));
  await wait(1500);
  const [held, lines] = [await iteration(), events().filter(event => event.event === 'step').length];
  await wait(3000);
  const still = events().filter(event => event.event === 'step').length;
  expect('a paused run rests', still === lines, [lines, still]);
  await page.screenshot({ path: join(out, 'run-paused.png') });
  await page.click('#pause');
  await eventually('the run goes on', () => asked('resume'));
  await eventually('steps follow', () => events().filter(event => event.event === 'step').length > still);
  expect('a resumed run goes on', await iteration() >= held, [held, await iteration()]);

  const before = checkpoints();
  await page.click('#checkpoint');
  await eventually('a checkpoint is written', () => asked('checkpoint') && checkpoints() > before);
  expect('a checkpoint is there', checkpoints() > before, checkpoints());

  await page.click('#stop');
  await wait(1500);
  expect('Stop asks again', !asked('stop'), await page.textContent('#stop'));
  await page.click('#stop');
  const code = await Promise.race([ended, wait(30000).then(() => 'never')]);
  expect('Stop ends the run as Ctrl-C does', code === 130 && asked('stop'), code);
  await until(page, () => document.getElementById('controls').hidden);
  expect('a run that has ended has no buttons', true, 'hidden');
  const violations = await page.evaluate(() => window.violations);
  expect('violations', violations.length === 0, violations);
} finally {
  training.kill('SIGKILL');
  server?.kill();
  await browser?.close();
  rmSync(folder, { recursive: true, force: true });
}
conclude();
