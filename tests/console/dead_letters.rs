//! Dead letters are looked at, replayed and given up by clicks, and by keys alone.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use walrelay_harness::BrokerKind;

use super::{Console, TOKEN};
use crate::dead_letters::fixture::{DeadLetterFixture, held};
use crate::support::{LIMIT, metric, on_both_brokers, wait_until};

const LETTERS: u64 = 30;
const TAB: &str = "\u{E004}";
const ENTER: &str = "\u{E007}";
const ESCAPE: &str = "\u{E00C}";

on_both_brokers!(dead_letters_are_grouped_opened_replayed_and_discarded_by_clicks, rabbitmq in soak);

fn dead_letters_are_grouped_opened_replayed_and_discarded_by_clicks(kind: BrokerKind) {
    let console = Console::open(kind, "console", LETTERS);
    let Console { case, browser, .. } = &console;
    log_in_with_the_right_token_only(&console);
    // THEN the letters stand by cause, and one by one
    assert_eq!(browser.text("#letters-count"), "32 dead letters match (open).");
    let groups = "return [...document.querySelectorAll('.groups tbody tr')].map(row => \
        [row.querySelector('strong').textContent, row.cells[1].textContent, Number(row.cells[2].textContent)])";
    let shown: Vec<(String, String, usize)> = serde_json::from_value(browser.run(groups)).unwrap();
    assert_eq!(shown.into_iter().collect::<BTreeSet<_>>(), causes(&case.list(&[])));
    assert_eq!(browser.run("return document.querySelectorAll('.rows tbody tr').length"), 32);
    open_a_record(&console);
    // WHEN they are filtered THEN the server has filtered them
    browser.write("#filter-key", "k1");
    browser.click("#filter button[type=submit]");
    let of_key = case.list(&["--key", "k1"]).len();
    browser.wait_text("#letters-count", |text| text.starts_with(&format!("{of_key} dead")));
    // WHEN a replay of them is only tried THEN it says how many, and nothing has changed
    browser.click("#replay-all");
    let would = format!("Would replay {of_key} dead letters.");
    browser.wait_text("#action-count", |text| text == would);
    browser.run("document.querySelector('#action-count').textContent = ''");
    browser.click("#action-dry-run");
    browser.wait_text("#action-count", |text| text == would);
    browser.press(ESCAPE);
    assert_eq!(case.open().len() as u64, LETTERS + 2);
    replay_a_topic_slowly(&console);
    discard_what_was_seen(&console);
    discard_the_rest_by_cause(&console);
    // WHEN the person logs out THEN nothing of the letters is left on the page, nor the token
    browser.click("#logout");
    browser.wait("return sessionStorage.length === 0");
    assert!(!browser.is_seen("#letters") && browser.is_seen("#login"));
    assert_eq!(browser.text("#rows") + &browser.text("#groups"), "");
    console.assert_no_complaints(&["status of 401", "status of 400"]);
}

/// Error class, topic, and how many letters have them.
fn causes(letters: &[Value]) -> BTreeSet<(String, String, usize)> {
    let mut counts = BTreeMap::new();
    for letter in letters {
        let text = |name: &str| letter[name].as_str().unwrap().to_owned();
        *counts.entry((text("error_class"), text("topic"))).or_default() += 1;
    }
    counts.into_iter().map(|((class, topic), count)| (class, topic, count)).collect()
}

fn log_in_with_the_right_token_only(console: &Console) {
    let browser = &console.browser;
    browser.wait("return document.querySelector('#dead-letters').hidden === false");
    assert!(!browser.is_seen("#letters"));
    for wrong in ["not-the-token-at-all", "nö"] {
        browser.write("#token", wrong);
        browser.click("#login button");
        browser.wait_text("#login-error", |text| text.contains("the token is wrong"));
        assert!(!browser.is_seen("#letters") && browser.run("return sessionStorage.length") == 0);
        browser.run("document.querySelector('#login-error').textContent = ''");
    }
    console.log_in();
    // THEN the token is in this tab's memory alone
    assert_eq!(browser.run("return Object.values(sessionStorage)"), serde_json::json!([TOKEN]));
    assert_eq!(browser.run("return document.cookie + localStorage.length"), "0");
    let page = browser.run("return location.href + document.documentElement.outerHTML");
    assert!(!page.as_str().unwrap().contains(TOKEN));
    // THEN it is still logged in when the page is loaded again
    browser.run("location.reload()");
    browser.wait_text("#letters-count", |text| text.contains("match"));
}

/// Opens the first letter of the list, and its payload after one more click.
fn open_a_record(console: &Console) {
    let Console { case, browser, .. } = console;
    let id = browser.text(".rows tbody tr .link-button");
    browser.click(".rows tbody tr .link-button");
    browser.wait("return document.querySelector('#show-payload') !== null");
    assert_eq!(browser.text("#record-title"), format!("Event {id}"));
    let seq = case.site.value(&format!("select payload ->> 'seq' from outbox where id = '{id}'"));
    let record = browser.text("#record");
    assert!(record.contains("dead-lettered") && !record.contains("\"seq\""), "{record}");
    browser.click("#show-payload");
    let payload = browser.wait_text("#payload-text", |text| !text.is_empty());
    assert_eq!(payload, format!("{{\n  \"seq\": {seq}\n}}"));
    browser.press(ESCAPE);
    browser.wait("return document.querySelector('#record').open === false");
}

fn replay_a_topic_slowly(console: &Console) {
    let Console { case, browser, .. } = console;
    let lost = case.lost();
    browser.click("#filter-clear");
    browser.wait_text("#letters-count", |text| text.starts_with("32 dead"));
    browser.write("#filter-topic", &lost);
    browser.press(ENTER);
    browser.wait_text("#letters-count", |text| text.starts_with("30 dead"));
    case.site.open_route(&lost);
    browser.click("#replay-all");
    browser.wait_text("#action-count", |text| text == "Would replay 30 dead letters.");
    browser.write("#action-rate", "fast");
    browser.click("#action-go");
    browser.wait_text("#action .error", |text| text.contains("is not a rate"));
    browser.write("#action-rate", "6/s");
    browser.write("#action-reason", "route made");
    browser.run(
        "window.progress = [];
         const note = () => window.progress.push(document.querySelector('#job .progress-text')?.textContent);
         new MutationObserver(note).observe(document.querySelector('#job'), { childList: true, subtree: true });",
    );
    browser.click("#action-go");
    browser.wait_text("#job .progress-text", |text| text == "30 of 30");
    // THEN its progress was seen on the way
    let shown = browser
        .run("return window.progress.filter((text) => /^[1-9][0-9]? of 30$/.test(text ?? ''))");
    let on_the_way = shown.as_array().unwrap().iter().any(|text| text != "30 of 30");
    assert!(on_the_way, "{shown}");
    browser.wait_text("#job h3", |text| text == "Replay 1 is done");
    browser.wait_text("#letters-count", |text| text == "0 dead letters match (open).");
    assert_eq!(held(case.site.reader_of(&lost)).len(), 30);
}

/// A dead letter that comes between the question and the answer is not discarded.
fn discard_what_was_seen(console: &Console) {
    let Console { case, browser, .. } = console;
    browser.click("#filter-clear");
    browser.wait_text("#letters-count", |text| text == "2 dead letters match (open).");
    browser.click("#discard-all");
    browser.wait_text("#action-count", |text| text == "Would discard 2 dead letters.");
    case.insert(&case.other(), 3..4, 900, 3);
    wait_until("more dead letters", || case.open().len() == 5);
    browser.write("#action-reason", "seen");
    browser.click("#action-go");
    browser.wait_text("#job h3", |text| text == "Discard 2 is done");
    assert_eq!(case.open().len(), 3);
}

fn discard_the_rest_by_cause(console: &Console) {
    let Console { case, browser, relay } = console;
    browser.wait_text("#letters-count", |text| text == "3 dead letters match (open).");
    for left in (1..=causes(&case.list(&[])).len()).rev() {
        // WHEN a discard is requested without a reason THEN the form is not sent
        browser.click(".groups tbody tr button[aria-label^=Discard]");
        browser.wait_text("#action-count", |text| text.starts_with("Would discard "));
        browser.click("#action-go");
        browser.wait("return document.querySelector('#action-reason:invalid') !== null");
        assert_eq!(causes(&case.list(&[])).len(), left);
        // WHEN it has one THEN the cause is gone from the list, and the log has the reason
        browser.write("#action-reason", "written by a test");
        browser.click("#action-go");
        let groups = "return document.querySelectorAll('.groups tbody tr').length";
        browser.wait(&format!("{groups} === {}", left - 1));
        assert_eq!(causes(&case.list(&[])).len(), left - 1);
    }
    browser.wait_text("#letters-count", |text| text == "0 dead letters match (open).");
    assert_eq!(browser.run("return document.querySelector('#discard-all').disabled"), true);
    assert!(relay.said("written by a test"), "{}", relay.tail(10));
    assert_eq!(case.list(&["--state", "discarded"]).len(), 5);
}

#[test]
#[ignore = "soak"]
fn a_job_is_begun_and_stopped_by_keys_alone() {
    let console = Console::open(BrokerKind::Kafka, "console_keys", LETTERS);
    let Console { case, browser, .. } = &console;
    case.site.open_route(&case.lost());
    case.site.open_route(&case.other());
    // WHEN the page is entered by keys THEN the first thing leads past the bar
    browser.press(TAB);
    assert_eq!(focused(browser)["text"], "To the content");
    browser.press(ENTER);
    tab_to(browser, "#token");
    browser.press(TOKEN);
    browser.press(ENTER);
    browser.wait_text("#letters-count", |text| text.contains("match"));
    tab_to(browser, "#replay-all");
    browser.press(ENTER);
    browser.wait_text("#action-count", |text| text == "Would replay 32 dead letters.");
    // THEN the focus is in the dialog and stays there
    for _ in 0..8 {
        let within = "return document.activeElement === document.body || \
            document.querySelector('#action').contains(document.activeElement)";
        assert_eq!(browser.run(within), true, "{}", focused(browser));
        browser.press(TAB);
    }
    tab_to(browser, "#action-rate");
    browser.press("1/s");
    tab_to(browser, "#action-go");
    browser.press(ENTER);
    browser.wait_text("#job h3", |text| text == "Replay 1 runs");
    // THEN the focus is back where it came from, and seen there
    browser.wait("return document.activeElement.id === 'replay-all'");
    let outline = browser.run("return getComputedStyle(document.activeElement).outlineStyle");
    assert_eq!(outline, "solid");
    tab_to(browser, "#job button");
    browser.press(ENTER);
    browser.wait_text("#job h3", |text| text == "Replay 1 was stopped");
    assert!(!case.open().is_empty());
    console.assert_no_complaints(&[]);
}

#[test]
#[ignore = "soak"]
fn a_parked_key_is_released_by_clicks_once_nothing_of_it_is_open() {
    // GIVEN a key that is parked, with two dead letters
    let delivery = "on_dead_letter = \"park_key\"\nattempts_max = 1\n";
    let case = DeadLetterFixture::on(BrokerKind::Kafka, "console_park", delivery, "");
    let case = case.with_token(TOKEN);
    let (name, lost) = (case.site.name.clone(), case.lost());
    let mut relay = case.relay();
    case.insert_one(&lost, "k", 1);
    case.site.wait_confirmed(&mut relay, LIMIT);
    case.insert_one(&name, "k", 2);
    case.site.wait_confirmed(&mut relay, LIMIT);
    let mut console = Console::of(case, relay);
    console.log_in();
    let browser = &console.browser;
    // WHEN its release is requested THEN it would be refused, and says what is in the way
    let release = "#parked button[aria-label='Release k']";
    browser.click(release);
    browser.wait_text("#action form .error", |text| text.contains("open"));
    let is_disabled = "return document.querySelector('#action-go').disabled === true";
    browser.wait(is_disabled);
    // WHEN somebody insists THEN it would be released
    browser.click("#action-force");
    browser.wait_text("#action-count", |text| text == "Would release 1 key.");
    browser.wait("return document.querySelector('#action form .error').hidden");
    browser.click("#action-force");
    browser.wait_text("#action form .error", |text| text.contains("open"));
    browser.wait(is_disabled);
    browser.press(ESCAPE);
    browser.wait("return document.querySelector('#action').open === false");
    assert_eq!(metric(&console.relay, "outbox_dlq_parked_keys"), Some(1.0));
    // WHEN the letters are given up and it is requested again
    browser.click("#discard-all");
    browser.wait_text("#action-count", |text| text == "Would discard 2 dead letters.");
    browser.write("#action-reason", "written by a test");
    browser.click("#action-go");
    browser.wait_text("#letters-count", |text| text == "0 dead letters match (open).");
    browser.click(release);
    browser.wait_text("#action-count", |text| text == "Would release 1 key.");
    browser.click("#action-go");
    // THEN nothing is parked any more, and the key goes on
    browser.wait("return document.querySelector('#action').open === false");
    browser.wait_text("#parked", str::is_empty);
    wait_until("no parked key", || metric(&console.relay, "outbox_dlq_parked_keys") == Some(0.0));
    let id = console.case.insert_one(&name, "k", 3);
    console.case.site.wait_confirmed(&mut console.relay, LIMIT);
    let arrived = held(console.case.site.reader());
    assert_eq!(arrived.iter().map(|record| record.id.as_str()).collect::<Vec<_>>(), [id]);
    console.assert_no_complaints(&["status of 409"]);
}

fn focused(browser: &super::Browser) -> Value {
    browser.run(
        "const it = document.activeElement; return { id: it.id, name: it.tagName, text: it.textContent.slice(0, 60) }",
    )
}

/// Presses Tab until the element has the focus.
#[track_caller]
fn tab_to(browser: &super::Browser, css: &str) {
    let script = format!("return document.activeElement.matches({css:?})");
    for _ in 0..250 {
        if browser.run(&script) == true {
            return;
        }
        browser.press(TAB);
    }
    panic!("{css} cannot be reached by Tab; the focus is on {}", focused(browser));
}
