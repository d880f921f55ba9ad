//! Every query of the dashboards and of the alert rules, asked of a real Prometheus that scrapes one
//! relay of a slot, one that polls, and a consumer.
//!
//! A query must find a number: a metric or a label that is misspelt finds no series, and one that
//! nothing records finds NaN only.

use std::net::SocketAddr;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use walrelay_harness::relay::RelayProcess;
use walrelay_harness::{BrokerKind, Prometheus};

use super::consumer::ScrapedConsumer;
use super::promql::selectors;
use super::{read, root};
use crate::dead_letters::fixture::DeadLetterFixture;
use crate::polling;
use crate::support::{Fixture, LIMIT, metric, until};

/// The interval of scrapes, and of evaluations of the rules.
const INTERVAL: &str = "500ms";
/// The values of Grafana's variables; at least four scrapes, as its manual says.
const VARIABLES: [(&str, &str); 3] =
    [("$__rate_interval", "4s"), ("$job", "walrelay"), ("$instance", ".*")];

/// Queries of all panels, each with the panel's name.
fn panel_queries() -> Vec<(String, String)> {
    let folder = root().join("config/grafana/dashboards");
    let mut queries = Vec::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let board = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let board: Value = serde_json::from_str(&board).unwrap();
        for panel in board["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().into_iter().flatten() {
                let expression = target["expr"].as_str().unwrap().to_owned();
                let place = format!("{}: {}", board["title"], panel["title"]);
                queries.push((place, expression));
            }
        }
    }
    assert!(queries.len() > 30, "the panels were not found");
    queries
}

pub(crate) struct Scraper(Prometheus);

impl Scraper {
    /// The shipped configuration, with these relays and short intervals.
    pub(crate) fn start(relays: &[&RelayProcess]) -> Scraper {
        let admins: Vec<SocketAddr> = relays.iter().map(|relay| relay.admin()).collect();
        Scraper::of(&admins)
    }

    fn of(targets: &[SocketAddr]) -> Scraper {
        let targets: Vec<String> = targets.iter().map(|address| format!("\"{address}\"")).collect();
        let shipped = read("config/prometheus.yml");
        let configuration = shipped
            .replace("interval: 5s", &format!("interval: {INTERVAL}"))
            .replace("\"walrelay:9464\"", &targets.join(", "));
        assert_ne!(configuration, shipped);
        let rules = read("config/alerts.yml");
        Scraper(Prometheus::start(&configuration, &[("alerts.yml", &rules)]).unwrap())
    }

    fn data(&self, path: &str) -> Value {
        let answer = self.0.get(path).unwrap();
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        let mut answer: Value = serde_json::from_str(&answer.body).unwrap();
        answer["data"].take()
    }

    /// The values that an expression has now.
    pub(crate) fn values(&self, expression: &str) -> Vec<f64> {
        let query = utf8_percent_encode(expression, NON_ALPHANUMERIC);
        let data = self.data(&format!("/api/v1/query?query={query}"));
        let series = data["result"].as_array().unwrap().iter();
        series.map(|one| one["value"][1].as_str().unwrap().parse().unwrap()).collect()
    }

    /// Waits until the rules were evaluated with what is scraped by now.
    pub(crate) fn wait_evaluated(&self) {
        let last = || self.data("/api/v1/rules")["groups"][0]["lastEvaluation"].take();
        // One that has begun already may not have seen it.
        for _ in 0..2 {
            let before = last();
            until("the rules evaluated", LIMIT, || (last() != before).then_some(()));
        }
    }

    #[track_caller]
    fn wait_for_number(&self, place: &str, expression: &str) {
        until(&format!("{place} finds a number: {expression}"), LIMIT, || {
            self.values(expression).iter().any(|value| !value.is_nan()).then_some(())
        });
    }
}

/// A relay of a slot that has published, retried and given up, and keeps doing so.
fn insert(case: &DeadLetterFixture, polled: &Fixture, seq: u64) {
    case.insert_one(&case.site.name, "k", seq);
    case.insert_one(&case.lost(), "l", seq);
    polled.execute(&format!(
        "insert into outbox (id, aggregatetype, aggregateid, type, payload)
         values (gen_random_uuid(), 'order', 'k', 'created', '{{\"seq\": {seq}}}')"
    ));
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn every_query_of_dashboards_and_alerts_finds_series() {
    // GIVEN a relay of a slot, whose events go well or nowhere, and one that polls
    let case = DeadLetterFixture::on(
        BrokerKind::Kafka,
        "dashboards",
        "attempts_max = 2\n",
        "burst_max = 100000\n",
    );
    let relay = case.relay();
    let polled = polling::polled_site(Fixture::shared("dashboards_polled"));
    let polling = polled.relay_with(polling::config(&polled, "interval = \"50ms\""));
    // GIVEN a consumer of what goes well
    let consumer = ScrapedConsumer::start(&case.site);
    let scraper = Scraper::of(&[relay.admin(), polling.admin(), consumer.address]);
    until("all are scraped", LIMIT, || (scraper.values("up == 1").len() == 3).then_some(()));
    // WHEN events come, some of them are retried, and given up
    let mut seq = 0;
    let mut more = || {
        seq += 1;
        insert(&case, &polled, seq);
    };
    until("a retry and a dead letter", LIMIT, || {
        more();
        let at_least_one = |name: &str| metric(&relay, name).is_some_and(|value| value >= 1.0);
        let lettered = at_least_one("outbox_events_total{outcome=\"dead_lettered\"}");
        (at_least_one("outbox_retries_total") && lettered).then_some(())
    });
    // THEN each stage of the loop is recorded where a slot is read
    for stage in ["read", "publish", "confirm", "feedback"] {
        let name = format!("outbox_stage_seconds_count{{stage=\"{stage}\"}}");
        until(&name, LIMIT, || metric(&relay, &name).filter(|count| *count > 0.0));
    }
    // THEN every panel shows something
    for (place, expression) in panel_queries() {
        let expression =
            VARIABLES.iter().fold(expression, |text, (name, value)| text.replace(name, value));
        more();
        scraper.wait_for_number(&place, &expression);
    }
    // THEN every rule is evaluated, and each metric in it exists with its labels
    let rules = scraper.data("/api/v1/rules");
    let rules = rules["groups"][0]["rules"].as_array().unwrap();
    assert!(rules.len() > 10, "the rules were not found");
    for rule in rules {
        let (name, expression) = (rule["name"].as_str().unwrap(), rule["query"].as_str().unwrap());
        let selectors = selectors(expression);
        assert!(!selectors.is_empty(), "{name}: {expression}");
        for selector in selectors {
            scraper.wait_for_number(name, &selector);
        }
        let evaluated = || (rule["health"] != "err").then_some(());
        evaluated().unwrap_or_else(|| panic!("{name}: {}", rule["lastError"]));
    }
    // THEN the alert on dead letters fires, and leads to the runbook
    let firing = until("WalrelayDeadLetters fires", Duration::from_secs(30), || {
        let alerts = scraper.data("/api/v1/alerts");
        let mut alerts = alerts["alerts"].as_array().unwrap().clone().into_iter();
        alerts.find(|alert| {
            alert["labels"]["alertname"] == "WalrelayDeadLetters" && alert["state"] == "firing"
        })
    });
    assert_eq!(firing["annotations"]["runbook_url"], "docs/runbook.md#walrelaydeadletters");
    assert_eq!(firing["labels"]["instance"], relay.admin().to_string());
}
