//! The page as the server renders it: state and figures of now, and the places that the script fills.
//!
//! `maud` escapes all texts. What works only with the script is hidden until the script shows it.

use maud::{DOCTYPE, Markup, html};
use serde_json::Value;

use super::figure::{Figure, FigureKind as Kind};

type Rows = &'static [(&'static str, Figure)];

const EVENTS: Rows = &[
    ("published", Figure::new("/events/published", Kind::Count)),
    ("dead-lettered", Figure::new("/events/dead_lettered", Kind::Count)),
    ("retries", Figure::new("/events/retries", Kind::Count)),
    ("in flight", Figure::new("/in_flight/events", Kind::Count)),
    ("in flight at most", Figure::new("/in_flight/limit", Kind::Count)),
    ("bytes in flight", Figure::new("/in_flight/bytes", Kind::Bytes)),
];

const DEAD_LETTERS: Rows = &[
    ("open", Figure::new("/dead_letters/open", Kind::Count)),
    ("age of the oldest", Figure::new("/dead_letters/oldest_age_seconds", Kind::Duration)),
    ("parked keys", Figure::new("/dead_letters/parked_keys", Kind::Count)),
    ("breaker", Figure::new("/dead_letters/breaker_open", Kind::Either("open", "closed"))),
    ("failed writes", Figure::new("/dead_letters/publish_failed", Kind::Count)),
];

const POSITIONS: Rows = &[
    ("received", Figure::new("/lsn/received", Kind::Text)),
    ("sent to the broker", Figure::new("/lsn/sent", Kind::Text)),
    ("confirmed", Figure::new("/lsn/confirmed", Kind::Text)),
];

const SLOT: Rows = &[
    ("name", Figure::new("/slot/name", Kind::Text)),
    ("streaming", Figure::new("/slot/active", Kind::Either("yes", "no"))),
    ("WAL status", Figure::new("/slot/wal_status", Kind::Text)),
    ("lag", Figure::new("/slot/lag_bytes/confirmed", Kind::Bytes)),
    ("lag in time", Figure::new("/slot/lag_seconds", Kind::Seconds)),
    ("WAL retained", Figure::new("/slot/retained_wal_bytes", Kind::Bytes)),
    ("WAL until danger", Figure::new("/slot/safe_wal_bytes", Kind::Bytes).or("no limit known")),
    ("reconnects", Figure::new("/events/source_reconnects", Kind::Count)),
];

const TABLE: Rows = &[
    ("rows not published", Figure::new("/polling/backlog", Kind::Count)),
    ("age of the oldest", Figure::new("/polling/backlog_age_seconds", Kind::Duration)),
    ("claims that ran out", Figure::new("/polling/expired_claims", Kind::Count)),
    ("rows cleaned up", Figure::new("/polling/cleaned_rows", Kind::Count)),
];

/// A key figure, and what stands below it with words before and after.
type Tile = (&'static str, Figure, (&'static str, Figure, &'static str));

const TILES: &[Tile] = &[
    (
        "Published",
        Figure::new("/rates/published_per_second", Kind::PerSecond),
        ("", Figure::new("/events/published", Kind::Count), " in all"),
    ),
    (
        "Latency p99",
        Figure::new("/latency_ms/p99", Kind::Milliseconds).or("no events"),
        ("p50 ", Figure::new("/latency_ms/p50", Kind::Milliseconds).or("–"), ""),
    ),
    (
        "In flight",
        Figure::new("/in_flight/events", Kind::Count),
        ("of ", Figure::new("/in_flight/limit", Kind::Count), " at most"),
    ),
    (
        "Dead letters open",
        Figure::new("/dead_letters/open", Kind::Count),
        ("oldest ", Figure::new("/dead_letters/oldest_age_seconds", Kind::Duration), ""),
    ),
];

const SLOT_TILES: &[Tile] = &[
    (
        "Lag",
        Figure::new("/slot/lag_bytes/confirmed", Kind::Bytes),
        ("", Figure::new("/slot/lag_seconds", Kind::Seconds).or("unknown time"), " behind"),
    ),
    (
        "WAL retained",
        Figure::new("/slot/retained_wal_bytes", Kind::Bytes),
        (
            "until danger: ",
            Figure::new("/slot/safe_wal_bytes", Kind::Bytes).or("no limit known"),
            "",
        ),
    ),
];

const TABLE_TILES: &[Tile] = &[
    (
        "Rows not published",
        Figure::new("/polling/backlog", Kind::Count),
        ("oldest ", Figure::new("/polling/backlog_age_seconds", Kind::Duration), ""),
    ),
    (
        "Retries",
        Figure::new("/events/retries", Kind::Count),
        ("", Figure::new("/rates/retries_per_second", Kind::PerSecond), " now"),
    ),
];

pub(super) fn render(status: &Value, has_token: bool) -> String {
    let has_slot = !status["slot"].is_null();
    let own_tiles = if has_slot { SLOT_TILES } else { TABLE_TILES };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head())
            body {
                a.skip href="#main" { "To the content" }
                (banner(status))
                main #main tabindex="-1" {
                    (state(status))
                    p #announcer .unseen role="status" {}
                    dl.tiles aria-label="Key figures" {
                        @for one in TILES[..1].iter().chain(own_tiles).chain(&TILES[1..]) {
                            (tile(status, one))
                        }
                    }
                    section #history hidden aria-labelledby="history-title" {
                        h2 #history-title { "Last hour" }
                        p #history-note .dim {}
                        div #plots .plots {}
                    }
                    noscript {
                        p.note { "Without JavaScript this page reloads every 5 seconds. Dead letters: "
                            code { "walrelay dlq list" } "." }
                    }
                    (dead_letters(has_token))
                    (find(has_token))
                    section #details aria-labelledby="details-title" {
                        h2 #details-title { "Details" }
                        div.details { (details(status, has_slot)) }
                    }
                }
                footer {
                    @for path in ["status", "history", "metrics", "readyz", "livez"] {
                        a href={ "/" (path) } { "/" (path) }
                    }
                }
                (dialogs())
            }
        }
    };
    page.into_string()
}

fn head() -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            noscript { meta http-equiv="refresh" content="5"; }
            title { "walrelay" }
            link rel="icon" type="image/svg+xml" href="/console/icon.svg";
            link rel="stylesheet" href="/console/page.css";
            link rel="stylesheet" href="/console/console.css";
            script type="module" src="/console/app.js" {}
        }
    }
}

fn banner(status: &Value) -> Markup {
    let name = status["slot"]["name"].as_str();
    html! {
        header.bar {
            p.brand { img src="/console/icon.svg" alt="" width="22" height="22"; "walrelay" }
            p.dim.instance {
                @if let Some(name) = name { span title="slot" { (name) } } @else { "polling" }
                @if let Some(sink) = status["sink"].as_str() { " → " (sink) }
                " · "
                (Figure::new("/version", Kind::Text).markup(status)) " · up "
                (Figure::new("/uptime_seconds", Kind::Duration).markup(status))
            }
            nav aria-label="Sections" {
                @for (id, text) in [("history", "History"), ("dead-letters", "Dead letters"),
                    ("find", "Find an event"), ("details", "Details")] {
                    a href={ "#" (id) } { (text) }
                }
            }
            p #link .link {}
            button #logout .quiet type="button" hidden { "Log out" }
        }
    }
}

/// The same words, classes, signs and notices as in `app.js`.
fn state(status: &Value) -> Markup {
    let word = status["state"].as_str().unwrap_or_default();
    let is_ready = status["ready"] == Value::Bool(true);
    let (tone, sign) = match word {
        "streaming" | "polling" if is_ready => ("good", "✓"),
        "starting" | "connecting" | "standby" | "draining" => ("warn", "…"),
        _ => ("bad", "!"),
    };
    let since = status["since"].as_str().and_then(|since| since.get(..19));
    let since = since.map(|since| since.replace('T', " "));
    let texts = notices(status);
    html! {
        section #state class={ "state " (tone) } aria-label="State" {
            span #state-sign .sign aria-hidden="true" { (sign) }
            div {
                h1 #state-word { (word.replace('_', " ")) }
                p #state-since .dim {
                    @if let Some(since) = since { "since " (since) " UTC" }
                }
            }
            ul #notices hidden[texts.is_empty()] { @for text in texts { li { (text) } } }
        }
    }
}

/// Why it is not ready, or is about to be; what keeps WAL; and what the loop is busy with.
fn notices(status: &Value) -> Vec<&str> {
    let reasons = status["reasons"].as_array().map(Vec::as_slice).unwrap_or_default();
    let reasons =
        if reasons.is_empty() { std::slice::from_ref(&status["reason"]) } else { reasons };
    let texts = reasons.iter().map(|reason| &reason["text"]);
    let more =
        ["/slot/pinned_by/text", "/slot/idle_timeout/text", "/note"].map(|it| status.pointer(it));
    let texts = texts.chain(more.into_iter().flatten());
    texts.filter_map(Value::as_str).filter(|text| !text.is_empty()).collect()
}

fn tile(status: &Value, (title, figure, (before, below, after)): &Tile) -> Markup {
    html! {
        div.tile {
            dt { (title) }
            dd.figure { (figure.markup(status)) }
            dd.dim { (before) (below.markup(status)) (after) }
        }
    }
}

fn details(status: &Value, has_slot: bool) -> Markup {
    let rest: &[(&str, Rows)] = match has_slot {
        true => &[("Log positions", POSITIONS), ("Slot", SLOT)],
        false => &[("Table", TABLE)],
    };
    html! {
        @for (title, rows) in [("Events", EVENTS), ("Dead letters", DEAD_LETTERS)].iter().chain(rest) {
            div {
                h3 { (title) }
                table.figures {
                    tbody { @for (name, figure) in *rows {
                        tr { th scope="row" { (name) } td { (figure.markup(status)) } }
                    } }
                }
            }
        }
    }
}

fn dead_letters(has_token: bool) -> Markup {
    let field = |id: &str, label: &str, hint: &str| {
        html! {
            label { (label) input id={ "filter-" (id) } type="text" placeholder=(hint)
                autocomplete="off" spellcheck="false"; }
        }
    };
    html! {
        section #dead-letters hidden aria-labelledby="dead-letters-title" {
            h2 #dead-letters-title { "Dead letters" }
            (login(has_token))
            div #letters hidden {
                form #filter .filter aria-label="Filter of dead letters" {
                    label { "State" select #filter-state {
                        @for state in ["open", "replayed", "discarded", "all"] {
                            option value=(state) { (state) }
                        }
                    } }
                    (field("text", "Text", "contains"))
                    (field("key", "Key", "exactly"))
                    (field("topic", "Topic", "exactly"))
                    (field("error_class", "Error class", "exactly"))
                    (field("since", "Since", "2h, or 2026-11-21"))
                    div.buttons {
                        button type="submit" { "Apply" }
                        button #filter-clear .quiet type="button" { "Clear" }
                    }
                }
                div #job .job hidden {}
                p #letters-error .error role="alert" hidden {}
                div.summary {
                    p #letters-count role="status" {}
                    div.buttons {
                        button #replay-all type="button" { "Replay these…" }
                        button #discard-all type="button" .danger { "Discard these…" }
                    }
                }
                div #groups {}
                div #rows {}
                div #parked {}
            }
        }
    }
}

/// The field has no name and the form no address: without the script it can send the token nowhere.
fn login(has_token: bool) -> Markup {
    html! {
        @if has_token {
            form #login .login {
                label for="token" { "Token" }
                input #token type="password" autocomplete="off" spellcheck="false" required
                    aria-describedby="login-hint login-error";
                button type="submit" .primary { "Log in" }
                p #login-hint .dim { "The value of " code { "admin.token" }
                    ". This tab keeps it until it is closed, or until you log out." }
                p #login-error .error role="alert" hidden {}
            }
        } @else {
            p #closed .note { "No token is configured, so dead letters and the search are closed here. \
                Set " code { "admin.token" } ", for example with "
                code { "WALRELAY_ADMIN__TOKEN=$(openssl rand -hex 32)" }
                ", and start the relay again." }
        }
    }
}

fn find(has_token: bool) -> Markup {
    html! {
        section #find hidden aria-labelledby="find-title" {
            h2 #find-title { "Where is my event?" }
            p #find-closed .dim {
                @if has_token { "Log in above to search for an event by its id or key." }
                @else { "The search needs a token, as dead letters do." }
            }
            form #find-form .filter hidden {
                label { "By" select #find-by {
                    option value="id" { "event id" } option value="key" { "key" }
                } }
                label.wide { "Value" input #find-value type="text" required autocomplete="off"
                    spellcheck="false"; }
                label { "Since" input #find-since type="text" placeholder="24h" autocomplete="off"; }
                div.buttons { button type="submit" { "Search" } }
            }
            div #found role="status" {}
        }
    }
}

fn dialogs() -> Markup {
    html! {
        dialog #record aria-labelledby="record-title" {}
        dialog #action aria-labelledby="action-title" {}
    }
}
