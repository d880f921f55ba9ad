// Figures along an axis as plots: drawn as SVG in the pixels of the screen, read with pointer or keys, and as a table.
//
// One place of the axis is under the cursor in all plots of a group at once, because what happened to one figure
// is explained by the others.

import { el, say, svg } from "./format.js";

const HEIGHT = 168;
const PAD = { left: 64, right: 10, top: 10, bottom: 24 };

// Round steps from 0 on: 1, 2, 2.5 or 5 times a power of ten, or a power of two for bytes.
export function ticks(top, binary) {
  const rough = top / 4;
  const base = binary ? 2 ** Math.ceil(Math.log2(rough)) : 10 ** Math.floor(Math.log10(rough));
  const step = binary ? base : base * [1, 2, 2.5, 5, 10].find((times) => times * base >= rough);
  const steps = Math.ceil(top / step - 1e-9);
  return Array.from({ length: steps + 1 }, (_, at) => at * step);
}

// Powers of ten around the values.
export function decades(least, greatest) {
  const [from, to] = [Math.floor(Math.log10(least)), Math.max(Math.ceil(Math.log10(greatest)), Math.floor(Math.log10(least)) + 1)];
  return Array.from({ length: to - from + 1 }, (_, at) => 10 ** (from + at));
}

// Multiples of the first of the steps that leaves room for a label at each.
export function multiples(steps, from, to, width) {
  const step = steps.find((one) => (to - from) / one <= width / 75) ?? steps.at(-1);
  const first = Math.ceil(from / step);
  return Array.from({ length: Math.floor(to / step) - first + 1 }, (_, at) => (first + at) * step);
}

// Plots of the same samples, each with its place `at` on the axis. The axis has
//   about       what it shows, in words            heading   of its column in the tables
//   write(at)   a place as text                    label(at) the same as short as a tick needs it
//   ticks(from, to, width)                         span      its least length; 0 for that of the samples
//   gap         samples further apart than this are not joined
//   last        how the last sample is called when there is no cursor
//   rows(samples)   those that the tables have
//   state       optional: heading, of(sample), and bad(sample), which is shaded
export class Plots {
  constructor(place, specs, axis) {
    Object.assign(this, { axis, samples: [], cursor: null });
    this.plots = specs.map((spec) => new Plot(spec, this));
    place.append(...this.plots.map((plot) => plot.figure));
    new ResizeObserver(() => this.draw()).observe(place);
  }

  get end() { return this.samples.at(-1)?.at ?? 0; }
  get span() { return Math.max(this.end - (this.samples[0]?.at ?? 0), this.axis.span) || 1; }

  show(samples) {
    this.samples = samples;
    this.draw();
  }

  draw() { this.plots.forEach((plot) => plot.draw()); }

  // Puts the cursor on the sample nearest to a place; null takes it away.
  point(at) {
    let nearest = null;
    for (const sample of at === null ? [] : this.samples) {
      if (!nearest || Math.abs(sample.at - at) < Math.abs(nearest.at - at)) nearest = sample;
    }
    this.cursor = nearest;
    this.plots.forEach((plot) => plot.drawCursor());
  }

  move(steps) {
    const from = this.cursor ? this.samples.indexOf(this.cursor) : this.samples.length - 1;
    const to = Math.min(Math.max(from + steps, 0), this.samples.length - 1);
    if (this.samples[to]) this.point(this.samples[to].at);
  }
}

const isMissing = (value) => value === null || value === undefined;

// One plot. Its spec has id, title, unit, write(value), the least top of its scale, whether that is logarithmic or
// of powers of two, and its series, each with a name and of(sample); more(sample) is added to what is read.
class Plot {
  constructor(spec, all) {
    Object.assign(this, { spec, all });
    this.svg = svg("svg", { class: "plot", tabindex: 0, role: "slider", "aria-label": `${spec.title}, ${all.axis.about}`,
      "aria-valuemin": 0, "aria-orientation": "horizontal",
      onpointermove: (event) => this.hover(event), onpointerleave: () => all.point(null),
      onkeydown: (event) => this.key(event), onblur: () => all.point(null) });
    this.readout = el("p", { class: "readout" });
    const legend = spec.series.map((one, at) =>
      el("span", { class: `key series-${at}` }, svg("svg", { width: 22, height: 8, "aria-hidden": "true" },
        svg("line", { x1: 0, x2: 22, y1: 4, y2: 4 })), one.name));
    this.table = el("div", {});
    this.details = el("details", { ontoggle: () => this.drawTable() }, el("summary", {}, "As a table"), this.table);
    this.figure = el("figure", { id: `plot-${spec.id}`, class: "panel" },
      el("figcaption", {}, el("h3", {}, spec.title, el("span", { class: "dim" }, ` ${spec.unit}`)), ...legend),
      this.readout, this.svg, this.details);
  }

  hover(event) {
    const box = this.svg.getBoundingClientRect();
    const share = (event.clientX - box.left - PAD.left) / (box.width - PAD.left - PAD.right);
    this.all.point(this.all.end - (1 - share) * this.all.span);
  }

  key(event) {
    const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageUp: 12, PageDown: -12,
      Home: -1e6, End: 1e6 }[event.key];
    if (event.key === "Escape") this.all.point(null);
    if (!steps) return;
    event.preventDefault();
    this.all.move(steps);
  }

  x(at) { return PAD.left + (1 - (this.all.end - at) / this.all.span) * (this.width - PAD.left - PAD.right); }
  y(value) {
    const share = this.spec.log ? Math.log(Math.max(value, this.low) / this.low) / Math.log(this.top / this.low) : value / this.top;
    return HEIGHT - PAD.bottom - share * (HEIGHT - PAD.top - PAD.bottom);
  }

  draw() {
    const { series, least, binary, log, write } = this.spec;
    this.width = Math.max(this.svg.clientWidth, 200);
    const values = this.all.samples.flatMap((s) => series.map((one) => one.of(s) ?? 0));
    const greatest = values.reduce((most, value) => Math.max(most, value), least);
    const smallest = values.reduce((least, value) => value > 0 ? Math.min(least, value) : least, greatest);
    const steps = log ? decades(smallest, greatest) : ticks(greatest, binary);
    [this.low, this.top] = [steps[0], steps.at(-1)];
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    const right = this.width - PAD.right;
    const rows = steps.flatMap((value, at) => {
      const y = Math.round(this.y(value)) + 0.5;
      return [svg("line", { class: at ? "grid" : "axis", x1: PAD.left, x2: right, y1: y, y2: y }),
        svg("text", { x: PAD.left - 6, y: y + 4, "text-anchor": "end" }, write(value).replace("/s", ""))];
    });
    this.cursor = svg("g", { class: "cursor" });
    this.svg.replaceChildren(...this.shades(), ...rows, ...this.places(),
      ...series.map((one, at) => svg("path", { class: `line series-${at}`, d: this.path(one.of) })), this.cursor);
    this.drawCursor();
    this.drawTable();
  }

  places() {
    const { samples, end, span, axis } = this.all;
    const all = samples.length ? axis.ticks(end - span, end, this.width) : [];
    return all.map((at) =>
      svg("text", { x: Math.min(Math.max(this.x(at), PAD.left + 12), this.width - PAD.right - 14), y: HEIGHT - 6,
        "text-anchor": "middle" }, axis.label(at)));
  }

  // A line ends where values are missing for longer than the gap of the axis.
  path(of) {
    let [text, last] = ["", null];
    for (const sample of this.all.samples) {
      const value = of(sample);
      if (isMissing(value)) continue;
      const joined = last !== null && sample.at - last <= this.all.axis.gap;
      const [x, y] = [this.x(sample.at).toFixed(1), this.y(value).toFixed(1)];
      text += joined ? `L${x} ${y}` : `M${x} ${y}h.01`;
      last = sample.at;
    }
    return text;
  }

  shades() {
    const { state, gap } = this.all.axis;
    const width = (gap / 3 / this.all.span) * (this.width - PAD.left - PAD.right);
    const bad = state ? this.all.samples.filter(state.bad) : [];
    return bad.map((sample) => svg("rect", { class: "shade", x: (this.x(sample.at) - width).toFixed(1), y: PAD.top,
      width: (width + 0.5).toFixed(1), height: HEIGHT - PAD.top - PAD.bottom }));
  }

  read(sample) {
    const { series, write, more } = this.spec;
    const { state, write: place, last } = this.all.axis;
    const one = ({ name, of }) => `${name} ${isMissing(of(sample)) ? "–" : write(of(sample))}`;
    const at = this.all.cursor ? place(sample.at) : last;
    return `${at}: ${series.map(one).join(" · ")}${more?.(sample) ?? ""}${state ? `, ${state.of(sample)}` : ""}`;
  }

  drawCursor() {
    const { cursor, samples } = this.all;
    const sample = cursor ?? samples.at(-1);
    const text = sample ? this.read(sample) : "no samples yet";
    say(this.readout, text);
    this.svg.setAttribute("aria-valuemax", Math.max(samples.length - 1, 0));
    this.svg.setAttribute("aria-valuenow", sample ? samples.indexOf(sample) : 0);
    this.svg.setAttribute("aria-valuetext", text);
    const x = cursor && Math.round(this.x(cursor.at)) + 0.5;
    const dots = cursor ? this.spec.series.map(({ of }, at) => isMissing(of(cursor)) ? null :
      svg("circle", { class: `series-${at}`, cx: x, cy: this.y(of(cursor)), r: 3.5 })) : [];
    const line = cursor ? [svg("line", { x1: x, x2: x, y1: PAD.top, y2: HEIGHT - PAD.bottom })] : [];
    this.cursor?.replaceChildren(...line, ...dots.filter(Boolean));
  }

  // Made only while it is open.
  drawTable() {
    if (!this.details.open) return this.table.replaceChildren();
    const { series, title, write } = this.spec;
    const { axis, samples } = this.all;
    const cell = (value) => el("td", {}, isMissing(value) ? "–" : write(value));
    const state = (sample) => axis.state ? [el("td", {}, axis.state.of(sample))] : [];
    const rows = axis.rows(samples).map((sample) => el("tr", {}, el("th", { scope: "row" }, axis.write(sample.at)),
      ...series.map(({ of }) => cell(of(sample))), ...state(sample)));
    const heads = [axis.heading, ...series.map(({ name }) => name), ...(axis.state ? [axis.state.heading] : [])];
    this.table.replaceChildren(el("table", { class: "plain" }, el("caption", {}, `${title}, ${axis.about}`),
      el("thead", {}, el("tr", {}, ...heads.map((text) => el("th", { scope: "col" }, text)))), el("tbody", {}, ...rows)));
  }
}
