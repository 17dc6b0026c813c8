// Entry point: an exported page contains its scene; a served page requests it.
import { sceneOfPage } from './content.js';
import { startExported } from './exported.js';
import { startServed } from './live/served.js';
import { setState } from './state.js';

const scene = sceneOfPage();
const started = scene.served ? startServed() : startExported(scene);
started.catch(error => {
  console.error(error);
  setState('error', `The scene cannot be shown: ${error.message}`);
});
