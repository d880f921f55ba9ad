// "Where is my event?": asks /api/find, and shows what it found and where it could not look.

import { get, Refused, textOf } from "./api.js";
import { byId, el, moment } from "./format.js";

const STATES = {
  published: "is published", dead_lettered: "is a dead letter", in_flight: "is in flight",
  waiting: "waits to be read", unknown: "is not known here",
};

// Only the answer to the last question is shown.
let asked = 0;

export function forgetFound() {
  asked += 1;
  byId("found").replaceChildren();
}

export function startFind() {
  byId("find-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const query = { [byId("find-by").value]: byId("find-value").value };
    const since = byId("find-since").value.trim();
    if (since) query.since = since;
    const turn = ++asked;
    const show = (...shown) => turn === asked && byId("found").replaceChildren(...shown);
    show(el("p", { class: "dim" }, "Searching…"));
    try {
      show(...answer(await get("/api/find", query)));
    } catch (error) {
      const isOld = error instanceof Refused && error.status === 404 && error.code === "api.not-here";
      show(el("p", { class: "error" }, isOld ? "This version cannot search." : textOf(error)));
    }
  });
}

function answer({ events = [], not_searched: gaps = [] }) {
  const list = events.length ? events.map(one) : [el("p", {}, "Nothing was found.")];
  if (!gaps.length) return list;
  const items = gaps.map((text) => el("li", {}, text));
  return [...list, el("div", { class: "note" }, el("p", {}, "Not searched:"), el("ul", {}, ...items))];
}

function one(event) {
  const { row, slot_passed: passed } = event;
  const facts = [
    ["Key", event.key],
    ["Row", row && `${row.table}${row.status ? `, status ${row.status}` : ""}${row.failure_reason ? ` (${row.failure_reason})` : ""}${row.created_at ? `, created ${moment(row.created_at)} UTC` : ""}`],
    ["Committed", event.commit_ts ? `${moment(event.commit_ts)} UTC` : row?.committed_at && `${moment(row.committed_at)} UTC`],
    ["Commit LSN", event.lsn],
    ["Slot", passed === true ? "has passed it" : passed === false ? "has not passed it" : null],
    ...(event.published ?? []).map((it) => ["Published", place(it)]),
    ...(event.dead_letters ?? []).map((it) => ["Dead letter",
      `${it.state}, ${it.error_class}: ${it.error_msg} (attempts ${it.attempts}, ${moment(it.failed_at)} UTC)`]),
    ["Trace", event.trace_id],
    ["Why", (event.text ?? []).find((line) => line.startsWith("state: "))?.slice("state: ".length)],
  ];
  const given = facts.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false);
  return el("article", { class: "panel found" },
    el("h3", {}, el("code", {}, event.id), ` ${STATES[event.state] ?? event.state}`),
    el("dl", { class: "facts" }, ...given.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, String(value))])));
}

function place({ topic, partition, offset, timestamp }) {
  const has = (value) => value !== null && value !== undefined;
  return [topic, has(partition) && `partition ${partition}`, has(offset) && `offset ${offset}`,
    timestamp && `${moment(timestamp)} UTC`].filter(Boolean).join(", ");
}
