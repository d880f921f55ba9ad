//! An address behind which two servers stand, as while a virtual address moves or two primaries live:
//! SQL goes to one and the stream to the other. What one says must not be believed of the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use walrelay_harness::proxy::{Proxy, SplitTargets};
use walrelay_harness::{BrokerKind, Postgres, PostgresOptions};

use crate::support::{Fixture, LIMIT, metric, start, wait_until};

const NAME: &str = "two_servers";

#[test]
fn sql_and_the_stream_come_from_one_server() {
    // GIVEN two servers of one system and timeline, each with the slot, behind one address
    let original = Postgres::start(PostgresOptions::default()).unwrap();
    let site = Fixture::new(&original, BrokerKind::Kafka, NAME);
    let twin = Postgres::twin(&original).unwrap();
    let slot = format!("select pg_create_logical_replication_slot('{NAME}', 'pgoutput')");
    twin.sql(NAME, &slot).unwrap();
    let replication = Arc::new(AtomicU16::new(twin.port()));
    let (target, sql) = (Arc::clone(&replication), original.port());
    let targets = move || SplitTargets { sql, replication: target.load(Ordering::Relaxed) };
    let proxy = Proxy::start_split(targets).unwrap();
    let mut config = site.config();
    let host = |port: u16| format!("127.0.0.1:{port}");
    config.url = config.url.replace(&host(original.port()), &host(proxy.port));
    // WHEN a relay starts THEN it says so, and streams from neither
    let reader = site.reader();
    let mut relay = start(config, NAME);
    wait_until("two servers", || relay.said("source.two-servers"));
    site.insert_event("key", 1);
    twin.sql(NAME, "insert into outbox values (gen_random_uuid(), 'order', 'twin', 'x', '{}')")
        .unwrap();
    // WHEN both are the same THEN it goes on there
    replication.store(original.port(), Ordering::Relaxed);
    relay.wait_ready(LIMIT).unwrap();
    site.wait_confirmed(&mut relay, LIMIT);
    // WHEN that changes while it lives THEN it waits
    replication.store(twin.port(), Ordering::Relaxed);
    let count =
        || std::fs::read_to_string(relay.log_file()).unwrap().matches("source.two-servers").count();
    let told = count();
    proxy.cut();
    wait_until("two servers", || count() > told);
    let received = metric(&relay, "outbox_events_total{outcome=\"published\"}");
    assert_eq!(received, Some(1.0), "{}", relay.tail(20));
    site.insert_event("key", 2);
    replication.store(original.port(), Ordering::Relaxed);
    proxy.cut();
    let (verdict, _) = site.judge(&mut relay, reader);
    verdict.assert_exact(0);
}
