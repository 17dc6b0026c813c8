// A page that shows a model folder, and a run in it, through its server.
import { Panel } from '../panel.js';
import { Pilot } from '../pilot.js';
import { Stage } from '../stage.js';
import { NO_WEBGL2, hasWebgl2, setState, showLicenses, watchContext } from '../state.js';
import { admitted, askedToken } from './access.js';
import { Unauthorized } from './api.js';
import { BlindPilot, BlindStage } from './blind.js';
import { Compare, MODES } from './compare.js';
import { Monitor } from './monitor.js';
import { Overlays, meshOf, pointsOf, pyramidsOf } from './overlays.js';
import { Run } from './run.js';
import { Splats } from './splats.js';

/** Intervals of requests during a visible run, and otherwise, ms. */
const ASKED_MS = 1000;
const RARELY_MS = 5000;

const byId = id => document.getElementById(id);

const pause = ms => new Promise(resolve => { setTimeout(resolve, ms); });

/** Returns the canvas with its camera, or their substitutes. */
function stageOf(scene) {
  if (!hasWebgl2()) {
    setState('no-webgl2', NO_WEBGL2);
    return { stage: new BlindStage(), pilot: new BlindPilot() };
  }
  const canvas = byId('view');
  const both = {};
  both.stage = new Stage(canvas, scene, seconds => {
    both.pilot.step(seconds, both.panel?.isFast);
    return both.pilot.isMoving();
  });
  both.pilot = new Pilot(both.stage, canvas, scene);
  both.stage.resize();
  watchContext(canvas);
  new ResizeObserver(() => both.stage.resize()).observe(canvas);
  return both;
}

/** Returns the filtered and sorted camera list. */
function orderOf(cameras, filter) {
  const all = cameras.map((_, index) => index);
  const psnr = index => cameras[index].psnr ?? Infinity;
  if (filter === 'worst') return all.filter(index => cameras[index].psnr !== null).sort((a, b) => psnr(a) - psnr(b));
  return filter === 'all' ? all : all.filter(index => cameras[index].split === filter);
}

/** Connects the switches for the objects of the scene. */
function connectParts({ api, scene, stage, overlays, compare, say }) {
  const switches = {
    cameras: () => Promise.resolve(pyramidsOf(scene)),
    points: async () => pointsOf(await api.bytes('points')),
    mesh: async () => meshOf(await api.bytes(`mesh/${byId('mesh').value}`)),
  };
  const isThere = { cameras: scene.cameras.length > 0, points: scene.points > 0, mesh: scene.meshes.length > 0 };
  byId('mesh').append(...scene.meshes.map(({ name }, index) => new Option(name, index)));
  byId('mesh').hidden = !isThere.mesh;
  const show = async name => {
    let object = null;
    try {
      if (byId(`show-${name}`).checked) object = await overlays.show(name, switches[name]);
      else overlays.hide(name);
    } catch (error) {
      byId(`show-${name}`).checked = false;
      say(error.message);
    }
    // The mesh is the model of a triangle scene, unless it was replaced meanwhile.
    const isCurrent = object || !byId(`show-${name}`).checked;
    if (name === 'mesh' && scene.primitive === 'triangles' && isCurrent) {
      stage.triangles = object;
      compare.redraw();
    }
  };
  for (const name of Object.keys(switches)) {
    byId(`show-${name}`).addEventListener('change', () => show(name));
    byId(`show-${name}`).parentElement.hidden = !isThere[name];
  }
  byId('mesh').addEventListener('change', () => show('mesh'));
  byId('show-splats').addEventListener('change', event => stage.setShown(event.target.checked));
  byId('show-splats').parentElement.hidden = scene.primitive === 'triangles';
  if (scene.primitive === 'triangles') {
    const first = isThere.mesh ? 'mesh' : 'points';
    if (isThere[first]) byId(`show-${first}`).click();
  }
}

/** Reports once that the server does not answer; hides the report for an empty sentence. */
function tellAway(sentence) {
  const alert = byId('away');
  if (alert.textContent !== sentence) alert.textContent = sentence;
  alert.hidden = !sentence;
}

/** Copies the PSNRs of an evaluation to the cameras. Returns true if any changed. */
function measure(cameras, views) {
  const psnrs = new Map(views.map(({ name, psnr }) => [name, psnr]));
  const changed = cameras.filter(({ name, psnr }) => psnrs.has(name) && psnrs.get(name) !== psnr);
  for (const camera of changed) camera.psnr = psnrs.get(camera.name);
  return changed.length > 0;
}

/** Polls the run; `onViews` receives the newest evaluation of each view. */
async function follow(api, monitor, splats, onViews) {
  const run = new Run();
  let from = 0;
  for (;;) {
    let page = { more: false, state: 'none' };
    try {
      page = await api.json(`run?from=${from}`);
      tellAway('');
      if (page.reset) run.forget();
      page.events.forEach(event => run.take(event));
      from = page.next;
      if (!page.more) {
        monitor.update(page, run);
        onViews(run.views);
        // The curves do not wait for the Gaussians, which may load slowly.
        splats.take(page.splats);
      }
    } catch (error) {
      if (error instanceof Unauthorized) {
        tellAway('');
        byId('access-problem').textContent = 'The server was started anew, with another token.';
        api.token = await askedToken();
        // The numbering also restarts.
        [from, splats.generation] = [0, 0];
        run.forget();
        continue;
      }
      tellAway('The server does not answer. What is shown may be old; it is asked again.');
    }
    const isLive = page.state === 'running' || page.state === 'paused';
    if (!page.more) await pause(isLive && !document.hidden ? ASKED_MS : RARELY_MS);
  }
}

export async function startServed() {
  showLicenses();
  // Browsers do not reload if only the token in the address changes.
  window.addEventListener('hashchange', () => { if (location.hash.startsWith('#t=')) location.reload(); });
  const { api, scene } = await admitted();
  document.title = scene.title;
  byId('title').textContent = scene.title;
  byId('side').hidden = false;
  setState('loading', '');
  const parts = stageOf(scene);
  const { stage, pilot } = parts;
  const keys = {};
  const hasHarmonics = scene.primitive !== 'triangles';
  const panel = new Panel(stage, pilot, hasHarmonics ? scene : { ...scene, sh_degree: 0 }, keys);
  parts.panel = panel;
  const say = text => panel.say(text);
  const compare = new Compare(api, stage, pilot, scene, say);
  panel.onCamera = index => {
    byId('chosen').textContent = panel.nameOf(index);
    compare.setCamera(index);
  };
  const monitor = new Monitor(api, say);
  connectParts({ api, scene, stage, overlays: new Overlays(stage), compare, say });
  const list = () => panel.setOrder(orderOf(scene.cameras, byId('filter').value));
  byId('filter').addEventListener('change', list);
  byId('comparison').hidden = scene.cameras.length === 0;
  MODES.forEach((mode, i) => { keys[String([2, 1, 3, 4][i])] = () => compare.setMode(mode); });
  const press = id => () => { if (!byId(id).disabled && byId(id).parentElement.offsetParent) byId(id).click(); };
  Object.assign(keys, { p: press('show-points'), m: press('show-mesh'), c: press('show-cameras'), ' ': press('pause'), k: press('checkpoint') });
  panel.home();
  const isBlind = document.body.dataset.state === 'no-webgl2';
  if (isBlind) compare.setMode('photograph');
  else setState('ready', '');
  const none = scene.primitive === 'triangles' ? 'Triangles: their points and meshes are shown' : 'No Gaussians yet';
  await follow(api, monitor, new Splats(api, stage, compare, none, say), views => {
    // Do not change an open list.
    if (document.activeElement === byId('camera') || !measure(scene.cameras, views)) return;
    list();
    byId('chosen').textContent = panel.nameOf(panel.current);
  });
}
