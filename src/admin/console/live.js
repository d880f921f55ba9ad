// Follows the relay: over the stream of events, or by asking again and again where the stream is refused.

const POLL_MS = 2000;
const STREAM_AGAIN_MS = 30000;
const SILENCE_MS = 4000;
const HISTORY_EVERY_MS = 15000;

export async function fetchJson(path) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(SILENCE_MS) });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

// `on.status`, `on.sample` and `on.history` take what came; `on.link` is told "live", "polling" or "lost", and
// since when.
export function follow(on) {
  let heardAt = Date.now();
  let link = "";
  let poll = 0;

  const setLink = (next) => {
    if (next === link) return;
    const wasLost = link === "lost";
    link = next;
    on.link(next, heardAt);
    // What happened meanwhile is missing from the plots.
    if (wasLost) history();
  };
  const heard = (how, status) => {
    heardAt = Date.now();
    setLink(how);
    on.status(status);
  };
  const history = () => fetchJson("/history").then(on.history, () => on.history(null));

  async function ask() {
    try {
      heard("polling", await fetchJson("/status"));
    } catch {
      // The clock below notices the silence.
    }
  }

  function startPolling() {
    if (poll) return;
    ask();
    const timers = [setInterval(ask, POLL_MS), setInterval(history, HISTORY_EVERY_MS)];
    poll = timers;
    setTimeout(() => { timers.forEach(clearInterval); poll = 0; stream(); }, STREAM_AGAIN_MS);
  }

  let events = null;
  addEventListener("pagehide", () => events?.close());

  function stream() {
    const opened = new EventSource("/events");
    events = opened;
    opened.addEventListener("status", (event) => heard("live", JSON.parse(event.data)));
    opened.addEventListener("sample", (event) => on.sample(JSON.parse(event.data)));
    opened.onerror = () => {
      // A refused stream is closed for good; one that broke is opened again by the browser.
      if (opened.readyState === EventSource.CLOSED) startPolling();
    };
  }

  history();
  stream();
  setInterval(() => { if (Date.now() - heardAt > SILENCE_MS) setLink("lost"); }, 500);
}
