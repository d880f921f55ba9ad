// Two dialogs: one dead letter with its history and payload, and the question before something is done.

import { encoded, get, post, textOf } from "./api.js";
import { bytes, button, byId, count, el, moment, plural, say, table } from "./format.js";

const PAYLOAD_CHARS_MAX = 200000;
const HEX_BYTES_MAX = 65536;

function open(dialog, ...content) {
  dialog.replaceChildren(...content);
  dialog.showModal();
}

function title(id, text, dialog) {
  return el("div", { class: "dialog-head" }, el("h2", { id }, text),
    button("Close", () => dialog.close(), { class: "quiet" }));
}

// Opens one dead letter of the list. `act` begins what is done with it.
export async function showRecord(summary, act) {
  const dialog = byId("record");
  const body = el("div", { class: "record-body" }, el("p", { class: "dim" }, "Reading the dead-letter topic…"));
  open(dialog, title("record-title", `Event ${summary.event_id}`, dialog), body);
  const read = async (query) => {
    const { dead_letters: letters } = await get(`/api/dlq/${encoded(summary.event_id)}`, query);
    const isIt = (letter) => letter.partition === summary.partition && letter.offset === summary.offset;
    return letters.find(isIt) ?? letters[0];
  };
  try {
    const letter = await read({});
    body.replaceChildren(...detail(letter, read, (action) => {
      dialog.close();
      // Older ones need not be read: the relay holds so many at most.
      // Two tables may use the same id, so the topic and the class of the error select as well.
      const { event_id: id, state, failed_at: since, topic, error_class } = letter;
      act(action, { id, state, since, ...(topic && { topic }), error_class }, `event ${id}`);
    }));
  } catch (error) {
    body.replaceChildren(el("p", { class: "error", role: "alert" }, textOf(error)));
  }
}

function detail(letter, read, act) {
  const facts = [
    ["State", letter.state], ["Error", `${letter.error_class}: ${letter.error_msg}`], ["Key", letter.key],
    ["Topic", letter.topic], ["Exchange", letter.exchange], ["Type", letter.event_type],
    ["Attempts", String(letter.attempts)], ["First failed", `${moment(letter.first_failed_at)} UTC`],
    ["Given up", `${moment(letter.failed_at)} UTC`], ["Committed", `${moment(letter.commit_ts)} UTC, LSN ${letter.lsn}`],
    ["Relay", letter.relay], ["Record", `partition ${letter.partition}, offset ${letter.offset}`],
    ["Replays", letter.replays ? String(letter.replays) : null],
    ["Cut", letter.cut ? "yes: it cannot be replayed" : null],
  ].filter(([, value]) => value);
  const headers = letter.headers.map(({ name, value }) => [el("code", {}, name), el("code", {}, value)]);
  const steps = letter.history.map((step) => [moment(step.at), step.what, step.by]);
  const payload = el("div", { class: "payload" });
  payload.append(button(`Show payload (${bytes(letter.value_bytes)})`, async (event) => {
    event.target.disabled = true;
    try {
      payload.replaceChildren(...payloadOf(await read({ payload: true })));
      payload.querySelector("pre")?.focus();
    } catch (error) {
      payload.replaceChildren(el("p", { class: "error", role: "alert" }, textOf(error)));
    }
  }, { id: "show-payload" }), el("span", { class: "dim" }, "It is logged that you have looked."));
  return [
    el("dl", { class: "facts" }, ...facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
    ...(headers.length ? [table("Headers", ["Name", "Value"], [headers], { class: "rows" })] : []),
    table("History", ["Time (UTC)", "What", "By"], [steps], { class: "rows" }), payload,
    el("div", { class: "buttons end" },
      button("Discard…", () => act("discard"), { class: "danger" }), button("Replay…", () => act("replay"), { class: "primary" })),
  ];
}

// JSON indented, other text as it is, what is no text in hexadecimal.
function payloadOf({ payload, payload_encoding: encoding }) {
  if (payload === undefined) return [el("p", { class: "dim" }, "The event has no payload.")];
  const [kind, text] = encoding === "base64" ? hex(payload) : pretty(payload);
  const cut = text.slice(0, PAYLOAD_CHARS_MAX);
  const rest = text.length - cut.length;
  return [el("p", { class: "dim" }, `Payload, ${kind}${rest ? `; ${count(rest)} more characters are not shown` : ""}`),
    el("pre", { tabindex: 0, id: "payload-text", "aria-label": "Payload" }, cut)];
}

function hex(base64) {
  const all = atob(base64);
  const lines = [];
  for (let at = 0; at < Math.min(all.length, HEX_BYTES_MAX); at += 16) {
    const codes = Array.from(all.slice(at, at + 16), (c) => c.charCodeAt(0));
    const digits = codes.map((code) => code.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const plain = codes.map((code) => (code > 31 && code < 127 ? String.fromCharCode(code) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${digits}  ${plain}`);
  }
  const some = all.length > HEX_BYTES_MAX ? `, the first ${count(HEX_BYTES_MAX)} of ${count(all.length)} bytes` : "";
  return [`binary${some}`, lines.join("\n")];
}

// Indents without reading numbers and strings: their digits and escapes stay what they are. More than is shown
// stays as it is.
export function pretty(text) {
  try {
    JSON.parse(text);
  } catch {
    return ["text", text];
  }
  if (text.length > PAYLOAD_CHARS_MAX) {
    return ["JSON", text];
  }
  let depth = 0;
  let out = "";
  const line = () => `\n${"  ".repeat(depth)}`;
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g);
  tokens.forEach((token, at) => {
    const isEmpty = "]}".includes(tokens[at + 1]) && "[{".includes(token);
    if ("]}".includes(token)) {
      depth -= 1;
      out += ("[{".includes(tokens[at - 1]) ? "" : line()) + token;
    } else if ("[{".includes(token)) {
      depth += 1;
      out += token + (isEmpty ? "" : line());
    } else {
      out += token === "," ? `,${line()}` : token === ":" ? ": " : token;
    }
  });
  return ["JSON", out];
}

const WORDS = {
  replay: ["Replay", "Would replay", "They are published again, in the order of their keys. It stops by itself when one is refused again."],
  discard: ["Discard", "Would discard", "They are given up: nothing is published, and they count as resolved."],
  release: ["Release", "Would release", "Later events of the key are published again, instead of following it to the dead letters."],
};

// What the API takes of a filter: one that names nothing must say that it means all. `counted` is what a dry run has counted: only
// that is acted on, not what has come since.
function bodyOf(action, filter, counted) {
  if (action === "release") return { ...filter };
  const what = counted ? { ...filter, ...counted } : filter;
  const { state, ...narrows } = what;
  return { ...(Object.keys(narrows).length ? narrows : { all: true }), state };
}

// Shows what would be done and how many it concerns; `run` does it, and returns what is left to say.
export function askAction(action, what, about, run) {
  const dialog = byId("action");
  const [verb, would, meaning] = WORDS[action];
  const outcome = el("p", { id: "action-count", role: "status" });
  const problem = el("p", { class: "error", role: "alert", hidden: true });
  const fail = (error) => { say(problem, textOf(error)); problem.hidden = false; };
  const rate = el("input", { id: "action-rate", type: "text", autofocus: action === "replay", placeholder: "50/s", autocomplete: "off" });
  const reason = el("input", { id: "action-reason", type: "text", maxlength: 500, autocomplete: "off", required: action === "discard",
    autofocus: action !== "replay" });
  // Whether a release is refused depends on it.
  const force = el("input", { id: "action-force", type: "checkbox", onchange: () => dryRun() });
  let counted;
  const body = (more) => ({ ...bodyOf(action, what, counted), ...(force.checked && { force: true }), ...more });
  const dryRun = async () => {
    say(outcome, "Counting…");
    [counted, go.disabled, problem.hidden] = [undefined, true, true];
    try {
      const { matched, keys, since, until, unfit } = await post(`/api/dlq/${action}`, body({ dry_run: true }));
      // A time that is an age is that of the count.
      if (!keys) counted = { ...(since && { since }), until, expected: matched };
      go.disabled = false;
      say(outcome, unfit ? `Of ${plural(matched, "dead letter")}: ${unfit}.` : `${would} ${keys ? plural(keys.length, "key") : plural(matched, "dead letter")}.`);
    } catch (error) {
      say(outcome, "");
      fail(error);
    }
  };
  const submit = async (event) => {
    event.preventDefault();
    problem.hidden = true;
    if (reason.required && !reason.value.trim()) return fail({ text: "a reason is needed" });
    const more = { ...(reason.value.trim() && { reason: reason.value.trim() }) };
    if (action !== "release" && rate.value.trim()) more.rate = rate.value.trim();
    go.disabled = true;
    try {
      const left = await run(body(more));
      if (left) fail({ text: left });
      else dialog.close();
    } catch (error) {
      fail(error);
    }
    go.disabled = false;
  };
  const go = el("button", { id: "action-go", type: "submit", class: action === "discard" ? "danger-solid" : "primary" }, verb);
  const options = action === "release"
    ? [el("label", { class: "check" }, force, "although dead letters of it are open: later events overtake them")]
    : [el("label", {}, "Rate", rate, el("span", { class: "dim" }, "per s, min or h; without one as fast as it goes"))];
  open(dialog, title("action-title", `${verb} ${about}`, dialog), el("p", {}, meaning),
    el("form", { class: "stack", onsubmit: submit }, outcome, ...options,
      el("label", {}, action === "discard" ? "Reason (required)" : "Reason", reason,
        el("span", { class: "dim" }, "goes to the log of the relay")),
      problem,
      el("div", { class: "buttons end" }, button("Dry run", dryRun, { id: "action-dry-run" }), go)));
  dryRun();
}
