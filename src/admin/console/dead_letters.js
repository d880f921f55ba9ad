// Dead letters: filtered, grouped by cause, shown one by one; and the job that replays or discards them.

import { get, logIn, post, remove, session, textOf } from "./api.js";
import { askAction, showRecord } from "./dialogs.js";
import { button, byId, count, el, moment, plural, say, table } from "./format.js";

// As many as the server gives at once; rows are shown a page at a time.
const LIMIT = 1000;
const PAGE = 50;
const JOB_EVERY_MS = 500;
const RELOAD_EVERY_MS = 5000;
const FIELDS = ["text", "key", "topic", "error_class", "since"];

let letters = [];
let matching = 0;
let pages = 1;
let isShown = false;
let parkedKnown = 0;
let parkedShown = "";
let openKnown = null;
let jobTimer = 0;
let stopRefused = "";
let jobShown = null;
// The filter of what is listed: what is typed counts once it is applied.
let applied = {};
// Only the answer to the last question is shown.
let asked = 0;
// What was asked before the last logout is not shown, either.
let logouts = 0;
// What is drawn, and when the list may be read again by itself: reading a long topic is work.
let drawn = "";
let nextLoadAt = 0;

const events = { onSession: () => {}, show, showStatus };

export function startLetters() {
  byId("login").addEventListener("submit", login);
  byId("logout").addEventListener("click", () => { session.end(); events.onSession(); byId("token").focus(); });
  session.onRefused = (refused) => { session.end(); events.onSession(); loginError(textOf(refused)); };
  byId("filter").addEventListener("submit", (event) => { event.preventDefault(); apply(); });
  byId("filter-clear").addEventListener("click", () => { setFilter({}); apply(); });
  byId("filter-state").addEventListener("change", apply);
  byId("replay-all").addEventListener("click", () => act("replay", applied, describe()));
  byId("discard-all").addEventListener("click", () => act("discard", applied, describe()));
  return events;
}

async function login(event) {
  event.preventDefault();
  loginError("");
  try {
    await logIn(byId("token").value.trim());
    byId("token").value = "";
    events.onSession();
    byId("filter-state").focus();
  } catch (error) {
    loginError(textOf(error));
    byId("token").select();
  }
}

function loginError(text) {
  say(byId("login-error"), text);
  byId("login-error").hidden = !text;
  byId("token").setAttribute("aria-invalid", String(Boolean(text)));
}

function show(isIn) {
  byId("letters").hidden = !isIn;
  if (isIn && !isShown) apply();
  isShown = isIn;
  if (isIn) return;
  // The answers to what is still under way are not shown.
  asked += 1;
  logouts += 1;
  clearTimeout(jobTimer);
  [letters, drawn, jobTimer, jobShown] = [[], "", 0, null];
  // Nothing that the token has shown stays on the page.
  for (const id of ["groups", "rows", "parked", "job"]) byId(id).replaceChildren();
  for (const id of ["record", "action"]) {
    if (byId(id).open) byId(id).close();
    byId(id).replaceChildren();
  }
}

// The relay counts by itself: when its count changes, what is listed is stale.
function showStatus(status) {
  const { open, parked_keys: parked } = status.dead_letters ?? {};
  if ((open === openKnown && parked === parkedKnown) || Date.now() < nextLoadAt) return;
  [openKnown, parkedKnown] = [open, parked ?? 0];
  if (isShown && !jobTimer) load();
}

// What is typed, with the names of the API.
function apply() {
  applied = typedFilter();
  return load();
}

function typedFilter() {
  const given = FIELDS.map((name) => [name, byId(`filter-${name}`).value.trim()]).filter(([, value]) => value);
  return { ...Object.fromEntries(given), state: byId("filter-state").value };
}

function setFilter(values) {
  for (const name of FIELDS) byId(`filter-${name}`).value = values[name] ?? "";
  byId("filter-state").value = values.state ?? "open";
}

function describe(given = applied) {
  const { state, ...rest } = given;
  const parts = Object.entries(rest).map(([name, value]) => `${name.replace("_", " ")} ${value}`);
  const what = state === "all" ? "all dead letters, resolved ones too" : `${state} dead letters`;
  return parts.length ? `${what} with ${parts.join(", ")}` : what;
}

async function load() {
  const turn = ++asked;
  const problem = byId("letters-error");
  const begunAt = Date.now();
  try {
    const answer = await get("/api/dlq", { ...applied, limit: LIMIT });
    if (turn !== asked) return;
    // In the order of the topic's partitions; the newest are what people look for.
    letters = answer.dead_letters.sort((a, b) => (a.failed_at < b.failed_at ? 1 : -1));
    [matching, pages] = [answer.matched, 1];
    problem.hidden = true;
    draw();
    if (answer.job) showJob(answer.job);
    await loadParked(turn);
  } catch (error) {
    if (turn !== asked || error.status === 401) return;
    // The topic was read for somebody else: another time will do.
    if (error.code === "api.busy") openKnown = null;
    say(problem, textOf(error));
    problem.hidden = false;
  } finally {
    if (turn === asked) nextLoadAt = Date.now() + RELOAD_EVERY_MS + 5 * (Date.now() - begunAt);
  }
}

// Draws what has changed, and leaves the focus on the same button.
function draw() {
  const next = JSON.stringify([letters, matching, pages, applied]);
  if (next === drawn) return;
  drawn = next;
  const label = document.activeElement.closest("#groups, #rows") && document.activeElement.getAttribute("aria-label");
  const some = letters.length < matching ? `; the first ${count(letters.length)} of the topic are listed` : "";
  const open = byId("filter-state").value;
  say(byId("letters-count"), `${plural(matching, "dead letter")} ${matching === 1 ? "matches" : "match"} (${open})${some}.`);
  for (const id of ["replay-all", "discard-all"]) byId(id).disabled = matching === 0;
  drawGroups();
  drawRows();
  if (label) document.querySelector(`#letters [aria-label="${CSS.escape(label)}"]`)?.focus();
}

// By error class, and in it by topic; the largest first.
function drawGroups() {
  const classes = new Map();
  for (const letter of letters) {
    const topics = classes.get(letter.error_class) ?? new Map();
    classes.set(letter.error_class, topics);
    topics.set(letter.topic, [...(topics.get(letter.topic) ?? []), letter]);
  }
  const size = (topics) => [...topics.values()].reduce((sum, group) => sum + group.length, 0);
  const sorted = [...classes].sort(([, a], [, b]) => size(b) - size(a));
  const bodies = sorted.map(([errorClass, topics]) =>
    [...topics].sort(([, a], [, b]) => b.length - a.length).map(([topic, group]) => groupRow(errorClass, topic, group)));
  byId("groups").replaceChildren(...(letters.length === 0 ? []
    : [table("By cause", ["Error class", "Topic", "Letters", "Newest (UTC)", "Actions"], bodies, { class: "groups" })]));
}

function groupRow(errorClass, topic, group) {
  const own = { ...applied, error_class: errorClass, topic };
  const last = group[0];
  const title = `${errorClass}, topic ${topic}`;
  // A filter cannot name what is empty.
  const actions = !errorClass || !topic ? ["–"] : [
    button("Show", () => { setFilter(own); apply(); byId("letters-count").scrollIntoView({ block: "nearest" }); },
      { "aria-label": `Show ${title}`, class: "quiet" }),
    button("Replay…", () => act("replay", own, describe(own)), { "aria-label": `Replay ${title}` }),
    button("Discard…", () => act("discard", own, describe(own)), { "aria-label": `Discard ${title}`, class: "danger" }),
  ];
  return [[el("strong", {}, errorClass), el("span", { class: "message dim" }, last.error_msg)],
    topic || "–", count(group.length), moment(last.failed_at), el("div", { class: "buttons" }, ...actions)];
}

function drawRows() {
  const page = letters.slice(0, pages * PAGE);
  const rows = page.map((letter) => [
    button(letter.event_id, () => showRecord(letter, act), { class: "link-button", "aria-label": `Open ${letter.event_id}` }),
    letter.key ?? "–", letter.topic || "–", letter.error_class, moment(letter.failed_at), letter.state]);
  const left = letters.length - page.length;
  byId("rows").replaceChildren(...(rows.length === 0 ? []
    : [table("One by one, newest first", ["Event", "Key", "Topic", "Error class", "Failed (UTC)", "State"], [rows], { class: "rows" })]),
    ...(left > 0 ? [button(`Show ${count(Math.min(left, PAGE))} more`, () => { pages += 1; draw(); })] : []));
}

async function loadParked(turn) {
  const place = byId("parked");
  if (!parkedKnown) return place.replaceChildren();
  // Without `force` it is refused while dead letters of a parked key are open.
  const asking = post("/api/dlq/release", { all: true, force: true, dry_run: true });
  // The list of dead letters may be there although this one is not.
  const { keys, code, text } = await asking.catch((error) => error);
  if (turn !== asked || code === "api.busy") return;
  if (!keys) return place.replaceChildren(el("p", { class: "error" }, text));
  // Buttons that are still right keep the focus.
  const shown = JSON.stringify(keys);
  if (place.firstChild && shown === parkedShown) return;
  parkedShown = shown;
  const rows = keys.map((key) => [el("code", {}, key),
    button("Release…", () => act("release", { key }, `key ${key}`), { "aria-label": `Release ${key}` })]);
  place.replaceChildren(...(rows.length ? [table("Parked keys", ["Key", "Action"], [rows], { class: "rows" })] : []));
}

// Asks how, then does it. `what` is a filter with the names of the API.
function act(action, what, title) {
  askAction(action, what, title, async (body) => {
    const turn = logouts;
    const answer = await post(`/api/dlq/${action}`, body);
    if (turn !== logouts) return "";
    if (action === "release") {
      await load();
      const late = answer.dead_letters_meanwhile;
      return late ? `${plural(late, "dead letter")} of it came meanwhile: replay it` : "";
    }
    showJob(answer);
    return "";
  });
}

const JOB_STATES = { running: "runs", stopping: "is being stopped", done: "is done", stopped: "was stopped", failed: "has failed",
  lost: "has ended with its relay" };

function showJob(job) {
  const place = byId("job");
  jobShown = job;
  // The other numbers are of dead letters that were passed over.
  const { done, matched, records, ...others } = job.progress;
  const runs = job.state === "running" || job.state === "stopping";
  const passed = Object.values(others).reduce((sum, number) => sum + number, 0);
  const title = `${job.action === "replay" ? "Replay" : "Discard"} ${job.job} ${JOB_STATES[job.state] ?? job.state}`;
  if (!runs) stopRefused = "";
  // The numbers begin again with each process of the relay.
  if (place.dataset.begun !== job.begun_at || !place.firstChild) {
    [place.dataset.begun, stopRefused] = [job.begun_at, ""];
    place.replaceChildren(
      el("h3", { role: "status" }), el("p", { class: "dim" }, job.filter, job.reason ? ` · ${job.reason}` : ""),
      el("progress", { "aria-label": "Progress of the job" }), el("p", { class: "progress-text" }),
      el("p", { class: "error", role: "alert", hidden: true }),
      button("Stop", stopJob, { class: "danger" }));
  }
  const [head, , bar, text, , stop] = place.children;
  say(head, title);
  [bar.max, bar.value] = [Math.max(matched, 1), done];
  say(text, `${count(done)} of ${count(matched)}${passed ? `, ${count(passed)} passed over` : ""}`);
  showFault(job.error);
  stop.hidden = !runs;
  stop.disabled = job.state === "stopping";
  place.className = `job ${job.state}`;
  place.hidden = false;
  if (runs && !jobTimer) jobTimer = setTimeout(followJob, JOB_EVERY_MS);
}

// Why the job has failed, or why it cannot be stopped.
function showFault(error) {
  const fault = byId("job").querySelector(".error");
  say(fault, error ? `${error.what} – ${error.help}` : stopRefused);
  fault.hidden = !fault.textContent;
}

async function stopJob() {
  const turn = logouts;
  try {
    stopRefused = "";
    const job = await remove("/api/dlq/job");
    if (turn === logouts) showJob(job);
  } catch (error) {
    stopRefused = textOf(error);
    if (turn === logouts) showFault(null);
  }
}

async function followJob() {
  const turn = logouts;
  jobTimer = 0;
  try {
    const job = await get("/api/dlq/job");
    if (turn !== logouts) return;
    showJob(job);
    if (!jobTimer) load();
  } catch (error) {
    if (turn !== logouts || !session.token) return;
    if (error.code !== "api.no-job") {
      jobTimer = setTimeout(followJob, 4 * JOB_EVERY_MS);
      return;
    }
    // A job is part of the process, and another one runs now.
    showJob({ ...jobShown, state: "lost" });
    load();
  }
}
