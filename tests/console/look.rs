//! Looks of the console: widths, light and dark, contrast, names for screen readers; and the
//! search.

use walrelay_harness::BrokerKind;

use super::{Browser, Console};
use crate::support::LIMIT;

/// Texts that are hard to read: less contrast with what is behind them than 4.5 to 1.
const POOR_CONTRAST: &str = r#"
    const rgba = (text) => (text.match(/[\d.]+/g) ?? []).map(Number);
    const light = (rgb) => rgb.slice(0, 3).map(c => c / 255).map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
        .reduce((sum, c, at) => sum + c * [.2126, .7152, .0722][at], 0);
    const behind = (it) => {
        const own = it ? rgba(getComputedStyle(it).backgroundColor) : [255, 255, 255];
        return own.length === 3 || own[3] === 1 ? own : behind(it.parentElement);
    };
    const poor = (it) => {
        const [a, b] = [light(rgba(getComputedStyle(it).color)), light(behind(it))];
        return (Math.max(a, b) + .05) / (Math.min(a, b) + .05) < 4.5;
    };
    const texts = [...document.body.querySelectorAll('*')].filter(it => it.checkVisibility() && !it.closest('svg')
        && !it.disabled && [...it.childNodes].some(node => node.nodeType === 3 && node.data.trim()));
    if (texts.length < 60) throw new Error(`only ${texts.length} texts`);
    return texts.filter(poor).map(it => `${it.tagName}.${it.className} ${it.textContent.slice(0, 40)}`)"#;

/// Fields, buttons, dialogs and plots without a name.
const NAMELESS: &str = r#"
    const named = (it) => it.getAttribute('aria-label') || it.getAttribute('aria-labelledby') || it.labels?.length
        || it.textContent.trim();
    return [...document.querySelectorAll('button, input, select, dialog, [role=slider], section, nav')]
        .filter(it => !named(it)).map(it => it.outerHTML.slice(0, 120))"#;

#[test]
#[ignore = "soak"]
fn it_fits_every_width_in_light_and_dark() {
    let mut console = Console::open(BrokerKind::Kafka, "console_look", 120);
    let browser = &console.browser;
    console.log_in();
    let mut pages = Vec::new();
    for dark in [false, true] {
        for width in [390, 768, 1280, 1600] {
            browser.look_at(width, dark);
            // THEN nothing has to be scrolled sideways, with a dialog or without
            assert_fits(browser, width);
            browser.click(".rows .link-button");
            browser.wait("return document.querySelector('#show-payload') !== null");
            assert_fits(browser, width);
            assert_eq!(browser.run(POOR_CONTRAST), serde_json::json!([]), "{width} {dark}");
            browser.click("#record .dialog-head button");
        }
        assert_eq!(browser.run(POOR_CONTRAST), serde_json::json!([]), "{dark}");
        pages.push(browser.run("return getComputedStyle(document.body).backgroundColor"));
    }
    assert_ne!(pages[0], pages[1], "light and dark");
    assert_eq!(browser.run(NAMELESS), serde_json::json!([]));
    let landmarks = "return ['header', 'main', 'nav', 'footer', 'h1', '[role=status]'].filter(it => !document.querySelector(it))";
    assert_eq!(browser.run(landmarks), serde_json::json!([]));
    search_the_relay(&mut console);
    show_what_a_search_finds(&console.browser);
    console.assert_no_complaints(&[]);
}

fn assert_fits(browser: &Browser, width: u32) {
    browser.wait(&format!("return innerWidth === {width}"));
    let script = "return [...document.querySelectorAll('body, body *')].filter(it => it.checkVisibility() \
        && it.getBoundingClientRect().right > innerWidth + 1 && !it.closest('.unseen, .skip, thead')) \
        .map(it => it.outerHTML.slice(0, 100))";
    assert_eq!(browser.run(script), serde_json::json!([]), "{width}");
    let wide = browser.run("return document.documentElement.scrollWidth");
    assert!(wide.as_u64().unwrap() <= u64::from(width), "{wide} of {width}");
}

/// The answer of this relay is shown whole: every field has the name that the page asks for.
fn search_the_relay(console: &mut Console) {
    let Console { case, relay, browser } = console;
    // A key of which no other test on this broker has events.
    let (name, key) = (case.site.name.as_str(), "looked-for");
    let published = case.insert_one(name, key, 1);
    let dead = case.insert_one(&case.lost(), key, 2);
    case.site.wait_confirmed(relay, LIMIT);
    let found = search(browser, "id", &published, |text| text.contains(" is published"));
    let parts = ["Key", key, "public.outbox", "Committed", "Commit LSN", "has passed it", name];
    for part in parts.into_iter().chain(["partition ", "offset "]) {
        assert!(found.contains(part), "{part}: {found}");
    }
    let found = search(browser, "id", &dead, |text| text.contains(" is a dead letter"));
    for part in ["Dead letter", "open, ", "(attempts 1, "] {
        assert!(found.contains(part), "{part}: {found}");
    }
    let found = search(browser, "key", key, |text| text.contains(&published));
    assert!(found.contains(" is published") && found.contains(" is a dead letter"), "{found}");
}

/// Searches, and waits for what is found.
fn search(browser: &Browser, by: &str, value: &str, is_it: impl Fn(&str) -> bool) -> String {
    browser.run(&format!("document.querySelector('#find-by').value = {by:?}"));
    browser.write("#find-value", value);
    browser.click("#find-form button");
    browser.wait_text("#found", is_it)
}

/// The answer is that of the contract, whatever the relay knows.
fn show_what_a_search_finds(browser: &Browser) {
    browser.run(
        r#"const own = window.fetch;
        window.asked = [];
        window.fetch = (path, options) => {
            if (!String(path).startsWith('/api/find')) return own(path, options);
            window.asked.push([path, options.headers.Authorization.slice(0, 7)]);
            return Promise.resolve(window.answers.shift());
        };
        const found = { id: '<b>e1</b>', key: 'k1', row: { table: 'public.outbox', created_at: '2026-11-25T01:02:03Z' },
            lsn: '0/18C2F10', slot_passed: true, state: 'published', trace_id: null, dead_letters: [],
            published: [{ topic: 'orders', partition: 3, offset: 41, timestamp: '2026-11-25T01:02:04Z' }] };
        window.answers = [Response.json({ events: [found], not_searched: ['topic payments: no right to read it'] }),
            Response.json({ code: 'api.not-here', what: 'there is nothing here' }, { status: 404 })];"#,
    );
    browser.run("document.querySelector('#find-by').value = 'id'");
    browser.write("#find-value", "a/b c");
    browser.click("#find-form button");
    let told = browser.wait_text("#found", |text| text.contains("Not searched"));
    for part in [
        "<b>e1</b> is published",
        "public.outbox, created 2026-11-25 01:02:03 UTC",
        "orders, partition 3, offset 41, 2026-11-25 01:02:04 UTC",
        "has passed it",
        "topic payments: no right to read it",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!(
        browser.run("return window.asked[0]"),
        serde_json::json!(["/api/find?id=a%2Fb+c", "Bearer "])
    );
    browser.click("#find-form button");
    browser.wait_text("#found", |text| text == "This version cannot search.");
}
