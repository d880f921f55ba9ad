//! A process that was frozen for longer than its lease publishes none of the rows that it held.

use std::collections::HashSet;
use walrelay_harness::BrokerKind;

use walrelay_harness::oracle;
use walrelay_harness::proxy::Proxy;

use super::{config, polled_site, wait_settled};
use crate::e2e::fencing::{EACH, KEYS, holds_nothing, insert, stale};
use crate::support::{Fixture, LIMIT, metric, shared_postgres, shared_rabbitmq, start, until};

#[test]
fn a_frozen_process_publishes_nothing_behind_the_one_that_took_its_rows() {
    let network = Proxy::start(shared_rabbitmq().port()).unwrap();
    let site =
        polled_site(Fixture::new(shared_postgres(), BrokerKind::RabbitMq, "polling_fencing"));
    let short = config(&site, "lease = \"2s\"");
    let mut behind = short.clone();
    let target = behind.rabbitmq.as_mut().unwrap();
    let direct = format!(":{}", shared_rabbitmq().port());
    target.url = target.url.replace(&direct, &format!(":{}", network.port));
    // GIVEN a process that is frozen with rows in hand, of which its broker has seen nothing
    let mut first = start(behind, "polling_fencing_first");
    first.wait_ready(LIMIT).unwrap();
    insert(&site, 1);
    wait_settled(&site, LIMIT);
    network.silence();
    insert(&site, 1 + EACH);
    let held = (KEYS * EACH) as f64;
    until("rows in hand", LIMIT, || {
        (metric(&first, "outbox_in_flight_events") == Some(held)).then_some(())
    });
    first.freeze().unwrap();
    // WHEN another has taken them and published newer ones, and the first runs again
    let mut second = start(short, "polling_fencing_second");
    second.wait_ready(LIMIT).unwrap();
    insert(&site, 1 + 2 * EACH);
    wait_settled(&site, LIMIT);
    network.cut();
    first.thaw().unwrap();
    holds_nothing(&first);
    // THEN nothing of it stands behind them
    let truth = oracle::read_truth(&site.url, "public.outbox").unwrap();
    let records = site.reader().finish().swap_remove(0);
    let found = stale(&truth, &records);
    assert_eq!(found, (0, 0), "{}", first.tail(30));
    let verdict = oracle::check(&truth, &records, &HashSet::new());
    // On a busy machine the second may be late with its renewals, too.
    verdict.assert_exact(verdict.duplicates);
    // AND it goes on
    insert(&site, 1 + 3 * EACH);
    drop(second);
    wait_settled(&site, LIMIT);
    assert!(first.is_running(), "{}", first.tail(20));
}
