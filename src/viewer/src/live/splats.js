// The newest Gaussians of a model folder.

const byId = id => document.getElementById(id);

/** Shows newer Gaussians as they arrive. */
export class Splats {
  /** `none` is the text while there are none. */
  constructor(api, stage, compare, none, say) {
    Object.assign(this, { api, stage, compare, none, say, generation: 0, isBusy: false });
  }

  /** Shows the newest Gaussians of the server. Versions that arrive during loading are picked up by a later call. */
  async take(newest) {
    if (!newest && this.generation === 0) byId('count').textContent = this.none;
    if (!newest || newest.generation === this.generation || this.isBusy || !this.stage.show) return;
    this.isBusy = true;
    if (this.generation === 0) byId('count').textContent = `Loading the Gaussians of iteration ${newest.iteration.toLocaleString('en')}`;
    try {
      const shown = await this.stage.show(await this.api.bytes(`splats/${newest.generation}`));
      this.generation = newest.generation;
      Object.assign(document.body.dataset, { splats: shown, generation: newest.generation, shown: newest.iteration });
      const some = newest.live ? ', as the run shows them' : '';
      byId('count').textContent = `${shown.toLocaleString('en')} Gaussians of iteration ${newest.iteration.toLocaleString('en')}${some}`;
      this.compare.redraw();
      await this.stage.inOrder;
    } catch (error) {
      this.say(error.message);
    } finally {
      this.isBusy = false;
    }
  }
}
