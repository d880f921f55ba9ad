// The history as plots: drawn as SVG in the pixels of the screen, read with pointer or keys, and as a table.
//
// One time is under the cursor in all plots at once, because what happened to one figure is explained by
// the others.

import { bytes, clock, count, duration, el, milliseconds, say, short, svg } from "./format.js";

const HOUR = 3600;
// A relay that has just started has so much of the time axis at least.
const SPAN_MIN = 600;
const HEIGHT = 168;
const PAD = { left: 64, right: 10, top: 10, bottom: 24 };
const TABLE_EVERY = 60;

const PLOTS = [
  { id: "throughput", title: "Throughput", unit: "events/s", write: (v) => `${short(v)}/s`, least: 1, series: [
    { name: "published", of: (s) => s.published_per_second },
    { name: "dead-lettered", of: (s) => s.dead_lettered_per_second }] },
  { id: "latency", title: "Latency, commit to confirm", unit: "logarithmic", write: milliseconds, least: 1, log: true, series: [
    { name: "p50", of: (s) => s.p50_ms },
    { name: "p99", of: (s) => s.p99_ms }] },
  { id: "lag", title: "Lag", unit: "bytes of WAL", write: bytes, least: 1024, binary: true, series: [
    { name: "bytes", of: (s) => s.lag_bytes }],
    more: (s) => s.lag_seconds === null || s.lag_seconds === undefined ? "" : ` · ${s.lag_seconds.toFixed(1)} s` },
  { id: "in-flight", title: "In flight", unit: "events", write: count, least: 4, series: [
    { name: "events", of: (s) => s.in_flight },
    { name: "limit", of: (s) => s.in_flight_limit }] },
];

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

export class Plots {
  constructor(place, note, toneOf) {
    this.note = note;
    this.toneOf = toneOf;
    this.samples = [];
    this.interval = 5;
    this.cursor = null;
    this.plots = PLOTS.map((spec) => new Plot(spec, this));
    place.append(...this.plots.map((plot) => plot.figure));
    new ResizeObserver(() => this.draw()).observe(place);
  }

  // Adds the samples of an answer of /history that are new.
  add(history) {
    const fresh = history.samples.filter((sample) => sample.at > this.end);
    if (!fresh.length) return;
    this.interval = history.interval_seconds;
    const samples = [...this.samples, ...fresh];
    this.samples = samples.filter((sample) => sample.at >= fresh.at(-1).at - HOUR);
    this.draw();
  }

  get end() { return this.samples.at(-1)?.at ?? 0; }
  get span() { return Math.min(Math.max(this.end - (this.samples[0]?.at ?? 0), SPAN_MIN), HOUR); }

  draw() {
    const text = this.samples.length < 2 ? "The first samples come within some seconds."
      : `Times are UTC, a sample every ${this.interval} s. Shaded: not ready.`;
    say(this.note, text);
    this.plots.forEach((plot) => plot.draw());
  }

  // Puts the cursor on the sample nearest to a time; null takes it away.
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

class Plot {
  constructor(spec, all) {
    Object.assign(this, { spec, all });
    this.svg = svg("svg", { class: "plot", tabindex: 0, role: "slider", "aria-label": `${spec.title}, last hour`,
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
    const greatest = Math.max(least, ...values);
    const steps = log ? decades(Math.min(greatest, ...values.filter((value) => value > 0)), greatest) : ticks(greatest, binary);
    [this.low, this.top] = [steps[0], steps.at(-1)];
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    const right = this.width - PAD.right;
    const rows = steps.flatMap((value, at) => {
      const y = Math.round(this.y(value)) + 0.5;
      return [svg("line", { class: at ? "grid" : "axis", x1: PAD.left, x2: right, y1: y, y2: y }),
        svg("text", { x: PAD.left - 6, y: y + 4, "text-anchor": "end" }, write(value).replace("/s", ""))];
    });
    this.cursor = svg("g", { class: "cursor" });
    this.svg.replaceChildren(...this.shades(), ...rows, ...this.times(),
      ...series.map((one, at) => svg("path", { class: `line series-${at}`, d: this.path(one.of) })), this.cursor);
    this.drawCursor();
    this.drawTable();
  }

  times() {
    if (!this.all.end) return [];
    const { end, span } = this.all;
    const step = [60, 120, 300, 600, 1200].find((seconds) => span / seconds <= this.width / 75);
    const first = Math.ceil((end - span) / step) * step;
    const all = Array.from({ length: Math.floor((end - first) / step) + 1 }, (_, at) => first + at * step);
    return all.map((at) =>
      svg("text", { x: Math.min(Math.max(this.x(at), PAD.left + 12), this.width - PAD.right - 14), y: HEIGHT - 6,
        "text-anchor": "middle" }, clock(at, false)));
  }

  // A line ends where a value is missing, or where the relay did not run.
  path(of) {
    let [text, last] = ["", null];
    for (const sample of this.all.samples) {
      const value = of(sample);
      if (value === null || value === undefined) { last = null; continue; }
      const joined = last !== null && sample.at - last <= 3 * this.all.interval;
      const [x, y] = [this.x(sample.at).toFixed(1), this.y(value).toFixed(1)];
      text += joined ? `L${x} ${y}` : `M${x} ${y}h.01`;
      last = sample.at;
    }
    return text;
  }

  shades() {
    const width = (this.all.interval / this.all.span) * (this.width - PAD.left - PAD.right);
    const bad = this.all.samples.filter((sample) => this.all.toneOf(sample.state) !== "good");
    return bad.map((sample) => svg("rect", { class: "shade", x: (this.x(sample.at) - width).toFixed(1), y: PAD.top,
      width: (width + 0.5).toFixed(1), height: HEIGHT - PAD.top - PAD.bottom }));
  }

  values(sample) {
    const { series, write, more } = this.spec;
    const one = ({ name, of }) => `${name} ${of(sample) === null ? "–" : write(of(sample) ?? 0)}`;
    return series.map(one).join(" · ") + (more?.(sample) ?? "");
  }

  drawCursor() {
    const { cursor, samples } = this.all;
    const sample = cursor ?? samples.at(-1);
    const text = sample ? `${cursor ? clock(sample.at) : "now"}: ${this.values(sample)}, ${sample.state}` : "no samples yet";
    say(this.readout, text);
    this.svg.setAttribute("aria-valuemax", Math.max(samples.length - 1, 0));
    this.svg.setAttribute("aria-valuenow", sample ? samples.indexOf(sample) : 0);
    this.svg.setAttribute("aria-valuetext", text);
    const x = cursor && Math.round(this.x(cursor.at)) + 0.5;
    const dots = cursor ? this.spec.series.map(({ of }, at) => of(cursor) === null ? null :
      svg("circle", { class: `series-${at}`, cx: x, cy: this.y(of(cursor) ?? 0), r: 3.5 })) : [];
    const line = cursor ? [svg("line", { x1: x, x2: x, y1: PAD.top, y2: HEIGHT - PAD.bottom })] : [];
    this.cursor?.replaceChildren(...line, ...dots.filter(Boolean));
  }

  // One row a minute, newest first; made only while it is open.
  drawTable() {
    if (!this.details.open) return this.table.replaceChildren();
    const { series, title, write } = this.spec;
    const minutes = new Map(this.all.samples.map((sample) => [Math.floor(sample.at / TABLE_EVERY), sample]));
    const cell = (value) => el("td", {}, value === null || value === undefined ? "–" : write(value));
    const rows = [...minutes.values()].reverse().map((sample) =>
      el("tr", {}, el("th", { scope: "row" }, clock(sample.at)), ...series.map(({ of }) => cell(of(sample))),
        el("td", {}, sample.state)));
    const heads = ["Time (UTC)", ...series.map(({ name }) => name), "State"];
    this.table.replaceChildren(el("table", { class: "plain" }, el("caption", {}, `${title}, the last sample of each minute of ${duration(HOUR)}`),
      el("thead", {}, el("tr", {}, ...heads.map((text) => el("th", { scope: "col" }, text)))), el("tbody", {}, ...rows)));
  }
}
