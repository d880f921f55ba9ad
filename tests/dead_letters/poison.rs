//! One event that cannot be published among many that can.

use serde_json::Value;
use walrelay_harness::BrokerKind;

use super::fixture::{DeadLetterFixture, held, ids};
use crate::support::faults::read;
use crate::support::{LIMIT, metric, on_both_brokers, stop, volume, wait_until};

const KEYS: u64 = 100;

fn events() -> u64 {
    volume(3_000, 10_000)
}

#[test]
fn one_poison_among_many_of_100_keys_is_dead_lettered_alone() {
    // Larger than its topic takes: the broker refuses the whole batch.
    let case = DeadLetterFixture::on(BrokerKind::Kafka, "poison", "", "");
    // What was in flight behind the batch may come twice.
    let poison = one_poison(&case, events() / 2, |case, key, seq| {
        case.site.value(&format!(
            "insert into outbox values (gen_random_uuid(), '{}', '{key}', 'created',
             jsonb_build_object('seq', {seq}, 'x', repeat('y', 1500000))) returning id",
            case.site.name
        ))
    });
    // THEN the record itself, read by another client, is the event with its fate beside it
    let records = read(&["poison_kafka.dlq"]);
    let [record] = &records[..] else { panic!("{} records", records.len()) };
    assert_eq!(record.key(), Some("k7"));
    assert_eq!(record.value.as_ref().map(Vec::len), Some(900 << 10), "the value is cut");
    assert_eq!(record.header("id"), Some(poison.as_str()));
    let payload =
        |what: &str| case.site.value(&format!("select {what} from outbox where id = '{poison}'"));
    assert_eq!(
        record.header("dlq-value-size"),
        Some(payload("octet_length(payload::text)").as_str())
    );
    let sha256 = payload("encode(sha256(convert_to(payload::text, 'UTF8')), 'hex')");
    assert_eq!(record.header("dlq-value-sha256"), Some(sha256.as_str()));
    assert_eq!(record.header("dlq-original-topic"), Some("poison_kafka"));
    assert_eq!(record.header("dlq-error-class"), Some("kafka.message-size-too-large"));
}

#[test]
fn one_poison_among_many_of_100_keys_is_dead_lettered_alone_in_rabbitmq() {
    let case = DeadLetterFixture::on(BrokerKind::RabbitMq, "poison", "attempts_max = 3\n", "");
    one_poison(&case, 0, |case, key, seq| case.insert_one(&case.lost(), key, seq));
}

fn one_poison(
    case: &DeadLetterFixture,
    duplicates_max: u64,
    insert_poison: impl Fn(&DeadLetterFixture, &str, u64) -> String,
) -> String {
    // GIVEN a poison event in the middle of a backlog
    let name = case.site.name.clone();
    let reader = case.site.reader();
    case.insert(&name, 0..KEYS, 0, events() / 2);
    let poison = insert_poison(case, "k7", events() / 2);
    case.insert(&name, 0..KEYS, events() / 2 + 1, events() / 2 - 1);
    // WHEN it is relayed THEN all is settled
    let mut relay = case.relay();
    case.site.wait_confirmed(&mut relay, LIMIT);
    // THEN all others have arrived once and in order, the later ones of its key among them
    let others = held(reader);
    let verdict = case.judge(&name, &others, std::slice::from_ref(&poison));
    println!("{name}: {verdict}");
    verdict.assert_exact(duplicates_max);
    assert_eq!(verdict.distinct, events() - 1);
    // THEN the dead-letter topic holds exactly it, and says all there is to know
    let letters = case.list(&["--state", "all"]);
    assert_eq!(ids(&letters), [poison.as_str()]);
    provenance(case, &letters[0]);
    assert_eq!(metric(&relay, "outbox_events_total{outcome=\"dead_lettered\"}"), Some(1.0));
    assert_eq!(metric(&relay, "outbox_dlq_published_total"), Some(1.0));
    // What is terminal uses up no attempts.
    let exhausted = if letters[0]["error_class"] == "rabbitmq.no-route" { 1.0 } else { 0.0 };
    assert_eq!(metric(&relay, "outbox_retry_exhaustions_total"), Some(exhausted));
    wait_until("the depth to be known", || metric(&relay, "outbox_dlq_depth") == Some(1.0));
    assert!(metric(&relay, "outbox_dlq_oldest_age_seconds").unwrap() > 0.0);
    stop(&mut relay);
    poison
}

fn provenance(case: &DeadLetterFixture, letter: &Value) {
    let text = |name: &str| letter[name].as_str().unwrap_or_else(|| panic!("{name}: {letter}"));
    let id = text("event_id");
    let row = |what: &str| case.site.value(&format!("select {what} from outbox where id = '{id}'"));
    assert_eq!(text("key"), row("aggregateid"));
    assert_eq!(text("topic"), row("aggregatetype"));
    assert_eq!(text("state"), "open");
    assert!(letter["attempts"].as_u64().unwrap() >= 1, "{letter}");
    assert!(!text("error_msg").is_empty());
    let (failed, first) = (text("failed_at"), text("first_failed_at"));
    assert_eq!(row(&format!("timestamptz '{first}' <= timestamptz '{failed}'")), "t");
    let commit = text("commit_ts");
    assert_eq!(row(&format!("pg_xact_commit_timestamp(xmin) = timestamptz '{commit}'")), "t");
    let lsn = text("lsn");
    assert_eq!(row(&format!("pg_lsn '{lsn}' <= pg_current_wal_lsn()")), "t");
}

on_both_brokers!(rows_that_no_route_can_carry_are_dead_lettered, rabbitmq in soak);

fn rows_that_no_route_can_carry_are_dead_lettered(kind: BrokerKind) {
    let case = DeadLetterFixture::on(kind, "unroutable_row", "", "");
    // GIVEN a row without what its route needs, between others of its key
    case.site.execute("alter table outbox alter aggregatetype drop not null");
    let name = case.site.name.clone();
    let reader = case.site.reader();
    case.insert_one(&name, "k", 1);
    let broken = case.site.value(
        "insert into outbox values (gen_random_uuid(), null, 'k', 'created', '{\"seq\": 2}')
         returning id",
    );
    case.insert_one(&name, "k", 3);
    // WHEN it is relayed
    let mut relay = case.relay();
    case.site.wait_confirmed(&mut relay, LIMIT);
    // THEN the others are there, and it is a letter with its payload
    let verdict = case.judge(&name, &held(reader), &[]);
    verdict.assert_exact(0);
    let letters = case.list(&[]);
    assert_eq!(ids(&letters), [broken.as_str()]);
    assert_eq!(letters[0]["error_class"], "null-in-template");
    let shown = case.must(&["dlq", "show", &broken, "--payload"]);
    assert!(shown.out.contains("\"seq\": 2"), "{shown}");
    // WHEN it is replayed THEN that is refused, and says why
    let replayed = case.walrelay(&["dlq", "replay", &broken]);
    assert_eq!(replayed.code, 1, "{replayed}");
    assert_eq!(case.open(), [broken]);
}

on_both_brokers!(a_parked_key_waits_in_the_dead_letter_topic_until_it_is_released, rabbitmq in soak);

fn a_parked_key_waits_in_the_dead_letter_topic_until_it_is_released(kind: BrokerKind) {
    let delivery = "on_dead_letter = \"park_key\"\nattempts_max = 2\n";
    let case = DeadLetterFixture::on(kind, "parked", delivery, "");
    // GIVEN a poison event of a key, and later ones of it and of another
    let name = case.site.name.clone();
    let reader = case.site.reader();
    let mut letters: Vec<String> =
        (1..3).map(|seq| case.insert_one(&case.lost(), "k", seq)).collect();
    letters.extend((3..5).map(|seq| case.insert_one(&name, "k", seq)));
    case.insert_one(&name, "other", 1);
    let mut relay = case.relay();
    case.site.wait_confirmed(&mut relay, LIMIT);
    // THEN all of its key are letters, in order
    assert_eq!(case.open(), letters);
    let classes = case.list(&[]);
    let parked = classes.iter().filter(|letter| letter["error_class"] == "parked");
    assert_eq!(parked.count(), 3);
    // WHEN the relay is killed THEN the key is parked still
    relay.restart().unwrap();
    relay.wait_ready(LIMIT).unwrap();
    letters.push(case.insert_one(&name, "k", 5));
    case.site.wait_confirmed(&mut relay, LIMIT);
    assert_eq!(case.open(), letters);
    assert_eq!(metric(&relay, "outbox_dlq_parked_keys"), Some(1.0));
    // WHEN it is released too early THEN that is refused
    let refused = case.walrelay(&["dlq", "release", "--key", "k"]);
    assert_eq!(refused.code, 1, "{refused}");
    // WHEN its letters are resolved and it is released THEN its events flow
    case.must(&["dlq", "discard", "--topic", &case.lost(), "--yes"]);
    case.must(&["dlq", "replay", "--key", "k"]);
    case.must(&["dlq", "release", "--key", "k"]);
    wait_until("the release to be heard", || metric(&relay, "outbox_dlq_parked_keys") == Some(0.0));
    case.insert_one(&name, "k", 6);
    case.site.wait_confirmed(&mut relay, LIMIT);
    assert_eq!(case.open(), [] as [String; 0]);
    let verdict = case.judge(&name, &held(reader), &[]);
    verdict.assert_exact(0);
}
