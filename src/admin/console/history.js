// The last hour of the relay as plots.

import { bytes, clock, count, milliseconds, say, short } from "./format.js";
import { Plots, multiples } from "./plot.js";

const HOUR = 3600;
// A relay that has just started has so much of the time axis at least.
const SPAN_MIN = 600;
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

// The last sample of each minute, newest first.
function minutes(samples) {
  return [...new Map(samples.map((sample) => [Math.floor(sample.at / TABLE_EVERY), sample])).values()].reverse();
}

export class History {
  constructor(place, note, toneOf) {
    this.note = note;
    const state = { heading: "State", of: (sample) => sample.state, bad: (sample) => toneOf(sample.state) !== "good" };
    this.plots = new Plots(place, PLOTS, { about: "last hour", heading: "Time (UTC)", write: clock,
      label: (at) => clock(at, false), ticks: (...range) => multiples([60, 120, 300, 600, 1200], ...range),
      span: SPAN_MIN, gap: 15, last: "now", rows: minutes, state });
    say(note, "The first samples come within some seconds.");
  }

  // Adds the samples of an answer of /history that are new.
  add(history) {
    const fresh = history.samples.filter((sample) => sample.at > this.plots.end);
    if (!fresh.length) return;
    // A line does not go on where the relay did not run.
    this.plots.axis.gap = 3 * history.interval_seconds;
    this.plots.show([...this.plots.samples, ...fresh].filter((sample) => sample.at >= fresh.at(-1).at - HOUR));
    if (this.plots.samples.length > 1) say(this.note, `Times are UTC, a sample every ${history.interval_seconds} s. Shaded: not ready.`);
  }
}
