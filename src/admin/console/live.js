// Follows the relay: asks for its status, and for the samples that are new, every two seconds.

const POLL_MS = 2000;
// A relay counts as lost when a question fails and the last answer is older than this.
const SILENCE_MS = 3000;

async function fetchJson(path) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(SILENCE_MS) });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

// `on.status` and `on.history` take the answers; `on.link` takes "live" or "lost", and the time of the last answer.
export function follow(on) {
  let heardAt = Date.now();
  let link = "";
  let since = 0;

  const setLink = (next) => {
    if (next === link) return;
    link = next;
    on.link(next, heardAt);
  };

  async function ask() {
    const paths = ["/status", `/history?since=${since}`];
    const [status, history] = await Promise.all(paths.map(fetchJson)).catch(() => []);
    if (status) {
      heardAt = Date.now();
      since = history.samples.at(-1)?.at ?? since;
      setLink("live");
      on.status(status);
      on.history(history);
    } else if (Date.now() - heardAt > SILENCE_MS) {
      setLink("lost");
    }
  }

  // The next question follows the answer, so that questions to a slow relay do not pile up.
  const poll = () => ask().finally(() => setTimeout(poll, POLL_MS));
  poll();
}
