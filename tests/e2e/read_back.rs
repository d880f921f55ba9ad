//! Tests of reading back: a process does not publish again what a topic holds when it starts,
//! though nothing is known of the process before: no state file, and no position in the slot.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use walrelay_harness::consumer::{Record, alter_topic, end_offsets};
use walrelay_harness::relay::{RelayConfig, RelayProcess};

use crate::support::{Fixture, LIMIT, metric, shared_kafka, start, state, until, wait_until};

const KILLS: usize = 4;
const KEYS: u64 = 50;

/// The ends of the partitions when a process started.
type Ends = BTreeMap<i32, i64>;

fn ends(site: &Fixture) -> Ends {
    end_offsets(&shared_kafka().bootstrap(), &site.name).unwrap()
}

fn held(ends: &Ends) -> i64 {
    ends.values().sum()
}

fn known(relay: &RelayProcess) -> Option<f64> {
    metric(relay, "outbox_events_known_total{source=\"topic\"}")
}

/// A relay that is slow enough to be killed in time.
fn narrow(site: &Fixture) -> RelayProcess {
    site.relay_with(relay_config(site))
}

fn relay_config(site: &Fixture) -> RelayConfig {
    let extra = "[delivery]\nwindow_events_max = 500\n".into();
    RelayConfig { extra, ..site.config() }
}

/// Kills the relay once the topic holds so many records. The relay stands still while they are counted.
fn kill_at(site: &Fixture, relay: &mut RelayProcess, records: i64) {
    wait_until("some records", || {
        relay.freeze().unwrap();
        let is_reached = held(&ends(site)) >= records;
        if !is_reached {
            relay.thaw().unwrap();
        }
        is_reached
    });
    relay.kill9().unwrap();
}

/// Kills the relay again and again, each time before it has published all, and tells what the topic
/// held when the next one started.
fn kill(
    site: &Fixture,
    relay: &mut RelayProcess,
    events: i64,
    each: impl Fn(&RelayProcess, &Ends),
) -> Vec<Ends> {
    let part = events / (KILLS as i64 + 1);
    let starts = (1..=KILLS as i64).map(|number| {
        kill_at(site, relay, number * part);
        let held = ends(site);
        relay.restart().unwrap();
        relay.wait_ready(LIMIT).unwrap();
        each(relay, &held);
        held
    });
    starts.collect()
}

/// The records that a process has published though the topic held them when it started.
fn repeated<'r>(records: &'r [Record], starts: &[Ends]) -> Vec<&'r Record> {
    let mut first: HashMap<(&str, Option<u64>), (i32, i64)> = HashMap::new();
    for record in records {
        let at = first.entry((&record.id, record.lsn)).or_insert((record.partition, record.offset));
        assert_eq!(at.0, record.partition);
        at.1 = at.1.min(record.offset);
    }
    let is_repeated = |record: &&Record| {
        let (partition, first) = first[&(record.id.as_str(), record.lsn)];
        starts.iter().any(|ends| first < ends[&partition] && record.offset >= ends[&partition])
    };
    records.iter().filter(is_repeated).collect()
}

fn what_the_topic_holds_is_not_repeated(name: &str, timestamps: &str) {
    const EVENTS: u64 = 40_000;
    let site = Fixture::shared(name);
    let kafka = shared_kafka().bootstrap();
    alter_topic(&kafka, &site.name, "message.timestamp.type", timestamps).unwrap();
    let (mut relay, reader) = (narrow(&site), site.reader());
    // GIVEN one transaction, of which the slot knows nothing before its end
    site.insert_transaction(0, EVENTS, KEYS);
    // WHEN the relay is killed within it, again and again
    let starts = kill(&site, &mut relay, EVENTS as i64, |relay, ends| {
        if held(ends) >= EVENTS as i64 {
            return;
        }
        let passed_over = || known(relay).filter(|count| *count >= held(ends) as f64);
        until("what the topic held is passed over", LIMIT, passed_over);
    });
    for number in 0..10 {
        site.insert_event(&format!("key{number}"), EVENTS);
    }
    // THEN nothing is missing or out of order, and only what was on its way comes twice
    let (verdict, records) = site.judge(&mut relay, reader);
    println!("{starts:?} {verdict}");
    assert!(held(&starts[0]) < EVENTS as i64, "it was done before it was killed");
    assert_eq!(repeated(&records, &starts), Vec::<&Record>::new());
    verdict.assert_complete();
}

#[test]
#[ignore = "soak"]
fn what_the_topic_holds_is_not_repeated_by_the_time_of_the_broker() {
    what_the_topic_holds_is_not_repeated("look_append_time", "LogAppendTime");
}

#[test]
fn what_the_topic_holds_is_not_repeated_by_the_time_of_the_publish() {
    what_the_topic_holds_is_not_repeated("look_create_time", "CreateTime");
}

#[test]
fn equal_rows_with_equal_ids_are_all_there() {
    const TRANSACTIONS: usize = 60;
    const ROWS: u64 = 300;
    const KINDS: u64 = 50;
    let site = Fixture::shared("look_equal_rows");
    // GIVEN rows of one id, every sixth of a kind, and half of the kinds without a key
    site.execute(
        "alter table outbox drop constraint outbox_pkey, alter column aggregateid drop not null",
    );
    let (mut relay, reader) = (narrow(&site), site.reader());
    let copy = format!(
        "insert into outbox select '00000000-0000-0000-0000-000000000001', 'order',
             case n % 2 when 0 then 'key' || n % {KINDS} end, 'created',
             jsonb_build_object('kind', n % {KINDS}) from generate_series(1, {ROWS}) n;"
    );
    site.execute(&format!("begin; {} commit", copy.repeat(TRANSACTIONS / 2)));
    for _ in 0..TRANSACTIONS / 2 {
        site.execute(&copy);
    }
    let events = ROWS * TRANSACTIONS as u64;
    // WHEN the relay is killed again and again
    kill(&site, &mut relay, events as i64, |_, _| ());
    site.wait_confirmed(&mut relay, LIMIT);
    // THEN each row of each transaction is there
    let records = reader.finish().swap_remove(0);
    let mut counts: BTreeMap<(u64, u128), u64> = BTreeMap::new();
    for record in &records {
        *counts.entry((record.lsn.unwrap(), record.hash)).or_default() += 1;
    }
    let transactions: BTreeSet<u64> = counts.keys().map(|(lsn, _)| *lsn).collect();
    assert_eq!(transactions.len(), 1 + TRANSACTIONS / 2);
    assert_eq!(counts.len(), transactions.len() * KINDS as usize);
    for ((lsn, kind), count) in &counts {
        let times = if Some(lsn) == transactions.first() { TRANSACTIONS as u64 / 2 } else { 1 };
        assert!(*count >= times * ROWS / KINDS, "{count} of {kind:x} at {lsn:X}");
    }
    println!("{events} rows, {} records", records.len());
}

#[test]
fn what_a_peer_has_published_is_not_repeated_by_a_relay_that_streamed_before_it() {
    const EVENTS: u64 = 20_000;
    let site = Fixture::shared("look_after_peer");
    // GIVEN a relay that has streamed, and its peer, which has taken over from it
    let (mut relay, reader) = (narrow(&site), site.reader());
    let mut peer = start(relay_config(&site), "look_after_peer_second");
    wait_until("a standby", || state(&peer) == "standby");
    site.insert_event("first", 1);
    site.wait_confirmed(&mut relay, LIMIT);
    relay.freeze().unwrap();
    wait_until("a walsender", || site.terminate_walsender());
    peer.wait_ready(LIMIT).unwrap();
    site.insert_event("first", 2);
    site.wait_confirmed(&mut peer, LIMIT);
    relay.thaw().unwrap();
    wait_until("a standby", || state(&relay) == "standby");
    // WHEN the peer is killed within a transaction, of which the slot knows nothing before its end
    site.insert_transaction(0, EVENTS, KEYS);
    kill_at(&site, &mut peer, EVENTS as i64 / 2);
    let start = ends(&site);
    assert!(held(&start) < EVENTS as i64, "it was done before it was killed");
    // THEN what the topic held is not repeated
    let (verdict, records) = site.judge(&mut relay, reader);
    println!("{start:?} {verdict}");
    assert_eq!(repeated(&records, &[start]), Vec::<&Record>::new());
    verdict.assert_complete();
}
