//! The commands, one after the other, on both brokers.

use serde_json::Value;
use walrelay_harness::BrokerKind;
use walrelay_harness::kit::now_us;
use walrelay_harness::rabbit::Rabbit;

use super::fixture::{DlqFixture, SECOND, Spec};
use crate::support::faults::read;
use crate::support::{on_both_brokers, shared_rabbitmq};

on_both_brokers!(dead_letters_are_listed_shown_discarded_and_released);

fn dead_letters_are_listed_shown_discarded_and_released(kind: BrokerKind) {
    let mut bench = DlqFixture::on(kind, "dlq_commands");
    // GIVEN six letters of two keys, one of which is parked, and one that looks odd
    let mut letters: Vec<Spec> = (0..6)
        .map(|n| Spec {
            parks_key: n % 2 == 1,
            failed_unix_us: now_us() - 600 * SECOND,
            ..Spec::new(n, if n % 2 == 1 { "odd" } else { "even" })
        })
        .collect();
    letters.push(Spec {
        value: vec![0, 0xff],
        class: "test.odd",
        key: Some("a\u{1b}[2J".to_owned()),
        ..Spec::new(6, "")
    });
    bench.write(letters);
    list_and_show(&bench);
    // WHEN one would only look THEN nothing changes
    bench
        .dlq(&["discard", "--error-class", "test.odd", "--dry-run"])
        .assert_done()
        .assert_says(&["dry run, nothing was changed: 1 dead letter;", "e6"]);
    let discarded =
        bench.dlq(&["discard", "--error-class", "test.odd", "--yes", "--reason", "odd"]);
    discarded.assert_done().assert_says(&["discarded 1 of 1 dead letters", "\"reason\":\"odd\""]);
    assert_eq!(bench.ids(&["--state", "discarded"]), ["e6"]);
    // WHEN a key is released too early
    let words = ["3 dead letters of key odd are open", "walrelay dlq replay --key='odd'"];
    for dry_run in [&["--dry-run"][..], &[]] {
        let early = bench.dlq(&[&["release", "--key", "odd"], dry_run].concat());
        early.assert_fault(1, "dead-letter.key-has-open", &words);
    }
    // WHEN its letters are replayed THEN they arrive in order, and say what they are
    let replayed = bench.dlq(&["replay", "--key", "odd", "--json"]);
    let tally = replayed.assert_done().json();
    assert_eq!((&tally["matched"], &tally["done"]), (&3.into(), &3.into()));
    replayed.assert_says(&["\"action\":\"replay\"", "\"filter\":\"key=odd state=open\""]);
    assert_eq!(replay_counts(&bench), [("e1", "1"), ("e3", "1"), ("e5", "1")].map(owned));
    let would = bench.dlq(&["release", "--key", "odd", "--dry-run", "--output", "json"]);
    let value = would.assert_done().json();
    assert_eq!((&value["dry_run"], &value["keys"]), (&true.into(), &vec!["odd"].into()));
    bench.dlq(&["release", "--key", "odd"]).assert_done().assert_says(&["key odd released"]);
    for dry_run in [&["--dry-run"][..], &[]] {
        let again = bench.dlq(&[&["release", "--key", "odd"], dry_run].concat());
        again.assert_fault(1, "dead-letter.not-parked", &["no key is parked"]);
    }
    bench.dlq(&["release", "--all"]).assert_done().assert_says(&["no key is parked"]);
    // THEN nothing else has moved
    let mut open = bench.ids(&[]);
    open.sort();
    assert_eq!(open, ["e0", "e2", "e4"]);
}

fn list_and_show(bench: &DlqFixture) {
    let table = bench.dlq(&["list"]);
    table.assert_done().assert_says(&[
        "FAILED AT",
        "test.refused",
        "7 dead letters",
        "a\\u{1b}[2J",
    ]);
    assert!(!table.all().contains('\u{1b}'), "{table}");
    bench.dlq(&["list", "--limit", "2"]).assert_done().assert_says(&["2 of 7 dead letters"]);
    assert_eq!(bench.ids(&["--key", "odd"]), ["e1", "e3", "e5"]);
    assert_eq!(bench.ids(&["--text", "TEST.ODD"]), ["e6"]);
    assert_eq!(bench.ids(&["--key", "a\\u{1b}[2J"]), ["e6"]);
    assert_eq!(bench.ids(&["--until", "5m"]).len(), 6);
    let mut both = bench.ids(&["e1", "--id", "e2"]);
    // They are in different partitions.
    both.sort();
    assert_eq!(both, ["e1", "e2"]);
    let array = bench.dlq(&["list", "-o", "json", "--limit", "2"]);
    let array: Vec<Value> = serde_json::from_str(&array.assert_done().out).unwrap();
    assert_eq!(array.len(), 2);
    let letters = bench.list(&["e1"]);
    let letter = &letters[0];
    let text = |name: &str| letter[name].as_str().unwrap_or_default();
    assert_eq!([text("key"), text("topic"), text("state")], ["odd", &bench.site.name, "open"]);
    assert_eq!([text("error_class"), text("error_msg")], ["test.refused", "nobody wants it"]);
    assert_eq!([text("lsn"), text("relay")], ["16/B374D848", &bench.site.name]);
    assert_eq!((&letter["attempts"], &letter["parks_key"]), (&5.into(), &true.into()));
    // THEN one is shown whole, its payload on request
    let shown = bench.dlq(&["show", "e1"]);
    shown.assert_done().assert_says(&["header id = e1", "dead-lettered by", "parks its key yes"]);
    assert!(!shown.out.contains("seq"), "{shown}");
    bench.dlq(&["show", "e1", "--payload"]).assert_done().assert_says(&["{\"seq\": 1}"]);
    let json = bench.dlq(&["show", "e6", "--payload", "--json"]);
    let value = json.assert_done().json();
    assert_eq!((&value["payload"], &value["payload_encoding"]), (&"AP8=".into(), &"base64".into()));
    assert_eq!(value["history"][0]["what"], "dead-lettered");
    let two = bench.dlq(&["show", "e1", "e2", "--json"]);
    assert_eq!(two.assert_done().out.lines().count(), 2);
    let unknown = bench.dlq(&["show", "nobody"]);
    unknown.assert_fault(1, "dead-letter.unknown", &["nobody", "7 records"]);
    // THEN what there is is shown beside what there is not
    let one = bench.dlq(&["show", "e1", "nobody"]);
    assert_eq!(one.code, 1, "{one}");
    one.assert_says(&["header id = e1", "no dead letter of event \"nobody\""]);
}

fn owned((id, count): (&str, &str)) -> (String, String) {
    (id.to_owned(), count.to_owned())
}

/// Id and header `dlq-replay-count` of what has arrived; there is nothing else of ours in it.
fn replay_counts(bench: &DlqFixture) -> Vec<(String, String)> {
    arrived_headers(bench).iter().map(|headers| counted(headers)).collect()
}

fn counted(headers: &[(String, String)]) -> (String, String) {
    let find = |name: &str| {
        let found = headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone()).unwrap()
    };
    let ours = headers.iter().filter(|(name, _)| name.starts_with("dlq-")).count();
    assert_eq!(ours, 1, "{headers:?}");
    (find("id"), find("dlq-replay-count"))
}

fn arrived_headers(bench: &DlqFixture) -> Vec<Vec<(String, String)>> {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    if bench.site.kind() == BrokerKind::Kafka {
        let headers = read(&[&bench.site.name]).into_iter().map(|record| {
            let all = record.headers.into_iter();
            all.map(|(name, value)| (name, text(&value.unwrap_or_default()))).collect()
        });
        return headers.collect();
    }
    let mut rabbit = Rabbit::open(&shared_rabbitmq().amqp_url()).unwrap();
    let taken = rabbit.take(&bench.site.name).unwrap();
    let headers = taken.iter().map(|delivery| {
        let names = delivery.properties.headers.iter().map(|(name, _)| name);
        let value = |name: &String| text(delivery.properties.header(name).unwrap_or_default());
        names.map(|name| (name.clone(), value(name))).collect()
    });
    headers.collect()
}

on_both_brokers!(old_records_are_purged_where_the_broker_can_and_nothing_open_is);

fn old_records_are_purged_where_the_broker_can_and_nothing_open_is(kind: BrokerKind) {
    let mut bench = DlqFixture::on(kind, "dlq_purge");
    // GIVEN two letters of a key that are discarded, and behind them one that is open
    bench.write((0..3).map(|n| Spec::new(n, "one key")));
    let unconfirmed = bench.dlq(&["discard", "e0", "e1"]);
    unconfirmed.assert_fault(2, "command.unconfirmed", &["--yes"]);
    bench.dlq(&["discard", "e0", "e1", "-y"]).assert_done();
    bench.dlq(&["purge", "--older-than", "soon"]).assert_fault(2, "dead-letter.bad-filter", &[]);
    bench
        .dlq(&["purge", "--older-than", "1h", "--yes"])
        .assert_done()
        .assert_says(&["0 records deleted"]);
    if kind == BrokerKind::RabbitMq {
        // THEN a dry run says what the command says, which asks nobody
        for more in [&["--dry-run"][..], &[], &["--yes"]] {
            let purged = bench.dlq(&[&["purge", "--older-than", "0s"], more].concat());
            let words = ["rabbitmqctl set_policy", "{\"max-age\": \"0s\"}", "nothing was deleted"];
            purged.assert_fault(1, "dead-letter.not-purged", &words);
            assert_eq!(purged.out, "", "{purged}");
        }
        assert_eq!(bench.ids(&["--state", "all"]).len(), 3);
        return;
    }
    let would = bench.dlq(&["purge", "--older-than", "0s", "--dry-run"]);
    would.assert_done().assert_says(&["2 records would be deleted", "an open dead letter stands"]);
    assert_eq!(bench.ids(&["--state", "all"]).len(), 3);
    let unconfirmed = bench.dlq(&["purge", "--older-than", "0s"]);
    unconfirmed.assert_fault(2, "command.unconfirmed", &["--yes"]);
    let purged = bench.dlq(&["purge", "--older-than", "0s", "--yes"]);
    purged.assert_done().assert_says(&["2 records deleted"]);
    assert_eq!(bench.ids(&["--state", "all"]), ["e2"]);
    // WHEN that one is discarded, too THEN nothing is left
    bench.dlq(&["discard", "--all", "--yes"]).assert_done();
    bench
        .dlq(&["purge", "--older-than", "0s", "--yes"])
        .assert_done()
        .assert_says(&["4 records deleted"]);
    assert_eq!(bench.ids(&["--state", "all"]), Vec::<String>::new());
}

#[test]
fn where_no_dead_letter_matches_nothing_changes() {
    let mut bench = DlqFixture::on(BrokerKind::Kafka, "dlq_none");
    // GIVEN an empty topic THEN there is nothing to do, and that is no failure
    let actions = [&["replay"][..], &["discard", "--yes"]];
    for action in actions {
        let ended = bench.dlq(&[action, &["--all"]].concat());
        ended.assert_done().assert_says(&["no dead letter matches state=open; 0 records read"]);
    }
    // GIVEN letters WHEN a filter means none of them
    bench.write((0..3).map(|n| Spec::new(n, "k")));
    for action in actions {
        for (option, word, filter) in [
            ("--key", "nobody", "key=nobody state=open"),
            ("--error-class", "test.other", "error_class=test.other state=open"),
            ("--state", "discarded", "state=discarded"),
        ] {
            let all: &[&str] = if option == "--state" { &["--all"] } else { &[] };
            let ended = bench.dlq(&[action, &[option, word], all].concat());
            let told = format!("no dead letter matches {filter}; 3 records read");
            // THEN it says so, and that it has done nothing
            ended.assert_done().assert_says(&[&told, "\"count\":0", "\"ended\":\"done\""]);
            assert_eq!(ended.out, "", "{ended}");
        }
        let tally = bench.dlq(&[action, &["e", "--json"]].concat());
        tally.assert_done().assert_says(&["\"matched\":0,\"done\":0"]);
    }
    // THEN all are open still, nothing was written, and nothing has arrived
    let (open, ended) = bench.list_output(&[]);
    assert_eq!(open.len(), 3);
    ended.assert_says(&["3 records read"]);
    assert_eq!(bench.site.reader().finish(), [[]]);
}
