// The run in figures and curves, and the buttons that control it.
import { Chart } from './charts.js';
import { inWords } from './run.js';

const byId = id => document.getElementById(id);

/** Interval of announcements for screen readers, ms. */
const ANNOUNCED_MS = 10_000;

/** Time to confirm a stop by a second press, ms. */
const SURE_MS = 5000;

const STATES = {
  none: 'no run', running: 'training', paused: 'paused', finished: 'finished', interrupted: 'stopped', ended: 'ended early',
};

/** Returns a readable name of a fallback. */
const inPlainWords = name => name.replaceAll('_', ' ');

/** Updates a list only if it changed, which keeps its scroll position. */
function relist(list, texts) {
  const items = texts.map(text => Object.assign(document.createElement('li'), { textContent: text }));
  const isSame = texts.length === list.children.length && texts.every((text, i) => list.children[i].textContent === text);
  if (!isSame) list.replaceChildren(...items);
}

export class Monitor {
  constructor(api, say) {
    Object.assign(this, { api, say, state: 'none', announcedAt: -Infinity });
    const charts = byId('charts');
    this.charts = {
      psnr: new Chart(charts, 'PSNR', { unit: ' dB', series: ['held out', 'training'] }),
      loss: new Chart(charts, 'Loss', { digits: 4, series: ['L1', 'total'] }),
      gaussians: new Chart(charts, 'Gaussians', { digits: 0, series: ['N'] }),
      memory: new Chart(charts, 'Memory', { unit: ' GB', series: ['held'] }),
    };
    byId('pause').addEventListener('click', () => this.pauseOrResume());
    byId('checkpoint').addEventListener('click', () => this.ask('checkpoint'));
    byId('stop').addEventListener('click', () => this.stop());
  }

  /** Shows the server's answer about a run, `page`, and the run's events. */
  update(page, run) {
    const { state, message, control } = page;
    this.state = state;
    byId('run').dataset.state = state;
    document.body.dataset.iteration = run.iteration;
    const share = run.iterations > 0 ? run.iteration / run.iterations : 0;
    const left = state === 'running' ? run.secondsLeft() : null;
    const count = run.iteration.toLocaleString('en');
    byId('progress-text').textContent = state === 'none' ? 'No run yet' : [
      `${STATES[state]}: iteration ${count} of ${run.iterations.toLocaleString('en')}`,
      `${Math.floor(100 * share)} %`,
      ...(left === null ? [] : [`${inWords(left)} left`]),
    ].join(', ');
    byId('progress').value = share;
    byId('run-message').textContent = message;
    byId('controls').hidden = !control;
    byId('pause').textContent = state === 'paused' ? 'Resume' : 'Pause';
    this.showCurves(run);
    this.showLists(run, page.skipped_lines);
    this.announce();
  }

  showCurves(run) {
    const { charts } = this;
    const ofSteps = key => run.steps.map(step => ({ iteration: step.iteration, value: step[key] }));
    charts.psnr.update([run.psnr.test, run.psnr.train]);
    charts.loss.update([ofSteps('l1'), ofSteps('total')]);
    charts.gaussians.update([ofSteps('gaussians')]);
    charts.memory.title = run.isVram ? 'GPU memory' : 'Memory';
    charts.memory.update([run.held], run.budget);
  }

  showLists(run, skipped) {
    const megabytes = bytes => `${Math.round(bytes / 1e6).toLocaleString('en')} MB`;
    const rungs = [...run.rungs].map(([rung, { iteration, isGivenUp, bytes }]) =>
      `${inPlainWords(rung)}: ${isGivenUp ? 'given up' : 'taken back'} at ${iteration.toLocaleString('en')}, ${megabytes(bytes)}`);
    relist(byId('rungs'), rungs);
    byId('ladder').hidden = rungs.length === 0;
    const lost = skipped > 0 ? [`${skipped} lines of run.jsonl are damaged and left out`] : [];
    relist(byId('said'), [...lost, ...run.said].reverse());
    byId('messages').hidden = run.said.length + lost.length === 0;
  }

  /** Announces the progress to screen readers at intervals. */
  announce() {
    const now = performance.now();
    const isNews = this.state !== this.announced;
    if (!isNews && (this.state !== 'running' || now - this.announcedAt < ANNOUNCED_MS)) return;
    Object.assign(this, { announced: this.state, announcedAt: now });
    byId('announcement').textContent = `${byId('progress-text').textContent}. ${byId('run-message').textContent}`;
  }

  pauseOrResume() {
    return this.ask(this.state === 'paused' ? 'resume' : 'pause');
  }

  async ask(action) {
    if (byId('controls').hidden) return;
    try {
      await this.api.control(action);
      this.say(`The run is asked to ${action === 'checkpoint' ? 'write a checkpoint' : action}`);
    } catch (error) {
      this.say(error.message);
    }
  }

  /** Stops at the second press. */
  stop() {
    const button = byId('stop');
    clearTimeout(this.unsure);
    const isSure = button.dataset.sure === 'true';
    const settle = sure => {
      button.dataset.sure = sure;
      button.textContent = sure ? 'Press again to stop' : 'Stop';
    };
    settle(!isSure);
    if (isSure) this.ask('stop');
    else this.unsure = setTimeout(() => settle(false), SURE_MS);
  }
}
