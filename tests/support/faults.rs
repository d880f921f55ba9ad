//! One test's corner of the services, and the relay in it.
//!
//! A [`CliFixture`] is a database with a slot and a topic of its own name. What a test asks of it
//! is what a user would look at: exit code, text, the slot's position, the topic's records.

mod process;
mod topic;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use walrelay_harness::consumer::create_topic;
use walrelay_harness::{Postgres, free_port, run_folder};

pub(crate) use process::{Ended, Relay};
pub(crate) use topic::{TopicRecord, keys, read, shared_topics};

pub(crate) use super::LIMIT;
use super::{shared_kafka, shared_postgres};

/// No dead letters: what cannot be published stops the relay.
pub(crate) const HALT: &str = "[delivery]\non_dead_letter = \"halt\"\n";

/// The shipped outbox table, from the folder that users take it from.
pub(crate) const OUTBOX_SQL: &str = include_str!("../../sql/outbox.sql");
/// The shipped outbox table that is polled, from the same folder.
pub(crate) const POLLING_SQL: &str = include_str!("../../sql/polling.sql");

/// A database, a slot and a topic, all of one name, and a configuration for them.
pub(crate) struct CliFixture<'p> {
    postgres: &'p Postgres,
    pub(crate) name: String,
    folder: PathBuf,
    pub(crate) url: String,
    /// More lines of `[source]`, then any `[[source.outbox]]`.
    pub(crate) source: String,
    pub(crate) route: String,
    /// Whole lines of `[sink]` and below.
    pub(crate) sink: String,
    pub(crate) extra: String,
    pub(crate) listen: String,
    pub(crate) env: Vec<(String, String)>,
}

impl CliFixture<'static> {
    /// An empty database on the shared services; no table, publication, slot or topic.
    pub(crate) fn bare(name: &str) -> CliFixture<'static> {
        CliFixture::on(shared_postgres(), name)
    }

    /// The same, whose text may be any bytes.
    pub(crate) fn without_encoding(name: &str) -> CliFixture<'static> {
        let scene = CliFixture::bare(name);
        let run = |sql: String| shared_postgres().sql("postgres", &sql).unwrap();
        run(format!("DROP DATABASE {name}"));
        run(format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'"));
        scene
    }

    /// The same with the shipped table, its publication, the slot, and the topic
    /// `outbox.event.NAME` of one partition.
    pub(crate) fn ready(name: &str) -> CliFixture<'static> {
        CliFixture::bare(name).with_outbox()
    }

    /// The same with an event that waits to be relayed.
    pub(crate) fn waiting(name: &str) -> CliFixture<'static> {
        let scene = CliFixture::ready(name);
        scene.insert("1", "{\"n\": 1}");
        scene
    }
}

impl<'p> CliFixture<'p> {
    /// An empty database on a PostgreSQL of the test's own.
    pub(crate) fn on(postgres: &'p Postgres, name: &str) -> CliFixture<'p> {
        postgres.create_database(name).unwrap();
        let folder = run_folder().unwrap().join(format!("scene-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        CliFixture {
            postgres,
            name: name.to_owned(),
            folder,
            url: postgres.url(name),
            source: String::new(),
            route: String::new(),
            sink: format!("[sink.kafka]\nbrokers = {:?}\n", brokers()),
            extra: String::new(),
            listen: "127.0.0.1:0".to_owned(),
            env: Vec::new(),
        }
    }

    /// The same with the shipped table, and all that its events need.
    pub(crate) fn with_outbox(self) -> CliFixture<'p> {
        self.sql(OUTBOX_SQL);
        self.prepare("TABLE public.outbox", &self.topic());
        self
    }

    /// Gives its relays an admin address that is known beforehand.
    pub(crate) fn choose_admin(&mut self) -> SocketAddr {
        let admin = SocketAddr::from(([127, 0, 0, 1], free_port().unwrap()));
        self.listen = admin.to_string();
        admin
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The topic of the default route for rows whose aggregate type is the scene's name.
    pub(crate) fn topic(&self) -> String {
        format!("outbox.event.{}", self.name)
    }

    #[track_caller]
    pub(crate) fn sql(&self, sql: &str) -> String {
        self.postgres.sql(&self.name, sql).unwrap_or_else(|error| panic!("{error}\n{sql}"))
    }

    /// Makes the publication as `init` would.
    pub(crate) fn publish(&self, what: &str) {
        let with = "WITH (publish = 'insert', publish_via_partition_root = true)";
        self.sql(&format!("CREATE PUBLICATION walrelay FOR {what} {with}"));
    }

    /// Makes the publication, the slot, and a topic of one partition.
    pub(crate) fn prepare(&self, published: &str, topic: &str) {
        self.publish(published);
        self.make_slot();
        self.make_topic(topic, 1);
    }

    pub(crate) fn make_slot(&self) {
        let name = &self.name;
        self.sql(&format!("SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')"));
    }

    pub(crate) fn make_topic(&self, topic: &str, partitions: i32) {
        create_topic(&brokers(), topic, partitions, &[]).unwrap();
    }

    /// Ends the session that reads the slot, and none of another test on the same server.
    pub(crate) fn end_walsender(&self) {
        self.sql(&format!(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots
             WHERE slot_name = '{}' AND active",
            self.name
        ));
    }

    /// One row of the shipped table with the scene's name as aggregate type.
    pub(crate) fn insert(&self, key: &str, payload: &str) -> String {
        let name = &self.name;
        self.sql(&format!(
            "INSERT INTO outbox (aggregatetype, aggregateid, type, payload)
             VALUES ('{name}', '{key}', 'T', '{payload}') RETURNING id"
        ))
    }

    /// Writes `walrelay.toml` and tells where.
    pub(crate) fn write_config(&self) -> PathBuf {
        let CliFixture { name, url, source, route, sink, extra, listen, .. } = self;
        let outbox = if source.contains("[source.") || source.contains("[[source.") {
            ""
        } else {
            "[[source.outbox]]\ntable = \"public.outbox\"\n"
        };
        let text = format!(
            "[source]\nurl = {url:?}\nslot = \"{name}\"\npublication = \"walrelay\"\n\
             watch_interval = \"100ms\"\n{source}\n{outbox}\n[route]\n{route}\n{sink}\n\
             [admin]\nlisten = \"{listen}\"\n{extra}\n"
        );
        let file = self.folder.join("walrelay.toml");
        std::fs::write(&file, text).unwrap();
        file
    }

    /// Runs one command to its end.
    #[track_caller]
    pub(crate) fn walrelay(&self, words: &[&str]) -> Ended {
        self.spawn(words).wait()
    }

    /// Runs `walrelay run`, which must end with this fault, and without having moved anything. What
    /// ends it before the first event is a line of `walrelay check`, too.
    #[track_caller]
    pub(crate) fn assert_refused(&self, exit: i32, code: &str, words: &[&str]) -> Ended {
        let before = self.slot_state();
        let file = self.write_config();
        let spawn = |word| Relay::spawn(&self.folder, &file, &[word], &self.env);
        let halted = exit == 6;
        let check = (!halted).then(|| spawn("check"));
        let ended = spawn("run").wait();
        ended.assert_fault(exit, code, words);
        self.assert_unmoved(&before, &ended);
        match check.map(Relay::wait) {
            // Nothing can be looked at with such a configuration.
            Some(check) if code.starts_with("config.") => drop(check.assert_fault(exit, code, &[])),
            Some(check) => {
                assert_eq!(check.code, 1, "{check}\nand {ended}");
                check.assert_says(&[&format!("[{code}]")]);
            }
            None => {}
        }
        ended
    }

    /// The slot stands where it stood, and no event has arrived.
    #[track_caller]
    pub(crate) fn assert_unmoved(&self, slot_before: &str, ended: &Ended) {
        self.assert_slot_held(slot_before);
        let topic = self.topic();
        if shared_topics().contains(&topic) {
            assert_eq!(read(&[&topic]), [], "something was published\n{ended}");
        }
    }

    pub(crate) fn spawn(&self, words: &[&str]) -> Relay {
        let file = self.write_config();
        Relay::spawn(&self.folder, &file, words, &self.env)
    }

    /// Starts a relay that may have no more than so much address space.
    pub(crate) fn run_within(&self, bytes: u64) -> Relay {
        let file = self.write_config();
        Relay::spawn_within(bytes, &self.folder, &file, &["run"], &self.env)
    }

    /// Relays until all that is written by now is confirmed, and stops it; the topics' records.
    #[track_caller]
    pub(crate) fn carry(&self, topics: &[&str]) -> Vec<TopicRecord> {
        let mut relay = self.spawn(&["run"]);
        // With nothing to confirm it would be stopped before it listens to signals.
        self.wait_streaming(&mut relay);
        self.wait_confirmed(&mut relay);
        relay.stop();
        read(topics)
    }

    /// The records of its topic.
    pub(crate) fn records(&self) -> Vec<TopicRecord> {
        read(&[&self.topic()])
    }

    /// Waits until the slot has confirmed all that is written by now.
    #[track_caller]
    pub(crate) fn wait_confirmed(&self, relay: &mut Relay) {
        let end = self.sql("SELECT pg_current_wal_insert_lsn()");
        let name = &self.name;
        let asked = format!(
            "SELECT confirmed_flush_lsn >= '{end}' FROM pg_replication_slots WHERE slot_name = '{name}'"
        );
        relay.wait_until("everything to be confirmed", || self.sql(&asked) == "t");
    }

    /// Everything of the slot that must not change while nothing is delivered.
    pub(crate) fn slot_state(&self) -> String {
        let name = &self.name;
        self.sql(&format!(
            "SELECT slot_name, plugin, database, confirmed_flush_lsn
             FROM pg_replication_slots WHERE slot_name = '{name}'"
        ))
    }

    /// Runs SQL as one transaction; where it ended. Taken in the same breath, so that a slot which
    /// has confirmed the transaction is at that position or beyond.
    pub(crate) fn commit(&self, sql: &str) -> String {
        self.sql(&format!("BEGIN; {sql}; COMMIT; SELECT pg_current_wal_lsn()"))
    }

    /// The slot is as it was `before`, but for the few bytes, before the next event, by which a relay
    /// that takes a slot marks it.
    #[track_caller]
    pub(crate) fn assert_slot_held(&self, before: &str) {
        let after = self.slot_state();
        if before == after {
            return;
        }
        let apart = |state: &str| {
            let (rest, lsn) = state.rsplit_once('|').unwrap_or_else(|| panic!("{state:?}"));
            let (high, low) = lsn.split_once('/').unwrap();
            let half = |text: &str| u64::from_str_radix(text, 16).unwrap();
            (rest.to_owned(), half(high) << 32 | half(low))
        };
        let ((slot, was), (same_slot, is)) = (apart(before), apart(&after));
        let held = slot == same_slot && (was..=was + 32).contains(&is);
        assert!(held, "the slot has moved from {before} to {after}");
    }

    pub(crate) fn held_before(&self, lsn: &str) -> bool {
        let name = &self.name;
        let sql = format!(
            "SELECT confirmed_flush_lsn < '{lsn}' FROM pg_replication_slots WHERE slot_name = '{name}'"
        );
        self.sql(&sql) == "t"
    }

    #[track_caller]
    pub(crate) fn wait_streaming(&self, relay: &mut Relay) {
        let name = &self.name;
        let asked = format!("SELECT active FROM pg_replication_slots WHERE slot_name = '{name}'");
        relay.wait_until("the stream", || self.sql(&asked) == "t");
    }
}

impl Drop for CliFixture<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // What a failed test leaves is worth a look; the next run has another folder.
            std::fs::remove_dir_all(&self.folder).ok();
        }
    }
}

pub(crate) fn brokers() -> String {
    shared_kafka().bootstrap()
}
