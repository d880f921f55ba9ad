//! The scripts show what `/status` says: figures, state, reasons, and what depends on mode and token.

use serde_json::{Value, json};

use super::browser::Browser;

/// Answers of `/status` are those of the relay with the fields of `window.told` in place of its own.
const TELL: &str = "const own = window.fetch; window.told = {}; \
    window.fetch = async (path, options) => { const answer = await own(path, options); \
    return path === '/status' ? Response.json({ ...await answer.json(), ...window.told }) : answer; }";

/// Shows what a relay without a token tells, and what others would, on its page in `browser`.
pub(super) fn assert_shows_what_is_told(browser: &Browser) {
    let shown = |css: &str, text: &str| drop(browser.wait_text(css, |it| it == text));
    let is_seen = |of: [&str; 4]| of.map(|css| browser.is_seen(css));
    let parts = ["#closed", "#login", "[data-path='/lsn/sent']", "[data-path='/polling/backlog']"];
    assert_eq!(is_seen(parts), [true, false, true, false]);
    let told = browser.text("#closed");
    assert!(told.contains("WALRELAY_ADMIN__TOKEN"), "{told}");
    assert_eq!(browser.text(".instance [data-path='/sink']"), "kafka");
    browser.run(TELL);
    tell(
        browser,
        &json!({ "has_token": true, "mode": "polling", "slot": null,
        "state": "sink_down", "ready": false, "since": "2026-11-25T01:02:03Z", "since_seconds": 75,
        "reasons": [{ "code": "sink_down", "text": "the sink has taken no event for 4 s" }], "note": "a <note>",
        "polling": { "backlog": 1_234_567, "backlog_age_seconds": 3_700.5 },
        "dead_letters": { "open": null, "breaker_open": true } }),
    );
    shown("#state-word", "sink down");
    assert_eq!(is_seen(parts), [false, true, false, true]);
    shown("#state-since", "for 1 min, since 01:02:03 UTC");
    shown("#notices", "the sink has taken no event for 4 sa <note>");
    shown("[data-path='/polling/backlog']", "1\u{202f}234\u{202f}567");
    shown("[data-path='/polling/backlog_age_seconds']", "1 h 1 min");
    shown("[data-path='/dead_letters/open'].absent", "not known");
    shown("[data-path='/dead_letters/breaker_open']", "open");
    assert_eq!(browser.run("return document.querySelector('#state').className"), "state bad");
    assert_eq!(browser.run("return document.title"), "! sink down – walrelay");
    // A relay that is about to be no longer ready says why, and a slot may keep WAL.
    tell(
        browser,
        &json!({ "state": "blocked", "ready": true, "reasons": [],
        "reason": { "code": "sink_down", "text": "the sink has taken no event for 1 s" },
        "slot": { "name": "<b>s</b>", "safe_wal_bytes": null, "pinned_by": { "text": "SELECT 1" } } }),
    );
    shown("#state-word", "blocked");
    shown("#notices", "the sink has taken no event for 1 sSELECT 1");
    shown(".instance [data-path='/slot/name']", "<b>s</b>");
    shown("[data-path='/slot/safe_wal_bytes'].absent", "no limit known");
    assert_writes_figures_for_people(browser);
}

fn tell(browser: &Browser, fields: &Value) {
    browser.run(&format!("window.told = {fields}"));
}

fn assert_writes_figures_for_people(browser: &Browser) {
    let figures = [
        ("count", json!(1_234_567), "1\u{202f}234\u{202f}567"),
        ("bytes", json!(1536), "1.5 KiB"),
        ("seconds", json!(0.26), "0.3 s"),
        ("duration", json!(3_700.5), "1 h 1 min"),
        ("milliseconds", json!(1.256), "1.26 ms"),
        ("milliseconds", json!(61_000), "61.0 s"),
        ("per-second", json!(12_345.6), "12\u{202f}346/s"),
        ("per-second", json!(0), "0/s"),
        ("text", json!("<16/3>"), "<16/3>"),
        ("open/closed", json!(true), "open"),
    ];
    for (kind, value, text) in figures {
        let script =
            format!("return import('/console/format.js').then(it => it.shown({kind:?}, {value}))");
        assert_eq!(browser.run(&script), text, "{kind}");
    }
}
