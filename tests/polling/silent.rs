//! A destination that confirms nothing while others do.

use std::collections::HashSet;

use walrelay_harness::oracle;

use super::{config, polled_to_rabbitmq, statuses, wait_settled};
use crate::support::{Fixture, LIMIT, shared_rabbitmq, status, wait_until};

/// Rows of `kind`, spread over fifty keys that begin with it.
fn insert(site: &Fixture, kind: &str, count: u64) {
    site.execute(&format!(
        "insert into outbox (id, aggregatetype, aggregateid, type, payload)
         select gen_random_uuid(), '{kind}', '{kind}' || i % 50, 'created',
         jsonb_build_object('seq', i) from generate_series(1, {count}) i order by i"
    ));
}

#[test]
fn a_queue_that_confirms_nothing_holds_back_its_own_rows_and_is_named() {
    let site = polled_to_rabbitmq("polling_silent");
    let mut config = config(&site, "interval = \"20ms\"\nbatch_max = 200");
    config.topic = format!("{}.${{aggregatetype}}", site.name);
    let [good, silent] = ["good", "silent"].map(|kind| format!("{}.{kind}", site.name));
    for queue in [&good, &silent] {
        site.open_route(queue);
    }
    let mut relay = site.relay_with(config);
    // GIVEN rows for a queue that confirms nothing
    let suspended = shared_rabbitmq().suspend_queue(&silent).unwrap();
    insert(&site, "silent", 1_000);
    // WHEN rows for another come
    insert(&site, "good", 3_000);
    // THEN they are published, and the silent one is named
    let left = "select count(*) from outbox where aggregatetype = 'good' and status <> 'published'";
    wait_until("the rows of the other queue", || {
        assert!(relay.is_running(), "{}", relay.tail(20));
        site.value(left) == "0"
    });
    let named = format!("routing key {silent} of exchange {} confirms nothing", site.name);
    wait_until("the reason", || {
        let reason = status(&relay)["reason"].clone();
        let text = reason["text"].as_str().unwrap_or_default();
        reason["code"] == "destination_silent" && text.contains(&named)
    });
    let published =
        "select count(*) from outbox where aggregatetype = 'silent' and status = 'published'";
    assert_eq!(site.value(published), "0");
    // WHEN it answers again THEN each row is there once, in order
    drop(suspended);
    wait_settled(&site, LIMIT);
    assert_eq!(statuses(&site), "published 4000", "{}", relay.tail(20));
    let truth = oracle::read_truth(&site.url, "public.outbox").unwrap();
    for (kind, queue) in [("good", good), ("silent", silent)] {
        let truth: Vec<_> = truth.iter().filter(|row| row.key.starts_with(kind)).cloned().collect();
        let held = site.reader_of(&queue).finish().swap_remove(0);
        let verdict = oracle::check(&truth, &held, &HashSet::new());
        println!("{queue}: {verdict}");
        verdict.assert_exact(0);
    }
}
