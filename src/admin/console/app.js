// Starts the console: fills page.html with the status of the relay, and keeps it up to date.

import { session } from "./api.js";
import { startLetters } from "./dead_letters.js";
import { forgetFound, startFind } from "./find.js";
import { byId, clock, duration, el, say, shown } from "./format.js";
import { History } from "./history.js";
import { follow } from "./live.js";

const TONES = { starting: "warn", connecting: "warn", standby: "warn", draining: "warn" };
const SIGNS = { good: "✓", warn: "…", bad: "!" };

export function toneOf(state, ready = true) {
  if ((state === "streaming" || state === "polling") && ready) return "good";
  return TONES[state] ?? "bad";
}

const figures = [...document.querySelectorAll("[data-path]")];
const conditional = [...document.querySelectorAll("[data-when]")];
const letters = startLetters();
let announced = null;

function valueAt(document, pointer) {
  return pointer.split("/").slice(1).reduce((value, name) => value?.[name], document) ?? null;
}

function showStatus(status) {
  for (const figure of figures) {
    const { path, kind, absent = "not known" } = figure.dataset;
    const value = valueAt(status, path);
    say(figure, value === null ? absent : shown(kind, value));
    figure.classList.toggle("absent", value === null);
  }
  const conditions = [status.mode, status.has_token ? "api-open" : "api-closed"];
  for (const part of conditional) part.hidden = !conditions.includes(part.dataset.when);
  showState(status);
  letters.showStatus(status);
}

function showState(status) {
  const tone = toneOf(status.state, status.ready);
  const word = status.state.replaceAll("_", " ");
  byId("state").className = `state ${tone}`;
  say(byId("state-sign"), SIGNS[tone]);
  say(byId("state-word"), word);
  say(byId("state-since"), `for ${duration(status.since_seconds)}, since ${status.since.slice(11, 19)} UTC`);
  const reasons = status.reasons?.length ? status.reasons : [status.reason];
  const texts = reasons.map((reason) => reason?.text);
  const notices = [...texts, status.slot?.pinned_by?.text, status.slot?.idle_timeout?.text, status.note].filter(Boolean);
  const list = byId("notices");
  if (notices.join("\n") !== [...list.children].map((item) => item.textContent).join("\n")) {
    list.replaceChildren(...notices.map((text) => el("li", {}, text)));
  }
  list.hidden = notices.length === 0;
  document.title = tone === "good" ? "walrelay" : `${SIGNS[tone]} ${word} – walrelay`;
  // The state of a page that was just opened is no change.
  if (announced !== null && word !== announced) say(byId("announcer"), `State: ${word}. ${texts[0] ?? ""}`);
  announced = word;
}

function showLink(link, heardAt) {
  const lost = link === "lost";
  byId("link").className = `link ${link}`;
  byId("link").setAttribute("role", lost ? "alert" : "status");
  say(byId("link"), lost ? `connection lost since ${clock(heardAt / 1000)} UTC` : "live");
  document.body.classList.toggle("stale", lost);
}

function showSession() {
  const isIn = session.token !== null;
  byId("login").hidden = isIn;
  byId("logout").hidden = !isIn;
  byId("find-form").hidden = !isIn;
  byId("find-closed").hidden = isIn;
  letters.show(isIn);
  if (!isIn) forgetFound();
}

for (const id of ["history", "dead-letters", "find"]) byId(id).hidden = false;
const plots = new History(byId("plots"), byId("history-note"), toneOf);
startFind();
letters.onSession = showSession;
showSession();
follow({
  status: showStatus,
  history: (history) => plots.add(history),
  link: showLink,
});
