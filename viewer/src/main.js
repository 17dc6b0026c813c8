// The page of a model: one scene, drawn in any browser with WebGL2.
import licenses from '../dist/LICENSES.txt';
import { sceneOfPage, splatsOfPage } from './content.js';
import { Panel } from './panel.js';
import { Pilot } from './pilot.js';
import { Stage } from './stage.js';

const NO_WEBGL2 = 'This browser cannot draw the scene: it has no WebGL2. Turn on hardware acceleration in its '
  + 'settings, or open the page in another browser.';

function setState(state, text) {
  document.body.dataset.state = state;
  document.getElementById('message').textContent = text;
}

function hasWebgl2() {
  const context = document.createElement('canvas').getContext('webgl2');
  // Browsers keep few contexts.
  context?.getExtension('WEBGL_lose_context')?.loseContext();
  return context !== null;
}

async function start() {
  const scene = sceneOfPage();
  document.getElementById('count').textContent = `${scene.splats.toLocaleString('en')} Gaussians`;
  document.getElementById('licenses').textContent = licenses;
  if (!hasWebgl2()) {
    setState('no-webgl2', NO_WEBGL2);
    return;
  }
  const canvas = document.getElementById('view');
  const stage = new Stage(canvas, scene, seconds => {
    pilot.step(seconds, panel?.isFast);
    return pilot.isMoving();
  });
  const pilot = new Pilot(stage, canvas, scene);
  let panel;
  stage.resize();
  pilot.home();
  canvas.addEventListener('webglcontextlost', () => {
    setState('error', 'The graphics driver took the picture away: load the page again.');
  });
  document.body.dataset.splats = await stage.show(splatsOfPage());
  new ResizeObserver(() => stage.resize()).observe(canvas);
  panel = new Panel(stage, pilot, scene);
  setState('ready', '');
}

start().catch(error => {
  console.error(error);
  setState('error', `The scene cannot be shown: ${error.message}`);
});
