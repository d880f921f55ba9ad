//! Tests of events that are published again from the table, as after a lost slot: they keep the
//! order of each key.

use std::collections::BTreeMap;

use crate::support::faults::{CliFixture, TopicRecord};
use crate::support::session::Session;

const KEYS: usize = 10;

/// The payloads of each key, in the order of the topic.
fn by_key(records: &[TopicRecord]) -> BTreeMap<String, Vec<String>> {
    let mut keys: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for record in records {
        keys.entry(record.key().unwrap().to_owned()).or_default().push(record.text().to_owned());
    }
    keys
}

#[test]
fn rows_are_published_again_in_the_order_in_which_they_were_written() {
    let scene = CliFixture::ready("republish");
    scene.sql("CREATE TABLE aggregate AS SELECT 'k' || n AS id FROM generate_series(1, 10) n");
    // GIVEN transactions of three events each, two at a time on one key: the second to begin has the
    // lock of the aggregate first
    let (first, second) = (Session::open(&scene.url).unwrap(), Session::open(&scene.url).unwrap());
    let run = |session: &Session, sql: &str| drop(session.first_value(sql).unwrap());
    for key in 1..=KEYS {
        let lock = format!("SELECT id FROM aggregate WHERE id = 'k{key}' FOR UPDATE");
        let write = |name: &str| {
            (0..3).fold(String::new(), |sql, n| {
                sql + &format!(
                    "INSERT INTO outbox (aggregatetype, aggregateid, type, payload)
                     VALUES ('republish', 'k{key}', 'T', '\"{name}{n}\"');"
                )
            })
        };
        run(&first, "BEGIN; SELECT now()");
        run(&second, &format!("BEGIN; SELECT now(); {lock}; {} COMMIT", write("a")));
        run(&first, &format!("{lock}; {} COMMIT", write("b")));
    }
    let written = by_key(&scene.carry(&[&scene.topic()]));
    let wanted = ["a0", "a1", "a2", "b0", "b1", "b2"].map(|text| format!("{text:?}"));
    assert!(written.len() == KEYS && written.values().all(|it| *it == wanted), "{written:?}");
    // WHEN the publication is gone, and its rows are inserted again with the statement of the fault
    scene.sql("DROP PUBLICATION walrelay");
    let said = scene.walrelay(&["check"]).all().split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, statement) = said.split_once("WITH moved AS").unwrap_or_else(|| panic!("{said}"));
    let (statement, _) = statement.split_once(';').unwrap();
    let statement = format!("WITH moved AS{statement}").replace("TIME", "2001-01-01");
    scene.walrelay(&["slot", "drop", &scene.name, "--yes"]);
    scene.walrelay(&["init"]);
    scene.walrelay(&["resume", "--yes"]).assert_done();
    scene.sql(&statement);
    // THEN they come in the same order once more
    let again = by_key(&scene.carry(&[&scene.topic()]));
    let twice: Vec<String> = wanted.iter().chain(&wanted).cloned().collect();
    let wrong: Vec<&String> =
        again.iter().filter(|(_, texts)| **texts != twice).map(|(key, _)| key).collect();
    println!("{} of {KEYS} keys in another order", wrong.len());
    assert!(wrong.is_empty(), "{statement}\n{again:?}");
}
