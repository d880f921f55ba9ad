//! Rows of which something is larger than a broker takes: each has a letter that fits.

use walrelay_harness::{BrokerKind, proc};

use super::fixture::{DeadLetterFixture, held, ids};
use crate::support::{LIMIT, metric, stop, wait_until};

const PARK_KEY: &str = "on_dead_letter = \"park_key\"\n";
/// The prefix by which `walrelay dlq` names a key or an id that is cut.
const SHA256: &str = "sha256:";

/// Each row by its id: type of the aggregate, key, type, payload, headers. Nothing of it fits into
/// a record of 1 MB.
const ROWS: [(&str, [&str; 5]); 7] = [
    ("key", ["$name", "repeat('k', 1100000)", "'t'", "'{}'", "null"]),
    ("type", ["$name", "'k-type'", "repeat('t', 1100000)", "'{}'", "null"]),
    ("aggregatetype", ["repeat('a', 1100000)", "'k-aggregate'", "'t'", "'{}'", "null"]),
    (
        "header",
        ["$name", "'k-header'", "'t'", "'{}'", "jsonb_build_object('h', repeat('h', 1100000))"],
    ),
    ("name", ["$name", "'k-name'", "'t'", "'{}'", "jsonb_build_object(repeat('n', 1100000), 'v')"]),
    (
        "all",
        [
            "$name",
            "repeat('l', 500000)",
            "repeat('t', 300000)",
            "jsonb_build_object('x', repeat('y', 700000))",
            "jsonb_build_object('h', repeat('h', 300000), 'small', 'kept')",
        ],
    ),
    (
        "many",
        [
            "$name",
            "'k-many'",
            "'t'",
            "'{}'",
            "(select jsonb_object_agg('h' || n, n) from generate_series(1, 100000) n)",
        ],
    ),
];

fn arrange(case: &DeadLetterFixture) {
    case.site.execute(
        "alter table outbox drop constraint outbox_pkey, alter id type text, add headers jsonb",
    );
}

fn insert(case: &DeadLetterFixture, id: &str, [aggregate, key, kind, payload, headers]: [&str; 5]) {
    let aggregate = aggregate.replace("$name", &format!("'{}'", case.site.name));
    case.site.execute(&format!(
        "insert into outbox (id, aggregatetype, aggregateid, type, payload, headers)
         values ({id}, {aggregate}, {key}, {kind}, {payload}, {headers})"
    ));
}

/// Inserts all of them; `round` tells their ids from those of another round.
fn insert_all(case: &DeadLetterFixture, round: u32) -> Vec<String> {
    let mut expected = Vec::new();
    for (id, row) in ROWS {
        let id = format!("{id}-{round}");
        insert(case, &format!("'{id}'"), row);
        expected.push(id);
    }
    let id = format!("repeat('i', 1100000) || '{round}'");
    insert(case, &id, ["$name", "'k-id'", "'t'", "'{}'", "null"]);
    expected.push(format!("{SHA256}{}", sha256(case, &id)));
    expected
}

fn sha256(case: &DeadLetterFixture, text: &str) -> String {
    case.site.value(&format!("select encode(sha256(convert_to({text}, 'UTF8')), 'hex')"))
}

#[test]
fn rows_larger_than_a_record_are_dead_lettered() {
    let case = &DeadLetterFixture::on(BrokerKind::Kafka, "oversized", PARK_KEY, "");
    let letters = format!("{}.dlq", case.site.name);
    arrange(case);
    let reader = case.site.reader();
    let mut relay = case.relay();
    let mut expected = Vec::new();
    // GIVEN rows that are too large, round by round, and one behind them that is not
    for round in 0..3 {
        if round == 1 {
            // The topic takes less from now on, and nobody has told the relay.
            case.site.limit_route(&letters, 20_000);
        }
        if round == 2 {
            // THEN a relay that is started anew knows what the topic takes, and what is parked
            relay.restart().unwrap();
            relay.wait_ready(LIMIT).unwrap();
        }
        expected.extend(insert_all(case, round));
        insert(
            case,
            &format!("'plain-{round}'"),
            ["$name", &format!("'p{round}'"), "'t'", "'{}'", "null"],
        );
        // WHEN they are relayed THEN the slot moves over them
        case.site.wait_confirmed(&mut relay, LIMIT);
        let mut found = case.open();
        let mut all = expected.clone();
        found.sort();
        all.sort();
        assert_eq!(found, all);
    }
    // THEN what is behind one in its key is parked, whether its key was cut or not
    for round in 1..3 {
        for id in ["key", "type", "header", "name", "all"] {
            let [letter] = &case.list(&[&format!("{id}-{round}")])[..] else { panic!("{id}") };
            assert_eq!(letter["error_class"], "parked", "{letter}");
        }
    }
    // THEN what is cut cannot be published, and what is left of it says so
    let all = case.must(&["dlq", "show", "all-0", "--json"]).out;
    let all: serde_json::Value = serde_json::from_str(all.lines().next().unwrap()).unwrap();
    assert!(all["headers"].as_array().unwrap().iter().any(|header| header["name"] == "small"));
    let replayed = case.walrelay(&["dlq", "replay", "--all"]);
    assert_eq!(replayed.code, 1, "{replayed}");
    assert!(replayed.err.contains("dead-letter.unfit"), "{replayed}");
    assert_eq!(case.open().len(), expected.len());
    // WHEN a key is named by its hash THEN its letters are discarded, and it is released
    let key = format!("{SHA256}{}", sha256(case, "repeat('l', 500000)"));
    assert_eq!(ids(&case.list(&["--key", &key])), ["all-0", "all-1", "all-2"]);
    case.must(&["dlq", "discard", "--key", &key, "--yes"]);
    case.must(&["dlq", "release", "--key", &key]);
    let keys = (ROWS.len() + 1) as f64;
    wait_until("the release to be heard", || {
        metric(&relay, "outbox_dlq_parked_keys") == Some(keys - 1.0)
    });
    insert(case, "'released'", ["$name", "repeat('l', 500000)", "'t'", "'{}'", "null"]);
    case.site.wait_confirmed(&mut relay, LIMIT);
    assert!(ids(&case.list(&["--error-class", "parked"])).iter().all(|id| id != "released"));
    // THEN what could be published was
    let mut published: Vec<String> = held(reader).into_iter().map(|record| record.id).collect();
    published.sort();
    assert_eq!(published, ["plain-0", "plain-1", "plain-2", "released"]);
    stop(&mut relay);
}

#[test]
fn headers_of_any_size_take_no_more_than_twice_their_size() {
    const MB: u64 = 40;
    let case = DeadLetterFixture::on(BrokerKind::Kafka, "huge_headers", "", "");
    arrange(&case);
    let mut relay = case.relay();
    case.insert_one(&case.site.name, "k", 1);
    case.site.wait_confirmed(&mut relay, LIMIT);
    let before = proc::memory(relay.pid()).unwrap().peak_rss_bytes;
    // GIVEN a row with one header of that size WHEN it becomes a dead letter
    let headers = format!("jsonb_build_object('h', repeat('h', {MB} << 20))");
    insert(&case, "'huge'", ["$name", "'k'", "'t'", "'{}'", &headers]);
    case.site.wait_confirmed(&mut relay, LIMIT);
    assert_eq!(case.open(), ["huge"]);
    // THEN the process had it twice at most: as it came, and as it is published
    let more = (proc::memory(relay.pid()).unwrap().peak_rss_bytes - before) >> 20;
    println!("{more} MB more for {MB} MB of headers");
    assert!(more <= 2 * MB + 8, "{more} MB");
}
