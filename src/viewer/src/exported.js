// A page that contains its scene.
import { splatsOfPage } from './content.js';
import { Panel } from './panel.js';
import { Pilot } from './pilot.js';
import { Stage } from './stage.js';
import { NO_WEBGL2, hasWebgl2, setState, showLicenses, watchContext } from './state.js';

export async function startExported(scene) {
  document.getElementById('count').textContent = `${scene.splats.toLocaleString('en')} Gaussians`;
  showLicenses();
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
  watchContext(canvas);
  document.body.dataset.splats = await stage.show(splatsOfPage());
  await stage.inOrder;
  new ResizeObserver(() => stage.resize()).observe(canvas);
  panel = new Panel(stage, pilot, scene);
  setState('ready', '');
}
