//! Rows that cannot be published: tried again, given up, put back.

use walrelay_harness::BrokerKind;
use walrelay_harness::relay::RelayConfig;

use super::{config, polled_site, polled_to_rabbitmq, statuses, wait_settled};
use crate::support::{Fixture, LIMIT, metric, on_both_brokers, status, stop, wait_until};

fn insert(site: &Fixture, kind: &str, key: &str, seq: u64) {
    site.execute(&format!(
        "insert into outbox (id, aggregatetype, aggregateid, type, payload)
         values (gen_random_uuid(), '{kind}', '{key}', 'created', '{{\"seq\": {seq}}}')"
    ));
}

const QUICK: &str = "attempts_max = 3\nbackoff_base = \"20ms\"\nbackoff_cap = \"50ms\"\n";

/// A configuration with these lines of `[delivery]`, and a topic for each aggregate type, so that one
/// of them can be missing.
fn config_by_type(site: &Fixture, delivery: &str) -> RelayConfig {
    let topic = format!("{}.${{aggregatetype}}", site.name);
    let extra = format!("[delivery]\n{delivery}");
    RelayConfig { topic, extra, ..config(site, "interval = \"20ms\"") }
}

/// The same with dead letters of the site's own, which are made.
fn config_with_letters(site: &Fixture, delivery: &str) -> RelayConfig {
    let mut config = config_by_type(site, delivery);
    let name = &site.name;
    config.extra += &format!("[dead_letter]\ntopic = \"{name}.dlq\"\nexchange = \"{name}.dlx\"\n");
    site.command(&config, &["init", "--yes"]).wait().assert_done();
    config
}

fn a_row_is_given_up_after_its_attempts_and_put_back(kind: BrokerKind) {
    let site = &polled_site(Fixture::on(kind, "polling_failed"));
    let config = config_by_type(site, QUICK);
    site.open_route(&format!("{}.good", site.name));
    let mut relay = site.relay_with(config.clone());
    // GIVEN rows of a route that leads nowhere, and of others
    insert(site, "bad", "a", 1);
    insert(site, "good", "a", 2);
    insert(site, "good", "b", 3);
    wait_settled(site, LIMIT);
    // THEN the one is given up with its reason, the others are published, and there is a letter
    assert_eq!(statuses(site), "failed 1, published 2");
    let told = site.value(
        "select (retry_count = 3 and failure_reason <> '' and failed_at is not null and locked_at is null)::text
         from outbox where status = 'failed'",
    );
    assert_eq!(
        told,
        "true",
        "{}",
        site.value("select outbox::text from outbox where status = 'failed'")
    );
    assert_eq!(metric(&relay, "outbox_events_total{outcome=\"dead_lettered\"}"), Some(1.0));
    assert_eq!(metric(&relay, "outbox_events_total{outcome=\"published\"}"), Some(2.0));
    // WHEN its route is mended and it is put back THEN it is published
    site.open_route(&format!("{}.bad", site.name));
    let bad = site.reader_of(&format!("{}.bad", site.name));
    let walrelay = |words: &[&str]| site.command(&config, words).wait();
    let id = site.value("select id::text from outbox where status = 'failed'");
    walrelay(&["outbox", "list", "--json"]).assert_done().assert_says(&[&id]);
    assert_eq!(walrelay(&["outbox", "retry"]).code, 2, "nothing was named");
    let unknown = walrelay(&["outbox", "retry", "no such id"]);
    unknown.assert_says(&["no failed row has one of these ids: no such id"]);
    assert_eq!(unknown.code, 1);
    // WHEN one would only look THEN it stays as it is
    let would = walrelay(&["outbox", "retry", &id, "--dry-run", "--output", "json"]);
    assert_eq!(would.assert_done().out, "{\"dry_run\":true,\"rows\":1}\n");
    walrelay(&["outbox", "list", &id]).assert_done().assert_says(&[&id]);
    let retried = walrelay(&["outbox", "retry", &id]);
    retried.assert_done().assert_says(&["1 row will be published again"]);
    wait_settled(site, LIMIT);
    assert_eq!(statuses(site), "published 3", "{}", relay.tail(20));
    assert_eq!(bad.finish().swap_remove(0).len(), 1);
    stop(&mut relay);
}

#[test]
fn a_dead_letter_that_cannot_be_written_holds_up_its_key_and_no_other() {
    let site = &polled_to_rabbitmq("polling_unwritten");
    let config = config_with_letters(site, QUICK);
    site.open_route(&format!("{}.good", site.name));
    // GIVEN a relay whose dead-letter topic has gone, and a row that cannot be published
    let relay = site.relay_with(config);
    site.remove_dead_letters();
    insert(site, "bad", "a", 1);
    wait_until("attempts to write the letter", || {
        metric(&relay, "outbox_dlq_publish_failed_total") >= Some(2.0)
    });
    // WHEN rows of other keys come THEN they are published, and the reason is said
    insert(site, "good", "b", 2);
    insert(site, "good", "c", 3);
    let good = "select count(*) from outbox where status = 'published'";
    wait_until("the other keys", || site.value(good) == "2");
    assert_eq!(status(&relay)["reason"]["code"], "dead_letter_unwritten");
    assert_eq!(statuses(site), "in_progress 1, published 2");
}

on_both_brokers!(a_row_is_given_up_after_its_attempts_and_put_back, rabbitmq in soak);

#[test]
#[ignore = "soak"]
fn a_row_whose_key_is_parked_is_published_once_its_key_is_released_and_it_is_put_back() {
    let site = &polled_to_rabbitmq("polling_parked");
    let config = config_with_letters(site, &format!("{QUICK}on_dead_letter = \"park_key\"\n"));
    let mut relay = site.relay_with(config.clone());
    // GIVEN a row that cannot be published, and has parked its key
    insert(site, "bad", "a", 1);
    wait_settled(site, LIMIT);
    site.open_route(&format!("{}.bad", site.name));
    let walrelay = |words: &[&str]| site.command(&config, words).wait();
    let id = site.value("select id::text from outbox");
    // WHEN it is put back at once THEN it fails again, as both have said
    for words in [&["outbox", "retry", &id, "--dry-run"][..], &["outbox", "retry", &id]] {
        let told = walrelay(words);
        told.assert_done().assert_says(&["unless the key is parked", "walrelay dlq release --key"]);
    }
    let why = "select failure_reason from outbox where status = 'failed'";
    wait_until("the row to fail again", || site.value(why).contains("an earlier event of its key"));
    // WHEN the commands are run in the order that it has said THEN it is published
    walrelay(&["dlq", "discard", &id, "--yes"]).assert_done();
    walrelay(&["dlq", "release", "--key", "a"]).assert_done().assert_says(&["key a released"]);
    wait_until("the release to be read", || metric(&relay, "outbox_dlq_parked_keys") == Some(0.0));
    walrelay(&["outbox", "retry", "--key", "a"]).assert_done();
    wait_settled(site, LIMIT);
    assert_eq!(statuses(site), "published 1", "{}", relay.tail(20));
    stop(&mut relay);
}

#[test]
fn a_list_for_programs_has_every_row_and_one_for_people_says_that_it_has_not() {
    let site = polled_to_rabbitmq("polling_list");
    let config = config(&site, "interval = \"20ms\"");
    site.execute(
        "insert into outbox (id, aggregatetype, aggregateid, type, payload, status)
         select gen_random_uuid(), 'x', 'k', 'created', '{}', 'failed' from generate_series(1, 1500)",
    );
    let list = |more: &[&str]| {
        let ended = site.command(&config, &[&["outbox", "list"], more].concat()).wait();
        ended.assert_done();
        let noted =
            ended.err.lines().find(|line| line.contains("only the first")).map(str::to_owned);
        (ended.out.lines().count(), noted.unwrap_or_default())
    };
    assert_eq!(list(&["--json"]), (1500, String::new()));
    let array = site.command(&config, &["outbox", "list", "--output", "json"]).wait();
    let rows: Vec<serde_json::Value> = serde_json::from_str(&array.assert_done().out).unwrap();
    assert_eq!(rows.len(), 1500);
    let (shown, note) = list(&[]);
    assert_eq!(shown, 1 + 1000);
    assert!(note.contains("first 1000 rows"), "{note}");
    assert_eq!(list(&["--json", "--limit", "1500"]), (1500, String::new()));
    assert!(list(&["--json", "--limit", "7"]).1.contains("first 7 rows"));
}

#[test]
fn a_row_is_listed_although_it_has_no_id_and_no_count_of_attempts() {
    let site = polled_to_rabbitmq("polling_nulls");
    let config = config(&site, "interval = \"20ms\"");
    // GIVEN a table that allows both, and a row of another program
    site.execute("alter table outbox alter retry_count drop not null");
    let key =
        "select conname from pg_constraint where conrelid = 'outbox'::regclass and contype = 'p'";
    site.execute(&format!("alter table outbox drop constraint {}", site.value(key)));
    site.execute("alter table outbox alter id drop not null");
    site.execute(
        "insert into outbox (id, aggregatetype, aggregateid, type, payload, status, retry_count)
         values (null, 'x', 'k', 'created', '{}', 'failed', null)",
    );
    let row = site.command(&config, &["outbox", "list", "--json"]).wait();
    let row = row.assert_done().json();
    assert_eq!((&row["id"], &row["retry_count"]), (&serde_json::Value::Null, &0.into()));
    let table = site.command(&config, &["outbox", "list"]).wait();
    let line = table.assert_done().out.lines().nth(1).unwrap_or_default();
    assert!(line.starts_with("- ") && line.contains("failed"), "{table}");
}

#[test]
fn a_row_that_waits_for_its_retry_holds_up_its_key_and_no_other_and_is_given_back_at_the_end() {
    let site = polled_to_rabbitmq("polling_waits");
    let slow = "attempts_max = 5\nbackoff_base = \"1h\"\nbackoff_cap = \"1h\"\n";
    let config = config_by_type(&site, slow);
    site.open_route(&format!("{}.good", site.name));
    let mut relay = site.relay_with(config);
    insert(&site, "bad", "a", 1);
    let noted = "select (retry_count = 1 and next_retry_at > now() and failure_reason <> '' and status = 'in_progress')::text from outbox";
    wait_until("the attempt to be written down", || site.value(noted) == "true");
    // WHEN more of its key comes, and of others
    insert(&site, "good", "a", 2);
    insert(&site, "good", "b", 3);
    let others = "select status from outbox where aggregateid = 'b'";
    wait_until("the other key", || site.value(others) == "published");
    assert_eq!(statuses(&site), "in_progress 1, pending 1, published 1");
    // THEN a stop gives it back, with its attempts and its wait
    stop(&mut relay);
    let given_back =
        "select (retry_count = 1 and next_retry_at > now() and status = 'pending')::text
                      from outbox order by position limit 1";
    assert_eq!(site.value(given_back), "true", "{}", statuses(&site));
}
