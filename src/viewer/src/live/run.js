// State of a run, built from its events.

/** Number of steps over which the speed is measured. */
const RECENT = 50;

/** Largest number of stored messages. */
const MOST_SAID = 50;

const BYTES = 1e9;

export class Run {
  constructor() {
    this.forget();
  }

  forget() {
    Object.assign(this, { iteration: 0, iterations: 0, gaussians: 0, device: '', said: [], rungs: new Map() });
    this.steps = [];
    this.paced = 0;
    this.psnr = { test: [], train: [] };
    this.held = [];
    this.budget = null;
    this.views = [];
  }

  /** Applies an event; ignores unknown ones. */
  take(event) {
    this.iteration = Math.max(this.iteration, event.iteration ?? 0);
    if (typeof event.gaussians === 'number') this.gaussians = event.gaussians;
    this[`on_${event.event}`]?.(event);
  }

  on_started({ iteration, iterations, device }) {
    Object.assign(this, { iteration, iterations, device });
    // A resumed run repeats events.
    const before = point => point.iteration <= iteration;
    this.steps = this.steps.filter(before);
    this.paced = this.steps.length;
    this.held = this.held.filter(before);
    for (const split of Object.keys(this.psnr)) this.psnr[split] = this.psnr[split].filter(before);
  }

  on_step({ time, iteration, iterations, l1, total, gaussians }) {
    this.iterations = iterations ?? this.iterations;
    this.steps.push({ time, iteration, l1, total, gaussians });
  }

  on_coarse_started({ iterations }) {
    this.iterations = iterations;
  }

  on_evaluated({ iteration, split, mean, views }) {
    const of = split === 'test' ? this.psnr.test : this.psnr.train;
    of.push({ iteration, value: mean.psnr });
    if (split === 'test') this.views = views;
  }

  on_memory({ iteration, vram, host_resident: resident, host_limit: limit }) {
    const [held, budget] = vram ? [vram.reserved, vram.budget] : [resident, limit];
    if (held) this.held.push({ iteration, value: held / BYTES });
    this.budget = budget ? budget / BYTES : null;
    this.isVram = Boolean(vram);
  }

  on_rung({ iteration, rung, given_up: isGivenUp, bytes }) {
    this.rungs.set(rung, { iteration, isGivenUp, bytes });
  }

  /** A notice from before the run began. */
  on_log({ level, message }) {
    if (level === 'warning') this.on_warning({ message });
  }

  on_warning({ message }) {
    this.said = [...this.said, message].slice(-MOST_SAID);
  }

  on_control({ iteration, action }) {
    // A pause must not count for the speed.
    if (action === 'resume') this.paced = this.steps.length;
    this.say(`Iteration ${iteration}: the page asked to ${action}`);
  }

  on_saved({ iteration, what }) {
    this.say(`Iteration ${iteration}: ${what === 'checkpoint' ? 'checkpoint' : 'Gaussians'} saved`);
  }

  say(sentence) {
    this.said = [...this.said, sentence].slice(-MOST_SAID);
  }

  /** Returns the remaining seconds at the speed of the last steps. */
  secondsLeft() {
    const recent = this.steps.slice(Math.max(this.paced, this.steps.length - RECENT));
    if (recent.length < 2) return null;
    const [first, last] = [recent[0], recent.at(-1)];
    const pace = (last.time - first.time) / (last.iteration - first.iteration);
    return pace > 0 ? pace * (this.iterations - this.iteration) : null;
  }
}

/** Formats a duration. */
export function inWords(seconds) {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}
