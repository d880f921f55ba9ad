//! State and figures are those of now, also when the broker or the relay is gone.

use walrelay_harness::{Broker, BrokerKind};

use super::browser::Browser;
use super::page;
use crate::support::{Fixture, LIMIT, shared_postgres};

#[test]
fn the_state_is_that_of_now_while_the_broker_is_gone_and_when_the_relay_is() {
    // GIVEN a relay that streams
    let mut broker = Broker::start(BrokerKind::Kafka).unwrap();
    let site = Fixture::new(shared_postgres(), &broker, "console_live");
    let mut relay = site.relay();
    let browser = Browser::open(&site.name);
    let address = format!("http://{}/", relay.admin());
    browser.go(&address);
    browser.wait_text("#state-word", |text| text == "streaming");
    browser.wait_text("#link", |text| text == "live");
    assert_eq!(browser.text("#notices"), "");
    // THEN a page that was just opened announces no change of the state
    assert_eq!(browser.text("#announcer"), "");
    page::assert_shows_what_is_told(&browser);
    browser.go(&address);
    browser.wait_text("#state-word", |text| text == "streaming");
    // WHEN events are published THEN the page counts them without being loaded again
    browser.run("document.body.dataset.loaded = 'once'");
    for seq in 0..7 {
        site.insert_event("k", seq);
    }
    site.wait_confirmed(&mut relay, LIMIT);
    browser.wait_text("[data-path='/events/published']", |text| text == "7");
    // WHEN the broker goes THEN state and reason are told, to people who see and who do not
    broker.kill9().unwrap();
    site.insert_event("k", 7);
    browser.wait_text("#state-word", |text| text != "streaming");
    browser.wait("return document.querySelector('#state').classList.contains('bad')");
    browser.wait_text("#notices", |text| text.contains("broker"));
    browser.wait(
        "const text = (id) => document.getElementById(id).textContent; \
         return text('announcer').startsWith(`State: ${text('state-word')}. `)",
    );
    // WHEN it is back THEN so is the state
    broker.start_again().unwrap();
    browser.wait_text("#state-word", |text| text == "streaming");
    browser.wait("return document.querySelector('#state').classList.contains('good')");
    browser.wait_text("[data-path='/events/published']", |text| text == "8");
    assert_eq!(browser.run("return document.body.dataset.loaded"), "once");
    // THEN the history is drawn, and can be read by the pointer, by keys, and as a table
    read_a_plot(&browser);
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:#?}");
    // WHEN the relay itself ends THEN the page says since when nothing is known
    relay.kill9().unwrap();
    browser.wait_text("#link", |text| text.starts_with("connection lost since "));
    assert_eq!(browser.run("return document.querySelector('#link').role"), "alert");
    // WHEN it runs again THEN the page goes on by itself
    relay.restart().unwrap();
    browser.wait_text("#link", |text| text == "live");
    browser.wait_text("#state-word", |text| text == "streaming");
}

fn read_a_plot(browser: &Browser) {
    let plot = "#plot-throughput";
    browser.wait_text(&format!("{plot} .readout"), |text| text.starts_with("now: published "));
    browser.wait(
        "return document.querySelector('#plot-throughput path').getAttribute('d').includes('L')",
    );
    browser.run("document.querySelector('#plot-throughput svg.plot').focus()");
    browser.press("\u{E012}");
    let read = browser.wait_text(&format!("{plot} .readout"), |text| !text.starts_with("now"));
    let label =
        "return document.querySelector('#plot-throughput svg.plot').getAttribute('aria-valuetext')";
    assert_eq!(browser.run(label), read.as_str());
    // All plots show the same moment.
    assert_eq!(browser.text("#plot-lag .readout")[..8], read[..8]);
    browser.click(&format!("{plot} summary"));
    browser.wait("return document.querySelectorAll('#plot-throughput tbody tr').length > 0");
    assert_eq!(browser.text(&format!("{plot} thead")), "Time (UTC)publisheddead-letteredState");
}
