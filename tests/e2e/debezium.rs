//! Debezium Server hands its slot and its publication over to the relay, and takes them back, while
//! rows are written. What each publishes for a row is what the other one would have published.

mod records;
mod server;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::Signal;
use walrelay_harness::consumer::end_offsets;
use walrelay_harness::load::execute;

use self::server::{Server, TEXT};
use crate::support::faults::{CliFixture, HALT, TopicRecord, brokers, read};
use crate::support::{half_machine, until};

/// Rows that each of the three publishes at least, and that are written while nobody reads.
const ROWS: i64 = 2_000;
const ROWS_BETWEEN: i64 = 400;
/// Between two transactions.
const PACE: Duration = Duration::from_millis(100);
const LIMIT: Duration = Duration::from_secs(300);
const TOPICS: [&str; 2] = ["Order", "payment-v2"];
const KINDS: usize = 8;
/// Rows of one transaction of [`WRITE`].
const TRANSACTION_ROWS: usize = 24;
/// Rows that a program has in flight at most: Debezium publishes a batch every 500 ms (`poll.interval.ms`), which has
/// five transactions at [`PACE`], and stores a position after each, from which its last transaction is sent again. The
/// bound is twice that, for a machine that is busy. The relay sends a new position within milliseconds.
const IN_FLIGHT_ROWS: usize = 12 * TRANSACTION_ROWS;

/// The table of Debezium's documentation; `seq` is the test's own.
const TABLE: &str = "CREATE TABLE public.outbox (
    id            uuid         NOT NULL PRIMARY KEY,
    aggregatetype varchar(255) NOT NULL,
    aggregateid   varchar(255) NOT NULL,
    type          varchar(255) NOT NULL,
    payload       jsonb,
    seq           bigint       GENERATED ALWAYS AS IDENTITY)";

/// One transaction with rows of twelve keys, and of eight kinds of payload, which `type` names.
const WRITE: &str = r#"INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
    SELECT gen_random_uuid(), CASE n % 2 WHEN 0 THEN '{name}-Order' ELSE '{name}-payment-v2' END,
           CASE WHEN n % 12 = 5 THEN 'Schlüssel ' ELSE 'key-' END || n % 12, 'kind-' || n % 8,
           CASE n % 8 WHEN 0 THEN NULL WHEN 1 THEN 'null' WHEN 2 THEN '""' WHEN 3 THEN '"text"'
                      WHEN 4 THEN '[1, {"empty": {}, "list": []}]' WHEN 5 THEN '1.50'
                      WHEN 6 THEN '{"z": 1, "a": 1.500, "big": 12345678901234567890, "s": "ü\n\u20ac/"}'
                      ELSE jsonb_build_object('n', n, 'pad', repeat('x', 5000)) END
    FROM generate_series(1, {rows}) AS n"#;

/// Everything of a record that must be equal, whoever writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Content {
    topic: String,
    partition: i32,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
}

fn content(record: &TopicRecord, prefix: &str) -> (String, Content) {
    let id = record.header("id").expect("a header id").to_owned();
    let topic = record.topic.strip_prefix(prefix).unwrap().to_owned();
    let TopicRecord { partition, key, value, .. } = record.clone();
    (id, Content { topic, partition, key, value })
}

/// Who has published a record: a run of Debezium Server by its id, or the relay.
fn publisher(record: &TopicRecord) -> &str {
    let ours = |name: &&str| !name.starts_with("__debezium.context.");
    assert_eq!(record.header_names().into_iter().filter(ours).collect::<Vec<_>>(), ["id"]);
    match record.header("__debezium.context.runId") {
        Some(run) => run,
        None => {
            assert_eq!(record.header_names(), ["id"]);
            "walrelay"
        }
    }
}

/// Writes rows on a thread of its own until it is dropped.
struct Writer {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    fn start(scene: &CliFixture<'_>) -> Writer {
        let is_over = Arc::new(AtomicBool::new(false));
        let sql = WRITE.replace("{rows}", &TRANSACTION_ROWS.to_string());
        let (url, sql) = (scene.url.clone(), sql.replace("{name}", &scene.name));
        let over = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                execute(&url, &sql).unwrap();
                std::thread::sleep(PACE);
            }
        });
        Writer { is_over, thread: Some(thread) }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking(), "the writer has failed");
    }
}

struct Switch {
    scene: CliFixture<'static>,
    topics: Vec<String>,
}

impl Switch {
    fn new(name: &str) -> Switch {
        let mut scene = CliFixture::bare(name);
        scene.sql(TABLE);
        scene.route = "preset = \"debezium\"\n".to_owned();
        scene.extra = HALT.to_owned();
        scene.env = vec![("WALRELAY_SOURCE__PUBLICATION".to_owned(), "dbz_publication".to_owned())];
        let topics: Vec<String> =
            TOPICS.iter().map(|topic| format!("outbox.event.{name}-{topic}")).collect();
        for prefix in ["", "by-debezium.", "by-walrelay."] {
            for topic in &topics {
                scene.make_topic(&format!("{prefix}{topic}"), 3);
            }
        }
        Switch { scene, topics }
    }

    fn with_prefix(&self, prefix: &str) -> Vec<TopicRecord> {
        let topics: Vec<String> =
            self.topics.iter().map(|topic| format!("{prefix}{topic}")).collect();
        read(&topics.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// How many records the topics hold.
    fn held(&self) -> i64 {
        let ends = self.topics.iter().map(|topic| end_offsets(&brokers(), topic).unwrap());
        ends.map(|ends| ends.values().sum::<i64>()).sum()
    }

    fn rows(&self) -> i64 {
        self.scene.sql("SELECT count(*) FROM outbox").parse().unwrap()
    }

    /// Waits until so many rows were written that nobody reads; returns their number.
    fn wait_rows(&self) -> i64 {
        let before = self.rows();
        until("more rows", LIMIT, || (self.rows() >= before + ROWS_BETWEEN).then_some(()));
        self.rows() - before
    }

    /// Slot and publication, which a switch must not make anew.
    fn objects(&self) -> String {
        let name = &self.scene.name;
        self.scene.sql(&format!(
            "SELECT slot_name, plugin, (SELECT oid FROM pg_publication WHERE pubname = 'dbz_publication'),
                    (SELECT count(*) FROM pg_publication), (SELECT count(*) FROM pg_replication_slots
                     WHERE database = current_database() AND slot_name NOT LIKE '%_copy_%')
             FROM pg_replication_slots WHERE slot_name = '{name}'"
        ))
    }

    fn confirmed(&self) -> String {
        let name = &self.scene.name;
        self.scene.sql(&format!(
            "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{name}'"
        ))
    }

    fn copy_slot(&self, who: &str) -> String {
        let name = &self.scene.name;
        let copy = format!("{name}_copy_{who}");
        self.scene.sql(&format!("SELECT pg_copy_logical_replication_slot('{name}', '{copy}')"));
        copy
    }

    /// The relay takes the slot, publishes at least [`ROWS`], and stops.
    fn relay(&self, is_killed: bool) {
        let (objects, held, handed_over) = (self.objects(), self.held(), self.confirmed());
        self.scene.walrelay(&["init"]).assert_done().assert_says(&["nothing is missing"]);
        self.scene.walrelay(&["check"]).assert_done();
        let mut relay = self.scene.spawn(&["run"]);
        relay.wait_until("records of the relay", || self.held() >= held + ROWS);
        self.scene.wait_confirmed(&mut relay);
        // The WAL at the position that Debezium has stored is given up, as after some minutes.
        let name = &self.scene.name;
        let given_up = format!(
            "SELECT restart_lsn > '{handed_over}' FROM pg_replication_slots WHERE slot_name = '{name}'"
        );
        relay.wait_until("a later restart_lsn", || {
            self.scene.sql("CHECKPOINT");
            self.scene.sql(&given_up) == "t"
        });
        if is_killed {
            relay.signal(Signal::KILL);
            relay.wait();
        } else {
            relay.stop();
        }
        assert_eq!(self.objects(), objects);
    }

    /// Rows that are committed: id, key and kind, in the order of the commits.
    fn truth(&self) -> Vec<[String; 3]> {
        let all = self.scene.sql("SELECT id, aggregateid, type FROM outbox ORDER BY seq");
        let row = |line: &str| {
            let parts: Vec<String> = line.split('|').map(str::to_owned).collect();
            parts.try_into().unwrap()
        };
        all.lines().map(row).collect()
    }

    fn is_complete(&self, prefix: &str, rows: usize) -> bool {
        let records = self.with_prefix(prefix);
        records.iter().map(|it| content(it, prefix).0).collect::<HashSet<_>>().len() == rows
    }
}

/// A program that has published, and how many rows it may have published again.
struct Publisher {
    name: &'static str,
    repeats_max: usize,
}

/// Checks that every row is published, in the order of its key, that the last record of a key is its newest row, and
/// that no program repeats more than it may. Prints how many by whom: by runs of Debezium, and by the relay, which is
/// the last.
fn judge(
    switch: &Switch,
    truth: &[[String; 3]],
    publishers: &[Publisher],
) -> HashMap<String, Content> {
    let records = switch.with_prefix("");
    let place: HashMap<&str, usize> =
        truth.iter().enumerate().map(|(place, [id, ..])| (id.as_str(), place)).collect();
    let (mut contents, mut last, mut newest) = (HashMap::new(), HashMap::new(), HashMap::new());
    let (mut first, mut repeated) = (BTreeMap::new(), BTreeMap::<&str, usize>::new());
    for record in &records {
        let (id, content) = content(record, "");
        let (at, by) = (place[id.as_str()], publisher(record));
        assert_eq!(record.key(), Some(truth[at][1].as_str()));
        let key = (record.topic.clone(), record.key.clone());
        last.insert(key.clone(), at);
        if let Some(known) = contents.insert(id, content.clone()) {
            assert_eq!(known, content, "an event was published again with another content");
            *repeated.entry(by).or_default() += 1;
            continue;
        }
        first.entry(by).or_insert_with(Vec::new).push(at);
        // First deliveries of a key are in the order of the commits, across both switches.
        let before = newest.insert(key, at);
        assert!(before < Some(at), "{:?} is out of order", record.key());
    }
    assert_eq!(contents.len(), truth.len(), "events are lost");
    // Repeats must not leave an older row as the last record of its key.
    assert_eq!(last, newest, "the last record of a key is not its newest row");
    // The ids of runs rise with the time.
    let by: Vec<&str> = first.keys().copied().collect();
    assert_eq!((by.len(), by.last()), (publishers.len(), Some(&"walrelay")), "{by:?}");
    for (Publisher { name, repeats_max }, by) in publishers.iter().zip(by) {
        let places = &first[by];
        let kinds: BTreeSet<&str> = places.iter().map(|at| truth[*at][2].as_str()).collect();
        assert_eq!(kinds.len(), KINDS, "{name} has published {kinds:?}");
        let repeated = repeated.get(by).copied().unwrap_or_default();
        println!("{name}: {} rows for the first time, {repeated} again", places.len());
        assert!(repeated <= *repeats_max, "{name} has published {repeated} rows again");
    }
    contents
}

/// Publishes all rows once more through copies of the slot, by one program alone.
fn compare_with_each_alone(
    switch: &mut Switch,
    published: &HashMap<String, Content>,
    [of_debezium, of_walrelay]: [String; 2],
) {
    let prefixed = |prefix: &str| format!("{prefix}outbox.event.");
    let (prefix, rows) = ("by-debezium.", published.len());
    let topic = format!(
        "debezium.transforms.outbox.route.topic.replacement={}$${{routedByValue}}",
        prefixed(prefix)
    );
    let mut server = Server::start(&switch.scene, &of_debezium, &[TEXT, &topic]);
    server.wait_until("all rows by Debezium", || switch.is_complete(prefix, rows));
    server.stop();

    let ours = "by-walrelay.";
    switch.scene.route =
        format!("preset = \"debezium\"\ntopic = \"{}${{aggregatetype}}\"\n", prefixed(ours));
    switch.scene.env.push(("WALRELAY_SOURCE__SLOT".to_owned(), of_walrelay));
    let mut relay = switch.scene.spawn(&["run"]);
    relay.wait_until("all rows by the relay", || switch.is_complete(ours, rows));
    relay.stop();
    for prefix in [prefix, ours] {
        for record in switch.with_prefix(prefix) {
            let (id, content) = content(&record, prefix);
            assert_eq!(content, published[&id], "{prefix} {id}");
        }
    }
}

/// Plays both switches, each after a stop or after a kill. Debezium is given `back` when it comes back.
fn switch(name: &str, is_killed: bool, back: &[&str]) {
    let _machine = half_machine();
    let mut switch = Switch::new(name);
    // GIVEN Debezium Server on a slot and a publication that it has made, and a writer
    let mut debezium = Server::start(&switch.scene, name, &[TEXT]);
    let copies = ["debezium", "walrelay"].map(|who| switch.copy_slot(who));
    let writer = Writer::start(&switch.scene);
    debezium.wait_until("records of Debezium", || switch.held() >= ROWS);
    switch.scene.walrelay(&["check"]).assert_done();
    // WHEN it ends, and the relay takes the slot
    if is_killed {
        debezium.kill()
    } else {
        debezium.stop()
    }
    let between = switch.wait_rows();
    // Debezium may not have confirmed anything when it is killed.
    let relay_repeats_max =
        if is_killed { usize::try_from(switch.held()).unwrap() } else { IN_FLIGHT_ROWS };
    switch.relay(is_killed);
    // WHEN the relay ends, and Debezium takes it back
    let between_again = switch.wait_rows();
    let (objects, held) = (switch.objects(), switch.held());
    if is_killed {
        Server::forget_position(&switch.scene, name);
    }
    let mut debezium = Server::start(&switch.scene, name, &[&[TEXT], back].concat());
    debezium.wait_until("records of Debezium", || switch.held() >= held + ROWS);
    assert_eq!(switch.objects(), objects);
    drop(writer);
    let truth = switch.truth();
    debezium.wait_until("all rows", || switch.is_complete("", truth.len()));
    debezium.stop();
    // THEN nothing is lost, and each event is what either of them publishes for its row
    println!("{between} and {between_again} rows were written while nobody read the slot");
    let publishers = [
        Publisher { name: "Debezium", repeats_max: 0 },
        // A relay that is killed may have published what Postgres does not know to be confirmed.
        Publisher {
            name: "Debezium, back again",
            repeats_max: if is_killed { IN_FLIGHT_ROWS } else { 0 },
        },
        Publisher { name: "walrelay", repeats_max: relay_repeats_max },
    ];
    let published = judge(&switch, &truth, &publishers);
    // THEN the relay can take the slot once more: Debezium has altered nothing
    let mut relay = switch.scene.spawn(&["run"]);
    switch.scene.wait_streaming(&mut relay);
    switch.scene.wait_confirmed(&mut relay);
    relay.stop();
    compare_with_each_alone(&mut switch, &published, copies);
    println!("{} rows, each equal to what Debezium alone and walrelay alone publish", truth.len());
}

/// Debezium comes back with the position that it has stored, from which WAL is not kept any more.
#[test]
#[ignore = "soak"]
fn debezium_hands_its_slot_over_and_takes_it_back() {
    let back = ["debezium.source.offset.mismatch.strategy=trust_slot"];
    switch("debezium_stopped", false, &back);
}

/// Debezium comes back without a stored position.
#[test]
#[ignore = "soak"]
fn debezium_and_the_relay_are_killed_at_the_switches() {
    switch("debezium_killed", true, &[]);
}

#[test]
#[ignore = "soak"]
fn a_relay_that_stands_by_takes_the_slot_when_debezium_ends() {
    let _machine = half_machine();
    // GIVEN a relay that waits for the slot, which Debezium moves
    let switch = Switch::new("debezium_standby");
    let more = [TEXT, "debezium.source.offset.flush.interval.ms=1000"];
    let mut debezium = Server::start(&switch.scene, "debezium_standby", &more);
    let mut relay = switch.scene.spawn(&["run"]);
    relay.wait_to_say("standing by");
    let (writer, position) = (Writer::start(&switch.scene), switch.confirmed());
    debezium.wait_until("records of Debezium", || switch.held() >= ROWS);
    debezium.wait_until("the slot to move", || switch.confirmed() != position);
    // WHEN Debezium ends THEN the relay goes on
    debezium.stop();
    let held = switch.held();
    relay.wait_until("records of the relay", || switch.held() >= held + ROWS);
    drop(writer);
    let truth = switch.truth();
    relay.wait_until("all rows", || switch.is_complete("", truth.len()));
    relay.stop();
    let publishers = [
        Publisher { name: "Debezium", repeats_max: 0 },
        Publisher { name: "walrelay", repeats_max: IN_FLIGHT_ROWS },
    ];
    judge(&switch, &truth, &publishers);
}
