// A page that its server tells of a model folder, and of a run that goes on there.
import { Panel } from '../panel.js';
import { Pilot } from '../pilot.js';
import { Stage } from '../stage.js';
import { NO_WEBGL2, hasWebgl2, setState, showLicenses, watchContext } from '../state.js';
import { Api, Unauthorized, tokenOfAddress } from './api.js';
import { BlindPilot, BlindStage } from './blind.js';
import { Compare, MODES } from './compare.js';
import { Monitor } from './monitor.js';
import { Overlays, meshOf, pointsOf, pyramidsOf } from './overlays.js';
import { Run } from './run.js';

/** How often the server is asked while somebody looks at a run, and otherwise, ms. */
const ASKED_MS = 1000;
const RARELY_MS = 5000;

const byId = id => document.getElementById(id);

const pause = ms => new Promise(resolve => { setTimeout(resolve, ms); });

/** Asks for the token until the server takes it, and answers with what it says of the scene. */
async function admitted() {
  let api = new Api(tokenOfAddress());
  for (;;) {
    try {
      if (api.token) return { api, scene: await api.json('scene') };
    } catch (error) {
      if (!(error instanceof Unauthorized)) throw error;
      byId('access-problem').textContent = error.message;
    }
    setState('no-token', '');
    api = new Api(await askedToken());
  }
}

/** The token that somebody types, or pastes with the whole address. */
function askedToken() {
  const form = byId('access');
  form.hidden = false;
  byId('token').focus();
  return new Promise(resolve => {
    form.addEventListener('submit', event => {
      event.preventDefault();
      form.hidden = true;
      resolve(byId('token').value.trim().replace(/^.*#t=/, ''));
    }, { once: true });
  });
}

/** The canvas with its camera, or what stands for them. */
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

/** The order of the list of cameras. */
function orderOf(cameras, filter) {
  const all = cameras.map((_, index) => index);
  const psnr = index => cameras[index].psnr ?? Infinity;
  if (filter === 'worst') return all.filter(index => cameras[index].psnr !== null).sort((a, b) => psnr(a) - psnr(b));
  return filter === 'all' ? all : all.filter(index => cameras[index].split === filter);
}

/** The parts of the scene that can be switched on and off. */
function connectParts({ api, scene, stage, overlays, say }) {
  const switches = {
    cameras: () => Promise.resolve(pyramidsOf(scene)),
    points: async () => pointsOf(await api.bytes('points')),
    mesh: async () => meshOf(await api.bytes(`mesh/${byId('mesh').value}`)),
  };
  const isThere = { cameras: scene.cameras.length > 0, points: scene.points > 0, mesh: scene.meshes.length > 0 };
  byId('mesh').append(...scene.meshes.map(({ name }, index) => new Option(name, index)));
  byId('mesh').hidden = !isThere.mesh;
  const show = async name => {
    if (!byId(`show-${name}`).checked) {
      overlays.hide(name);
      return;
    }
    try {
      await overlays.show(name, switches[name]);
    } catch (error) {
      byId(`show-${name}`).checked = false;
      say(error.message);
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

/** Shows newer Gaussians as they come. */
class Splats {
  constructor(api, stage, compare, say) {
    Object.assign(this, { api, stage, compare, say, generation: 0, isBusy: false });
  }

  /** Takes what the server has; what comes while others are unpacked is seen the next time. */
  async take(newest) {
    if (!newest || newest.generation === this.generation || this.isBusy || !this.stage.show) return;
    this.isBusy = true;
    try {
      const shown = await this.stage.show(await this.api.bytes(`splats/${newest.generation}`));
      this.generation = newest.generation;
      Object.assign(document.body.dataset, { splats: shown, generation: newest.generation, shown: newest.iteration });
      const some = newest.live ? ', as the run shows them' : '';
      byId('count').textContent = `${shown.toLocaleString('en')} Gaussians of iteration ${newest.iteration.toLocaleString('en')}${some}`;
      this.compare.redraw();
    } catch (error) {
      this.say(error.message);
    } finally {
      this.isBusy = false;
    }
  }
}

/** Asks of the run again and again. */
async function follow(api, monitor, splats) {
  const run = new Run();
  let from = 0;
  for (;;) {
    let page = { more: false, state: 'none' };
    try {
      page = await api.json(`run?from=${from}`);
      byId('away').hidden = true;
      if (page.reset) run.forget();
      page.events.forEach(event => run.take(event));
      from = page.next;
      if (!page.more) {
        monitor.update(page, run);
        await splats.take(page.splats);
      }
    } catch (error) {
      byId('away').hidden = false;
      byId('away').textContent = error instanceof Unauthorized
        ? 'The server was started anew: open the address that it has printed.'
        : 'The server does not answer. What is shown may be old; it is asked again.';
    }
    const isLive = page.state === 'running' || page.state === 'paused';
    if (!page.more) await pause(isLive && !document.hidden ? ASKED_MS : RARELY_MS);
  }
}

export async function startServed() {
  showLicenses();
  const { api, scene } = await admitted();
  document.title = scene.title;
  byId('title').textContent = scene.title;
  byId('side').hidden = false;
  setState('loading', '');
  const parts = stageOf(scene);
  const { stage, pilot } = parts;
  const keys = {};
  const panel = new Panel(stage, pilot, scene, keys);
  parts.panel = panel;
  const say = text => panel.say(text);
  const compare = new Compare(api, stage, pilot, scene, say);
  panel.onCamera = index => compare.setCamera(index);
  const monitor = new Monitor(api, say);
  connectParts({ api, scene, stage, overlays: new Overlays(stage), say });
  byId('filter').addEventListener('change', event => panel.setOrder(orderOf(scene.cameras, event.target.value)));
  byId('comparison').hidden = scene.cameras.length === 0;
  MODES.forEach((mode, i) => { keys[String([2, 1, 3, 4][i])] = () => compare.setMode(mode); });
  const press = id => () => { if (!byId(id).disabled && byId(id).parentElement.offsetParent) byId(id).click(); };
  Object.assign(keys, { p: press('show-points'), m: press('show-mesh'), c: press('show-cameras'), ' ': press('pause'), k: press('checkpoint') });
  panel.home();
  const isBlind = document.body.dataset.state === 'no-webgl2';
  if (isBlind) compare.setMode('photograph');
  else setState('ready', '');
  await follow(api, monitor, new Splats(api, stage, compare, say));
}
