// Requests to /api with the token of this tab. The token is kept in sessionStorage and sent as a header only.

const KEY = "walrelay.token";

// What the server answered instead of a result: its code, what is wrong, where, and what helps.
export class Refused extends Error {
  constructor(status, body) {
    super(body?.what ?? `the server answered ${status}`);
    this.status = status;
    this.code = body?.code ?? "";
    const more = (body?.more ?? []).map((fault) => fault.what);
    this.text = [this.message, ...more].join("; ") + (body?.help ? ` – ${body.help}` : "");
  }
}

export const session = {
  get token() { return sessionStorage.getItem(KEY); },
  begin(token) { sessionStorage.setItem(KEY, token); },
  end() { sessionStorage.removeItem(KEY); },
  // Called when the server no longer takes the token.
  onRefused: () => {},
};

async function request(method, path, body, token = session.token) {
  const headers = { Authorization: `Bearer ${token}`, Accept: "application/json" };
  if (body) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, {
      method, headers, body: body && JSON.stringify(body), cache: "no-store", credentials: "omit",
    });
  } catch {
    throw new Refused(0, { what: "the relay does not answer" });
  }
  const json = await answer.json().catch(() => null);
  if (answer.ok) return json;
  const refused = new Refused(answer.status, json);
  if (answer.status === 401 && token === session.token) session.onRefused(refused);
  throw refused;
}

export const get = (path, query = {}) => {
  const text = new URLSearchParams(query).toString();
  return request("GET", text ? `${path}?${text}` : path);
};
export const post = (path, body) => request("POST", path, body);
export const remove = (path) => request("DELETE", path);

// Refusals of the token and of the site, or no answer. Any other is about the dead letters, and is shown in their place.
const KEEPS_OUT = [0, 401, 403, 421];

// Asks for as little as needs the token.
export async function logIn(token) {
  // Other characters cannot stand in a header, so they are in no token that the server could know.
  if (!/^[\x21-\x7e]+$/.test(token)) throw new Refused(401, { what: "the token is wrong" });
  await request("GET", "/api/dlq?limit=1", undefined, token).catch((error) => {
    if (KEEPS_OUT.includes(error.status ?? 0)) throw error;
  });
  session.begin(token);
}

// Every byte is encoded: an id may be "job", or hold a slash.
export function encoded(id) {
  const bytes = new TextEncoder().encode(id);
  return Array.from(bytes, (byte) => `%${byte.toString(16).padStart(2, "0")}`).join("");
}

// Text of a failure, whatever it was.
export const textOf = (error) => error.text ?? String(error.message ?? error);
