//! A silent stream: Postgres decodes, or the connection is dead.

use std::time::Duration;

use walrelay_harness::proxy::Proxy;
use walrelay_harness::relay::{RelayConfig, RelayProcess, Response, get};

use crate::support::{Fixture, LIMIT, metric, shared_postgres, until, whole_machine};

/// Rows that take Postgres many times the limit to decode.
const ROWS: u32 = 2_000_000;

fn impatient(site: &Fixture) -> RelayConfig {
    RelayConfig { source_extra: "stall_timeout = \"200ms\"\n".into(), ..site.config() }
}

fn ready(relay: &RelayProcess) -> Option<Response> {
    get(relay.admin(), "/readyz", Duration::from_secs(2)).ok()
}

#[test]
#[ignore = "soak"]
fn a_postgres_that_decodes_in_silence_is_waited_for() {
    let _machine = whole_machine();
    // GIVEN a relay with little patience, and a table that is none of its business
    let site = Fixture::shared("silence_decoding");
    site.execute("create table other (n int4)");
    let (mut relay, reader) = (site.relay_with(impatient(&site)), site.reader());
    // WHEN many rows are written to it in one transaction, and then an event
    site.execute(&format!("insert into other select generate_series(1, {ROWS})"));
    site.insert_event("key", 1);
    // THEN the relay says that nothing moves, and why
    let told = until("the reason", LIMIT, || {
        ready(&relay).filter(|answer| answer.body.contains("postgres_decoding"))
    });
    assert_eq!(told.status, 503, "{}", told.body);
    // AND the event arrives over the same connection
    let (verdict, _) = site.judge(&mut relay, reader);
    verdict.assert_exact(0);
    until("ready", LIMIT, || ready(&relay).filter(|answer| answer.status == 200));
    assert_eq!(metric(&relay, "outbox_source_reconnects_total"), Some(0.0), "{}", relay.tail(20));
    assert!(relay.said("postgres decodes and sends nothing"), "{}", relay.tail(20));
    assert!(relay.said("sends again"), "{}", relay.tail(20));
}

#[test]
fn a_connection_that_carries_nothing_any_more_is_given_up() {
    // GIVEN a relay behind a network that can lose what it carries without a word
    let site = Fixture::shared("silence_network");
    let port = shared_postgres().port();
    let proxy = Proxy::start(port).unwrap();
    let mut config = impatient(&site);
    config.url = config.url.replace(&port.to_string(), &proxy.port.to_string());
    let (mut relay, reader) = (site.relay_with(config), site.reader());
    site.insert_event("key", 1);
    site.wait_confirmed(&mut relay, LIMIT);
    // WHEN it does so, while new connections are carried
    proxy.silence();
    site.insert_event("key", 2);
    // THEN the relay opens another connection, and the event arrives
    let (verdict, _) = site.judge(&mut relay, reader);
    verdict.assert_exact(0);
    assert!(relay.said("the connection is taken for dead"), "{}", relay.tail(20));
    assert!(metric(&relay, "outbox_source_reconnects_total") >= Some(1.0));
}
