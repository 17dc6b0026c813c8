// Buttons, lists and keys.

const byId = id => document.getElementById(id);

/** Degrees that the turntable moves at a press if the user prefers reduced motion. */
const STILL_TURN = 30;

export class Panel {
  /** `keys` maps additional keys to actions. */
  constructor(stage, pilot, scene, keys = {}) {
    Object.assign(this, { stage, pilot, scene, keys, degree: scene.sh_degree });
    this.order = scene.cameras.map((_, index) => index);
    this.current = 0;
    this.reducedMotion = window.matchMedia('(prefers-reduced-motion: reduce)');
    this.isFast = false;
    this.fillLists();
    this.connectButtons();
    this.connectKeys();
    byId('tools').hidden = false;
  }

  fillLists() {
    const { cameras, sh_degree: most } = this.scene;
    byId('cameras').hidden = cameras.length === 0;
    this.setOrder(this.order);
    byId('degrees').hidden = most === 0;
    byId('harmonics').append(...Array.from({ length: most + 1 }, (_, i) => new Option(i, i)));
    byId('harmonics').value = most;
  }

  /** Sets the listed cameras, by index, in this order. */
  setOrder(order) {
    this.order = order;
    byId('camera').replaceChildren(...order.map(index => new Option(this.nameOf(index), index)));
    byId('camera').value = this.current;
  }

  nameOf(index) {
    const { name, split, psnr } = this.scene.cameras[index];
    const measured = psnr ? `, ${psnr.toFixed(1)} dB` : '';
    return `${index + 1} of ${this.scene.cameras.length}, ${name}${split === 'held_out' ? ' (held out)' : ''}${measured}`;
  }

  connectButtons() {
    const actions = {
      previous: () => this.stepCamera(-1),
      next: () => this.stepCamera(1),
      home: () => this.home(),
      fit: () => this.pilot.fit(),
      turn: () => this.toggleTurn(),
      save: () => this.save(),
      help: () => this.toggleHelp(),
    };
    for (const [id, act] of Object.entries(actions)) byId(id).addEventListener('click', act);
    byId('camera').addEventListener('change', event => this.goTo(Number(event.target.value)));
    byId('harmonics').addEventListener('change', event => this.setDegree(Number(event.target.value)));
    this.reducedMotion.addEventListener('change', () => this.setTurning(false));
  }

  connectKeys() {
    const actions = {
      ',': () => this.stepCamera(-1),
      '.': () => this.stepCamera(1),
      Home: () => this.home(),
      f: () => this.pilot.fit(),
      h: () => this.setDegree((this.degree + this.scene.sh_degree) % (this.scene.sh_degree + 1)),
      r: () => this.toggleTurn(),
      g: () => this.save(),
      '?': () => this.toggleHelp(),
    };
    window.addEventListener('keydown', event => {
      this.isFast = event.shiftKey;
      const isForField = event.target.matches('select, input:not([type=checkbox])');
      // Space presses the focused element.
      const isForPart = event.key === ' ' && event.target.matches('button, summary, input');
      if (isForField || isForPart || event.ctrlKey || event.metaKey || event.altKey) return;
      const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
      const action = actions[key] ?? this.keys[key];
      if (byId('keys').open && event.key !== '?') return;
      if (action && !event.repeat) action();
      if (action || this.pilot.press(event.code)) event.preventDefault();
    });
    window.addEventListener('keyup', event => {
      this.isFast = event.shiftKey;
      this.pilot.release(event.code);
    });
    // Releases of keys outside the window are not reported.
    window.addEventListener('blur', () => this.pilot.releaseAll());
  }

  home() {
    this.setTurning(false);
    this.pilot.home();
    if (this.scene.cameras.length > 0) {
      this.choose(0);
    }
  }

  /** Marks the current camera. */
  choose(index) {
    this.current = index;
    byId('camera').value = index;
    this.onCamera?.(index);
  }

  stepCamera(step) {
    const count = this.order.length;
    if (count === 0) return;
    const at = this.order.indexOf(this.current);
    this.goTo(this.order[(at + step + count) % count]);
  }

  goTo(index) {
    this.setTurning(false);
    this.pilot.goTo(this.scene.cameras[index]);
    this.choose(index);
    this.say(`Camera ${this.nameOf(index)}`);
  }

  setDegree(degree) {
    if (this.scene.sh_degree === 0) return;
    this.degree = degree;
    byId('harmonics').value = degree;
    this.stage.setDegree(degree);
    this.say(`Harmonics to degree ${degree}`);
  }

  toggleTurn() {
    if (this.reducedMotion.matches) this.pilot.turn(STILL_TURN);
    else this.setTurning(!this.pilot.isTurning);
  }

  setTurning(isTurning) {
    this.pilot.isTurning = isTurning;
    byId('turn').setAttribute('aria-pressed', isTurning);
    this.stage.request();
  }

  toggleHelp() {
    const dialog = byId('keys');
    if (dialog.open) {
      dialog.close();
      return;
    }
    this.pilot.releaseAll();
    dialog.showModal();
  }

  async save() {
    try {
      const url = URL.createObjectURL(await this.stage.picture());
      const link = document.createElement('a');
      link.href = url;
      link.download = `${this.scene.title.replace(/[^\p{L}\p{N}._-]+/gu, '_') || 'splat'}.png`;
      link.click();
      // The browser reads the link after this task.
      setTimeout(() => URL.revokeObjectURL(url), 60_000);
      this.say('Picture saved');
    } catch (error) {
      this.say(`The picture was not saved: ${error.message}`);
    }
  }

  /** Shows and announces a sentence for a while. */
  say(text) {
    byId('status').textContent = text;
    clearTimeout(this.saying);
    this.saying = setTimeout(() => { byId('status').textContent = ''; }, 4000);
  }
}
