// Figures in the words of people, and elements made without HTML text.

const THIN = "\u202f";

export function count(number) {
  return String(Math.round(number)).replace(/\B(?=(\d{3})+$)/g, THIN);
}

export function bytes(number) {
  let value = number;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (value < 1024) return unit === "B" ? `${Math.round(value)} B` : `${value.toFixed(1)} ${unit}`;
    value /= 1024;
  }
  return `${value.toFixed(1)} TiB`;
}

// At most two units: 3700 as "1 h 1 min".
export function duration(seconds) {
  const [d, h, m] = [seconds / 86400, (seconds / 3600) % 24, (seconds / 60) % 60].map(Math.floor);
  if (d) return `${d} d ${h} h`;
  if (h) return `${h} h ${m} min`;
  return m ? `${m} min` : `${Math.floor(seconds)} s`;
}

export function short(number) {
  const size = Math.abs(number);
  if (size === 0) return "0";
  return size < 100 ? number.toFixed(size < 10 ? 2 : 1) : count(number);
}

export function milliseconds(number) {
  return number < 10000 ? `${short(number)} ms` : `${short(number / 1000)} s`;
}

// The times of the log are UTC, so these are.
export function clock(unixSeconds, seconds = true) {
  return new Date(unixSeconds * 1000).toISOString().slice(11, seconds ? 19 : 16);
}

export function moment(rfc3339) {
  return String(rfc3339 ?? "").replace("T", " ").replace(/(\.\d+)?Z$/, "");
}

export function plural(number, one, many = one + "s") {
  return `${count(number)} ${number === 1 ? one : many}`;
}

const KINDS = {
  count,
  bytes,
  duration,
  seconds: (value) => `${value.toFixed(1)} s`,
  milliseconds,
  "per-second": (value) => `${short(value)}/s`,
  text: String,
};

export function shown(kind, value) {
  const write = KINDS[kind];
  if (write) return write(value);
  const [yes, no] = kind.split("/");
  return value ? yes : no;
}

export const byId = (id) => document.getElementById(id);

// Makes an element. A name that begins with "on" is a listener, a boolean is there or not.
export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (typeof value === "boolean") element.toggleAttribute(name, value);
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// A table whose rows become blocks on narrow screens: each cell knows its column, and the roles stay
// although the cells are no longer laid out as a table.
export function table(caption, columns, bodies, attributes = {}) {
  const heads = columns.map((text) => el("th", { scope: "col", role: "columnheader" }, text));
  const cell = (content, at) =>
    el("td", { role: "cell", "data-label": columns[at] }, ...[content].flat());
  const row = (cells) => el("tr", { role: "row" }, ...cells.map(cell));
  return el("table", { role: "table", ...attributes },
    el("caption", {}, caption),
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...heads)),
    ...bodies.map((rows) => el("tbody", { role: "rowgroup" }, ...rows.map(row))));
}

export function button(text, onclick, attributes = {}) {
  return el("button", { type: "button", onclick, ...attributes }, text);
}

// Writes a text only where it differs, so that a screen reader is not told it again.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
