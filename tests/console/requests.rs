//! Requests of the page, and answers to them that are no result.

use serde_json::{Value, json};
use walrelay_harness::BrokerKind;

use super::{Console, TOKEN};

const ESCAPE: &str = "\u{E00C}";

/// Notes the bodies of the page's requests in `window.sent`, and answers lists of dead letters with the refusal in
/// `window.refusal` while there is one.
const NOTE: &str = "const own = window.fetch; window.sent = []; window.refusal = null; \
    window.fetch = async (path, options) => { \
        if (options?.body) window.sent.push(JSON.parse(options.body)); \
        const { status, ...body } = window.refusal ?? {}; \
        return status && path.startsWith('/api/dlq?') ? Response.json(body, { status }) : own(path, options); }";

#[test]
fn what_was_shown_is_acted_on_and_a_restart_ends_the_job() {
    let mut console = Console::open(BrokerKind::Kafka, "console_requests", 6);
    console.browser.wait("return document.querySelector('#dead-letters').hidden === false");
    console.browser.run(NOTE);
    assert_only_the_token_and_the_site_keep_people_out(&console);
    console.log_in();
    assert_times_are_those_that_were_shown(&console);
    restart_during_a_job(&mut console);
    console.assert_no_complaints(&["ERR_", "status of 404"]);
}

fn assert_only_the_token_and_the_site_keep_people_out(console: &Console) {
    let browser = &console.browser;
    let refuse = |status: u16| {
        let refusal = json!({ "status": status, "code": "c", "what": "it is so", "help": "wait" });
        browser.run(&format!("window.refusal = {refusal}"));
        browser.write("#token", TOKEN);
        browser.click("#login button");
    };
    for status in [401, 403, 421] {
        refuse(status);
        browser.wait_text("#login-error", |text| text == "it is so – wait");
        assert_eq!(browser.run("return sessionStorage.length"), 0, "{status}");
        browser.run("document.querySelector('#login-error').textContent = ''");
    }
    // WHEN the dead letters cannot be read THEN that is said behind the login
    for status in [400, 409, 503] {
        refuse(status);
        browser.wait_text("#letters-error", |text| text == "it is so – wait");
        assert!(browser.is_seen("#letters") && !browser.is_seen("#login"), "{status}");
        browser.run("document.querySelector('#letters-error').textContent = ''");
        browser.click("#logout");
        browser.wait("return sessionStorage.length === 0");
    }
    browser.run("window.refusal = null");
}

/// The last body that the page has sent.
fn last_sent(console: &Console) -> Value {
    console.browser.run("return window.sent.at(-1)")
}

fn assert_times_are_those_that_were_shown(console: &Console) {
    let Console { case, browser, .. } = console;
    // WHEN one letter is to be replayed THEN no older one is read
    let id = browser.text(".rows tbody tr .link-button");
    browser.click(".rows tbody tr .link-button");
    browser.click("#record .buttons .primary");
    browser.wait_text("#action-count", |text| text == "Would replay 1 dead letter.");
    let letters = case.list(&[]);
    let letter = letters.iter().find(|letter| letter["event_id"] == id.as_str()).unwrap();
    let since = &letter["failed_at"];
    // Two tables may use the same id.
    let (topic, error_class) = (&letter["topic"], &letter["error_class"]);
    let expected = json!({
        "id": id, "state": "open", "since": since, "topic": topic, "error_class": error_class,
        "dry_run": true,
    });
    assert_eq!(last_sent(console), expected);
    browser.press(ESCAPE);
    // WHEN an age is counted from a moment THEN the job counts from the same
    browser.write("#filter-since", "1h");
    browser.click("#filter button[type=submit]");
    browser.click("#discard-all");
    browser.wait_text("#action-count", |text| text == "Would discard 8 dead letters.");
    assert_eq!(last_sent(console)["since"], "1h");
    browser.click("#action-dry-run");
    browser.wait("return window.sent.length >= 3");
    browser.wait_text("#action-count", |text| text == "Would discard 8 dead letters.");
    assert_eq!(last_sent(console)["since"], "1h");
    browser.press(ESCAPE);
}

fn restart_during_a_job(console: &mut Console) {
    let Console { case, browser, relay } = console;
    case.site.open_route(&case.lost());
    case.site.open_route(&case.other());
    browser.click("#filter-clear");
    browser.wait_text("#letters-count", |text| text == "8 dead letters match (open).");
    browser.click("#replay-all");
    browser.wait_text("#action-count", |text| text == "Would replay 8 dead letters.");
    browser.write("#action-rate", "1/min");
    browser.click("#action-go");
    browser.wait_text("#job .progress-text", |text| text == "1 of 8");
    assert_eq!(browser.text("#job h3"), "Replay 1 runs");
    // WHEN the relay is killed and runs again THEN its job has ended, and the list is that of now
    relay.kill9().unwrap();
    relay.restart().unwrap();
    browser.wait_text("#job h3", |text| text == "Replay 1 has ended with its relay");
    assert!(!browser.is_seen("#job button"));
    browser.wait_text("#letters-count", |text| text == "7 dead letters match (open).");
    // WHEN another job has the same number THEN what is shown is of that one
    browser.write("#filter-since", "1h");
    browser.click("#filter button[type=submit]");
    browser.click("#discard-all");
    browser.wait_text("#action-count", |text| text == "Would discard 7 dead letters.");
    browser.write("#action-reason", "seen");
    browser.click("#action-go");
    browser.wait_text("#job h3", |text| text == "Discard 1 is done");
    let about = browser.text("#job p");
    assert!(about.contains("since=") && about.ends_with("seen"), "{about}");
    let sent = browser.run("return window.sent.at(-1)");
    assert!(sent["since"].as_str().unwrap().ends_with('Z'), "{sent}");
    assert_eq!(case.open().len(), 0);
}
