// Curves over iterations, each with a table of its figures.

const SVG = 'http://www.w3.org/2000/svg';
const [WIDTH, HEIGHT] = [300, 72];

/** Margin around the curves, so that ends are not clipped. */
const MARGIN = 4;

/** Largest number of points per curve, and of rows per table. */
const MOST_POINTS = 300;
const ROWS = 12;

const drawn = (name, attributes) => {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
};

const made = (name, text = '') => Object.assign(document.createElement(name), { textContent: text });

/** Returns at most about `most` points, including the last. */
function some(points, most) {
  const stride = Math.ceil(points.length / most);
  return points.filter((_, i) => (points.length - 1 - i) % stride === 0);
}

export class Chart {
  /** `series` are the names of the curves, `digits` the decimals of figures. */
  constructor(parent, title, { unit = '', digits = 2, series }) {
    Object.assign(this, { title, unit, digits, series });
    this.figure = made('figure');
    this.caption = made('figcaption', title);
    this.svg = drawn('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img' });
    this.curves = series.map((_, i) => drawn('polyline', { class: `curve curve-${i}` }));
    this.limit = drawn('line', { class: 'limit', x1: 0, x2: WIDTH, visibility: 'hidden' });
    this.svg.append(...this.curves, this.limit);
    this.details = made('details');
    this.details.append(made('summary', 'Figures'), made('table'));
    this.details.addEventListener('toggle', () => this.tabulate());
    this.figure.append(this.caption, this.svg, this.details);
    this.figure.hidden = true;
    parent.append(this.figure);
  }

  format(value) {
    return `${value.toLocaleString('en', { maximumFractionDigits: this.digits })}${this.unit}`;
  }

  /** `lists` has the points of each curve, `{iteration, value}`; `limit` is a value that must not be exceeded. */
  update(lists, limit = null) {
    this.lists = lists.map(points => points.filter(({ value }) => Number.isFinite(value)));
    const all = this.lists.flat();
    this.figure.hidden = all.length === 0;
    if (all.length === 0) return;
    const values = all.map(({ value }) => value).concat(limit ?? []);
    const [low, high] = values.reduce(([low, high], v) => [Math.min(low, v), Math.max(high, v)], [Infinity, -Infinity]);
    const first = Math.min(...this.lists.filter(list => list.length).map(list => list[0].iteration));
    const last = Math.max(...this.lists.filter(list => list.length).map(list => list.at(-1).iteration));
    const x = iteration => MARGIN + (last > first ? (iteration - first) / (last - first) : 0.5) * (WIDTH - 2 * MARGIN);
    const y = value => HEIGHT - MARGIN - (high > low ? (value - low) / (high - low) : 0.5) * (HEIGHT - 2 * MARGIN);
    this.lists.forEach((points, i) => {
      const line = some(points, MOST_POINTS).map(({ iteration, value }) => [x(iteration), y(value)]);
      // The round caps of a zero-length line make a dot.
      const isDot = line.length === 1;
      this.curves[i].setAttribute('class', `curve curve-${i}${isDot ? ' dot' : ''}`);
      if (isDot) line.push(line[0]);
      this.curves[i].setAttribute('points', line.map(at => at.map(part => part.toFixed(1)).join()).join(' '));
    });
    this.limit.setAttribute('visibility', limit === null ? 'hidden' : 'visible');
    if (limit !== null) for (const end of ['y1', 'y2']) this.limit.setAttribute(end, y(limit));
    const newest = this.lists.map((points, i) => points.length && `${this.series[i]}${i > 0 ? ' (dashed)' : ''} ${this.format(points.at(-1).value)}`);
    const budget = limit === null ? [] : [`budget (red) ${this.format(limit)}`];
    this.caption.textContent = `${this.title}: ${[...newest.filter(Boolean), ...budget].join(', ')}`;
    this.svg.setAttribute('aria-label', `${this.caption.textContent}; from ${this.format(low)} to ${this.format(high)}`);
    this.tabulate();
  }

  /** Fills the table while it is open. */
  tabulate() {
    if (!this.details.open || !this.lists) return;
    const head = made('tr');
    head.append(...['iteration', ...this.series].map(name => made('th', name)));
    const iterations = [...new Set(this.lists.flat().map(({ iteration }) => iteration))].sort((a, b) => a - b);
    const rows = some(iterations, ROWS).map(iteration => {
      const row = made('tr');
      const valueOf = points => points.find(point => point.iteration === iteration)?.value;
      const cells = this.lists.map(valueOf).map(value => made('td', value === undefined ? '' : this.format(value)));
      row.append(made('td', iteration.toLocaleString('en')), ...cells);
      return row;
    });
    this.details.querySelector('table').replaceChildren(head, ...rows);
  }
}
