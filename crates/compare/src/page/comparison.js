// The plots of a comparison, drawn from the figures that the page carries.

import { byId, count, el, milliseconds } from "./format.js";
import { Plots, multiples } from "./plot.js";

const { rates } = JSON.parse(byId("figures").textContent);

// A place on the axis of percentiles is a number of nines: 1 is 90 %, 2 is 99 %.
const percent = (nines) => `${+(100 - 100 * 10 ** -nines).toFixed(nines < 1 ? 0 : 2)} %`;
const PERCENTILES = { about: "by percentile", heading: "Percentile", write: percent, label: percent,
  ticks: () => [0, 1, 2, 3, 4], span: 0, gap: Infinity, last: "at the highest percentile", rows: (samples) => samples };
const SECONDS = { about: "by second", heading: "Second", write: (at) => `${at} s`, label: (at) => `${at} s`,
  ticks: (...range) => multiples([1, 2, 5, 10, 20, 60, 120, 300, 600, 1800, 3600, 7200], ...range),
  span: 0, gap: Infinity, last: "at the end", rows: (samples) => samples };

// One series for each mode, of a list of values in the order of the modes.
function plot(id, rate, title, unit, of, more) {
  const series = rate.modes.map((name, at) => ({ name, of: (sample) => of(sample)[at] }));
  return { id: `${id}-${rates.indexOf(rate)}`, title: `${title} at ${rate.rate}`, unit, series, least: 1, ...more };
}

const LATENCY = { write: milliseconds, log: true };
for (const rate of rates) {
  const percentiles = [plot("latency", rate, "Latency", "logarithmic", (sample) => sample.ms, LATENCY)];
  new Plots(byId("percentiles"), percentiles, PERCENTILES).show(rate.percentiles);
  const seconds = [
    plot("p99", rate, "p99", "of each second's deliveries", (sample) => sample.p99_ms, LATENCY),
    plot("p50", rate, "p50", "of each second's deliveries", (sample) => sample.p50_ms, LATENCY),
    plot("backlog", rate, "Backlog", "events written and not yet delivered", (sample) => sample.backlog, { write: count }),
  ];
  const place = el("div", { class: "plots" });
  byId("seconds").append(place);
  new Plots(place, seconds, SECONDS).show(rate.seconds);
}
