//! A tour through the faults that people are called for: for each, everything that an on-call engineer
//! may look at says the same, and takes it back when the fault is over.
//!
//! The witnesses are `/readyz`, `/status`, the state metric, `walrelay status`, the log, the alerts of a
//! real Prometheus with the shipped rules, and the console in a browser. How long each took is printed. A
//! machine that runs other tests must not fail this one, so the time is judged in `make soak` only.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use walrelay_harness::kit::volume;
use walrelay_harness::proc::signal;
use walrelay_harness::relay::{RelayProcess, get};
use walrelay_harness::{Broker, BrokerKind};

use crate::console::Browser;
use crate::dashboards::Scraper;
use crate::dead_letters::fixture::DeadLetterFixture;
use crate::support::{
    LIMIT, half_machine, metric, name_on, on_both_brokers, own_postgres, start, state, status,
    until, wait_until, whole_machine,
};

/// How soon all witnesses tell of a fault on a machine that does nothing else.
const TOLD_WITHIN: Duration = Duration::from_secs(5);
/// More lines than a relay says in the tour.
const LINES: usize = 10_000;
const ASKED_WITHIN: Duration = Duration::from_secs(2);

struct Tour {
    case: DeadLetterFixture,
    relay: RelayProcess,
    prometheus: Scraper,
    browser: Browser,
}

impl Tour {
    /// Waits until all witnesses tell the state, with this reason, and Prometheus the alert.
    #[track_caller]
    fn all_tell(&self, fault: &str, wanted: &str, code: Option<&str>, alert: Option<&str>) {
        let began = Instant::now();
        wait_until(&format!("{fault}: state {wanted}\n{}", self.relay.tail(20)), || {
            state(&self.relay) == wanted
        });
        let told = began.elapsed();
        let status = status(&self.relay);
        assert_eq!(status["state"], wanted, "{fault}: {status}");
        if let Some(code) = code {
            assert_eq!(status["reason"]["code"], code, "{fault}: {status}");
        }
        let readyz = get(self.relay.admin(), "/readyz", ASKED_WITHIN).unwrap();
        let ready = status["ready"] == true;
        assert_eq!(readyz.status == 200, ready, "{fault}: {}", readyz.body);
        let screen = self.screen();
        assert!(screen.out.contains(wanted), "{fault}: {screen}");
        assert_eq!(screen.code, i32::from(!ready), "{fault}: {screen}");
        self.logged(wanted, code);
        self.browser.wait_text("#state-word", |text| text == wanted);
        let shown = began.elapsed();
        self.scraped(&is_in_state(&self.relay, wanted), true);
        if let Some(alert) = alert {
            self.alerted(fault, alert, true);
        }
        let alerted = began.elapsed();
        println!("{fault}: {wanted} told after {told:?}, shown {shown:?}, scraped {alerted:?}");
        // How long recovery takes is up to the service that comes back.
        let in_time = wanted == "streaming" || alerted <= TOLD_WITHIN;
        assert!(volume(true, in_time), "{fault}: {wanted} told by all after {alerted:?}");
    }

    /// Waits until the log's last change of state is this one.
    #[track_caller]
    fn logged(&self, wanted: &str, code: Option<&str>) {
        let reason = code.map(|code| format!(",\"reason\":\"{code}\"")).unwrap_or_default();
        let change = format!("\"to\":\"{wanted}\"{reason}");
        until(&format!("{change} in\n{}", self.relay.tail(20)), LIMIT, || {
            let said = self.relay.tail(LINES);
            let last = said.lines().rfind(|line| line.contains("\"code\":\"state\""))?;
            last.contains(&change).then_some(())
        });
    }

    /// Waits until the alert is pending or fires, or is over.
    #[track_caller]
    fn alerted(&self, fault: &str, alert: &str, wanted: bool) {
        println!("{fault}: {alert} {wanted}");
        self.scraped(&alerts(&self.relay, &format!("alertname=\"{alert}\"")), wanted);
    }

    /// Waits until Prometheus finds something, or nothing any more.
    #[track_caller]
    fn scraped(&self, query: &str, wanted: bool) {
        wait_until(&format!("{query}: {wanted}"), || {
            self.prometheus.values(query).is_empty() != wanted
        });
    }

    /// The fault is over.
    #[track_caller]
    fn all_recover(&mut self, fault: &str, alert: Option<&str>) {
        self.all_tell(&format!("after: {fault}"), "streaming", None, None);
        self.case.insert_one(&self.case.site.name.clone(), "k", 1);
        self.case.site.wait_confirmed(&mut self.relay, LIMIT);
        if let Some(alert) = alert {
            self.alerted(fault, alert, false);
        }
    }

    /// The relay ends with this code, and everybody says that it is gone.
    #[track_caller]
    fn all_miss(&mut self, fault: &str, exit_code: i32, code: &str) {
        let said = self.relay.wait_exit(LIMIT).unwrap();
        assert_eq!(said, exit_code, "{}", self.relay.tail(20));
        let code = format!("\"code\":\"{code}\"");
        assert!(self.relay.said(&code), "{fault}: {code} not in\n{}", self.relay.tail(20));
        let screen = self.screen();
        assert_eq!(screen.code, 1, "{screen}");
        self.browser.wait_text("#link", |text| text.starts_with("connection lost since "));
        self.alerted(fault, "WalrelayGone", true);
    }

    fn screen(&self) -> crate::support::faults::Ended {
        self.case.walrelay(&["status", "--url", &self.relay.admin().to_string()])
    }

    fn walsender(&self) -> u32 {
        let sql = format!(
            "select coalesce(max(active_pid), 0) from pg_replication_slots where slot_name = '{}'",
            self.case.site.name
        );
        until("a walsender", LIMIT, || {
            self.case.site.value(&sql).parse().ok().filter(|pid| *pid > 0)
        })
    }
}

fn alerts(relay: &RelayProcess, matcher: &str) -> String {
    format!("ALERTS{{{matcher},instance=\"{}\"}}", relay.admin())
}

fn is_in_state(relay: &RelayProcess, state: &str) -> String {
    format!("outbox_state{{state=\"{state}\",instance=\"{}\"}} == 1", relay.admin())
}

on_both_brokers!(every_fault_is_told_by_all_and_taken_back, both in soak);

fn every_fault_is_told_by_all_and_taken_back(kind: BrokerKind) {
    let _half = volume(true, false).then(half_machine);
    let _whole = volume(false, true).then(whole_machine);
    // GIVEN two relays with services of their own, a Prometheus that scrapes them, and a console
    let mut broker = Broker::start(kind).unwrap();
    let mut postgres = own_postgres(&[("max_prepared_transactions", "2")]);
    let name = name_on(kind, "tour");
    let (delivery, dead_letter) = ("attempts_max = 1\n", "burst_max = 20\n");
    let mut case = DeadLetterFixture::new(&postgres, &broker, &name, delivery, dead_letter);
    case.config.source_extra =
        "pinned_after = \"2s\"\nwatch_interval = \"200ms\"\nreconnect_cap = \"500ms\"\n".into();
    broker.sync_declarations().unwrap();
    let relay = case.relay();
    let second = start(case.config.clone(), &format!("{name}_second"));
    let prometheus = Scraper::start(&[&relay, &second]);
    let browser = Browser::open(&name);
    browser.go(&format!("http://{}/", relay.admin()));
    let mut tour = Tour { case, relay, prometheus, browser };
    tour.all_recover("the start", None);
    stand_by(&tour, second);

    let fault = "the broker is killed";
    broker.kill9().unwrap();
    tour.case.insert_one(&name, "k", 2);
    tour.all_tell(fault, "blocked", Some("sink_down"), Some("WalrelayBlocked"));
    broker.start_again().unwrap();
    tour.all_recover(fault, Some("WalrelayBlocked"));

    let fault = "Postgres crashes";
    postgres.crash().unwrap();
    tour.all_tell(fault, "connecting", Some("not_streaming"), Some("WalrelayNotConnected"));
    nothing_is_known_of_the_slot(&tour);
    postgres.start_again().unwrap();
    tour.all_recover(fault, Some("WalrelayNotConnected"));

    stop_the_walsender(&mut tour);
    pin_the_slot(&mut tour);
    burst_of_dead_letters(&mut tour);
    drop_the_slot(&mut tour);
}

/// A second relay waits for the slot, and says so; nobody is called for that, but when it is gone.
fn stand_by(tour: &Tour, mut second: RelayProcess) {
    wait_until("a standby", || state(&second) == "standby");
    let told = status(&second);
    assert_eq!(told["reason"]["code"], "slot_busy", "{told}");
    let urls = [tour.relay.admin().to_string(), second.admin().to_string()];
    let screen = tour.case.walrelay(&["status", "--url", &urls[0], "--url", &urls[1]]);
    assert!(screen.out.contains("streaming") && screen.out.contains("standby"), "{screen}");
    assert_eq!(screen.code, 1, "{screen}");
    let of_first = tour.browser.run("return location.href");
    tour.browser.go(&format!("http://{}/", second.admin()));
    tour.browser.wait_text("#state-word", |text| text == "standby");
    tour.browser.wait_text("#notices", |text| text.contains("another process streams"));
    tour.browser.go(of_first.as_str().unwrap());
    tour.scraped(&is_in_state(&second, "standby"), true);
    tour.prometheus.wait_evaluated();
    let told = tour.prometheus.values(&alerts(&second, "alertname=~\".+\""));
    assert!(told.is_empty(), "an alert for a standby");
    second.kill9().unwrap();
    tour.scraped(&alerts(&second, "alertname=\"WalrelayGone\""), true);
}

/// Facts of the slot that were read before may no longer be true, and are not shown.
fn nothing_is_known_of_the_slot(tour: &Tour) {
    let slot = until("unknown figures", LIMIT, || {
        let slot = status(&tour.relay)["slot"].take();
        slot["lag_seconds"].is_null().then_some(slot)
    });
    for unknown in ["/active", "/wal_status", "/lag_bytes/confirmed", "/retained_wal_bytes"] {
        assert_eq!(slot.pointer(unknown), Some(&Value::Null), "{unknown}: {slot}");
    }
    let screen = tour.screen();
    assert!(screen.out.contains("lag          unknown"), "{screen}");
    tour.browser.wait_text("[data-path='/slot/active']", |text| text == "not known");
    assert!(metric(&tour.relay, "outbox_slot_lag_seconds").is_some_and(f64::is_nan));
    assert_eq!(metric(&tour.relay, "outbox_slot_active"), Some(0.0));
}

/// WAL grows, and nothing of it comes.
fn stop_the_walsender(tour: &mut Tour) {
    let fault = "the walsender stands still";
    let walsender = tour.walsender();
    signal(walsender, Signal::STOP).unwrap();
    let name = &tour.case.site.name;
    tour.case.insert_one(name, "k", 3);
    // What was confirmed before is read, so that nothing but WAL moves from here on.
    let sql = format!(
        "select pg_current_wal_lsn() - confirmed_flush_lsn from pg_replication_slots
         where slot_name = '{name}'"
    );
    wait_until("the lag read", || {
        let lag: f64 = tour.case.site.value(&sql).parse().unwrap();
        let read = metric(&tour.relay, "outbox_slot_lag_bytes{point=\"confirmed\"}");
        read == Some(lag)
    });
    tour.case.insert_one(name, "k", 4);
    tour.all_tell(fault, "stalled", Some("wal_unconfirmed"), Some("WalrelayStalled"));
    signal(walsender, Signal::CONT).unwrap();
    tour.all_recover(fault, Some("WalrelayStalled"));
}

/// A prepared transaction holds `restart_lsn`.
fn pin_the_slot(tour: &mut Tour) {
    let fault = "restart_lsn is pinned";
    let site = &tour.case.site;
    site.execute("create table other (t text)");
    site.execute("begin; insert into other values ('x'); prepare transaction 'forgotten'");
    let pinned_by = |tour: &Tour| status(&tour.relay)["slot"]["pinned_by"].clone();
    let pin = until(fault, LIMIT, || {
        tour.case
            .site
            .execute("insert into other select repeat('x', 1000) from generate_series(1, 300)");
        Some(pinned_by(tour)).filter(|pin| pin["kind"] == "prepared_transaction")
    });
    assert!(pin["text"].as_str().unwrap().contains("ROLLBACK PREPARED 'forgotten'"), "{pin}");
    assert!(tour.screen().out.contains("forgotten"), "{}", tour.screen());
    tour.browser.wait_text("#notices", |text| text.contains("forgotten"));
    tour.scraped("outbox_slot_pinned_seconds > 0", true);
    tour.case.site.execute("rollback prepared 'forgotten'");
    wait_until("nothing pins the slot", || {
        tour.case
            .site
            .execute("insert into other select repeat('x', 1000) from generate_series(1, 300)");
        pinned_by(tour) == Value::Null
    });
    tour.scraped("outbox_slot_pinned_seconds > 0", false);
    tour.all_recover(fault, None);
}

/// A burst of dead letters, less than the breaker allows, and then one that opens it.
fn burst_of_dead_letters(tour: &mut Tour) {
    let fault = "a burst of dead letters";
    let lost = tour.case.lost();
    tour.case.insert(&lost, 0..3, 0, 10);
    wait_until("ten open dead letters", || metric(&tour.relay, "outbox_dlq_depth") == Some(10.0));
    assert_eq!(status(&tour.relay)["dead_letters"]["open"], 10);
    tour.browser.wait_text("[data-path='/dead_letters/open']", |text| text == "10");
    tour.alerted(fault, "WalrelayDeadLetters", true);
    tour.case.insert(&lost, 0..3, 10, 50);
    tour.all_miss(fault, 6, "dead-letter.breaker-open");
    // WHEN the route is there, and somebody acknowledges the stop THEN the relay goes on
    tour.case.site.open_route(&lost);
    tour.case.must(&["resume", "--yes"]);
    tour.relay.restart().unwrap();
    tour.relay.wait_ready(LIMIT).unwrap();
    tour.browser.wait_text("#link", |text| text == "live");
    tour.all_recover(fault, Some("WalrelayGone"));
    tour.case.must(&["dlq", "replay", "--all"]);
    tour.browser.wait_text("[data-path='/dead_letters/open']", |text| text == "0");
}

/// Events are lost to the relay: it ends, and says how to go on.
fn drop_the_slot(tour: &mut Tour) {
    let fault = "the slot is dropped";
    let name = tour.case.site.name.clone();
    wait_until("the slot dropped", || {
        tour.case.site.terminate_walsender();
        let gone = format!(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots
             where slot_name = '{name}' and not active"
        );
        tour.case.site.value(&gone);
        let left = format!("select count(*) from pg_replication_slots where slot_name = '{name}'");
        tour.case.site.value(&left) == "0"
    });
    tour.all_miss(fault, 3, "slot.missing");
    tour.case.must(&["init"]);
    tour.relay.restart().unwrap();
    tour.relay.wait_ready(LIMIT).unwrap();
    tour.all_recover(fault, Some("WalrelayGone"));
}
