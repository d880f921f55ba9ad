//! One test's corner: a site whose dead letters are its own, and the commands that look at them.

use std::collections::HashSet;
use std::ops::Range;
use std::path::PathBuf;

use serde_json::Value;
use walrelay_harness::Postgres;
use walrelay_harness::consumer::Record;
use walrelay_harness::oracle::{self, Verdict};
use walrelay_harness::relay::{RelayConfig, RelayProcess};

use crate::support::broker::{Destination, Reader};
use crate::support::faults::{Ended, Relay};
use crate::support::{Fixture, shared_kafka, shared_postgres, shared_rabbitmq};

pub(crate) struct DeadLetterFixture {
    pub(crate) site: Fixture,
    folder: PathBuf,
    config: RelayConfig,
}

/// Runs a body on the brokers that no test hurts.
pub(crate) fn on_kafka(name: &str, delivery: &str, dead_letter: &str) -> DeadLetterFixture {
    DeadLetterFixture::new(shared_postgres(), shared_kafka(), name, delivery, dead_letter)
}

pub(crate) fn on_rabbitmq(name: &str, delivery: &str, dead_letter: &str) -> DeadLetterFixture {
    DeadLetterFixture::new(shared_postgres(), shared_rabbitmq(), name, delivery, dead_letter)
}

impl DeadLetterFixture {
    /// `delivery` and `dead_letter` are lines of those sections.
    pub(crate) fn new(
        postgres: &Postgres,
        place: impl Into<Destination>,
        name: &str,
        delivery: &str,
        dead_letter: &str,
    ) -> DeadLetterFixture {
        let site = Fixture::new(postgres, place, name);
        let mut config = site.config();
        config.topic = "${aggregatetype}".into();
        // What a topic that is missing is told of soon, and an event larger than a topic takes
        // leaves the client.
        for (property, value) in [
            ("topic.metadata.propagation.max.ms", "500"),
            ("topic.metadata.refresh.interval.ms", "500"),
            ("message.max.bytes", "4000000"),
        ] {
            config.properties.push((property.into(), value.into()));
        }
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("dead-letters").join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let crash_file = folder.join("crash");
        drop(std::fs::remove_file(&crash_file));
        config.extra = format!(
            "[delivery]\nbackoff_base = \"20ms\"\ncrash_file = {crash_file:?}\n{delivery}\n\
             [dead_letter]\ntopic = \"{name}.dlq\"\nexchange = \"{name}.dlx\"\n{dead_letter}\n"
        );
        let case = DeadLetterFixture { site, folder, config };
        case.must(&["init"]);
        case
    }

    /// Other lines of `[dead_letter]` from now on.
    pub(crate) fn reconfigure(&mut self, from: &str, to: &str) {
        assert!(self.config.extra.contains(from), "{}", self.config.extra);
        self.config.extra = self.config.extra.replace(from, to);
    }

    pub(crate) fn lost(&self) -> String {
        format!("{}.lost", self.site.name)
    }

    pub(crate) fn relay(&self) -> RelayProcess {
        self.site.relay_with(self.config.clone())
    }

    /// A relay that need not become ready.
    pub(crate) fn start(&self) -> RelayProcess {
        crate::support::start(self.config.clone(), &self.site.name)
    }

    /// Starts a command beside the relay.
    pub(crate) fn spawn(&self, words: &[&str]) -> Relay {
        let file = self.folder.join("walrelay.toml");
        // Another command may be reading it.
        let new_file = self.folder.join("walrelay.toml.new");
        std::fs::write(&new_file, self.config.toml(([127, 0, 0, 1], 0).into())).unwrap();
        std::fs::rename(&new_file, &file).unwrap();
        Relay::spawn(&self.folder, &file, words, &[("NO_COLOR".into(), "1".into())])
    }

    pub(crate) fn walrelay(&self, words: &[&str]) -> Ended {
        self.spawn(words).wait()
    }

    /// A command that must go well.
    #[track_caller]
    pub(crate) fn must(&self, words: &[&str]) -> Ended {
        let ended = self.walrelay(words);
        assert_eq!(ended.code, 0, "{ended}");
        ended
    }

    /// `dlq list --json` with these words.
    #[track_caller]
    pub(crate) fn list(&self, words: &[&str]) -> Vec<Value> {
        let words = [&["dlq", "list", "--json"], words].concat();
        let told = self.must(&words).out;
        told.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Records in the dead-letter topic, as `dlq list` counts them.
    #[track_caller]
    pub(crate) fn records_read(&self) -> u64 {
        let told = self.must(&["dlq", "list", "--state", "all"]).err;
        let (before, _) = told.split_once(" records read").unwrap_or_else(|| panic!("{told}"));
        before.rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// Ids of the open dead letters, in the order of the log.
    #[track_caller]
    pub(crate) fn open(&self) -> Vec<String> {
        ids(&self.list(&[]))
    }

    /// The admin API is open to who knows this token, which stands in a file of its own.
    pub(crate) fn with_token(mut self, token: &str) -> DeadLetterFixture {
        let file = self.folder.join("token");
        std::fs::write(&file, format!("{token}\n")).unwrap();
        // What stands before the first section belongs to `[admin]`.
        self.config.extra.insert_str(0, &format!("token = {{ file = {file:?} }}\n"));
        self
    }

    /// Every event goes the site's own way, whatever its type.
    pub(crate) fn with_one_route(mut self) -> DeadLetterFixture {
        self.config.topic = self.site.name.clone();
        self
    }

    /// Events in one transaction each hundred; `seq` rises by key from `first`.
    pub(crate) fn insert(&self, aggregate_type: &str, keys: Range<u64>, first: u64, count: u64) {
        let (from, keys) = (keys.start, keys.end - keys.start);
        let chunk = |start: u64| {
            let last = (start + 99).min(first + count - 1);
            format!(
                "begin; insert into outbox select gen_random_uuid(), '{aggregate_type}',
                 'k' || ({from} + i % {keys}), 'created', jsonb_build_object('seq', i)
                 from generate_series({start}, {last}) i order by i; commit;"
            )
        };
        let all: String =
            (first..first + count).step_by(100).map(chunk).collect::<Vec<_>>().join("\n");
        self.site.execute(&all);
    }

    /// Events of key `k` whose payloads have more than so many bytes, each in its transaction.
    pub(crate) fn insert_large(&self, aggregate_type: &str, first: u64, count: u64, bytes: u64) {
        for seq in first..first + count {
            self.site.execute(&format!(
                "insert into outbox values (gen_random_uuid(), '{aggregate_type}', 'k', 'created',
                 jsonb_build_object('seq', {seq}, 'x', repeat('y', {bytes})))"
            ));
        }
    }

    /// One event; its id.
    pub(crate) fn insert_one(&self, aggregate_type: &str, key: &str, seq: u64) -> String {
        self.site.value(&format!(
            "insert into outbox values (gen_random_uuid(), '{aggregate_type}', '{key}', 'created',
             '{{\"seq\": {seq}}}') returning id"
        ))
    }

    /// One event; its id, and an LSN before the end of its transaction: a slot that is confirmed no
    /// farther is held before it.
    pub(crate) fn insert_before(&self, aggregate_type: &str, key: &str, seq: u64) -> (String, u64) {
        let told = self.site.value(&format!(
            "with event as (
               insert into outbox values (gen_random_uuid(), '{aggregate_type}', '{key}', 'created',
               '{{\"seq\": {seq}}}') returning id
             )
             select id || ' ' || (pg_current_wal_insert_lsn() - '0/0')::bigint from event"
        ));
        let (id, lsn) = told.split_once(' ').unwrap();
        (id.to_owned(), lsn.parse().unwrap())
    }

    /// What was committed for a route against what it holds.
    pub(crate) fn judge(
        &self,
        aggregate_type: &str,
        records: &[Record],
        dead: &[String],
    ) -> Verdict {
        let of_route = self.site.value(&format!(
            "select string_agg(id::text, ' ') from outbox where aggregatetype = '{aggregate_type}'"
        ));
        let of_route: HashSet<&str> = of_route.split(' ').collect();
        let mut truth = oracle::read_truth(&self.site.url, "public.outbox").unwrap();
        truth.retain(|row| of_route.contains(row.id.as_str()));
        oracle::check(&truth, records, &dead.iter().cloned().collect())
    }
}

/// The event ids of listed letters.
pub(crate) fn ids(letters: &[Value]) -> Vec<String> {
    letters.iter().map(|letter| letter["event_id"].as_str().unwrap().to_owned()).collect()
}

/// Everything that the destination of a reader holds.
pub(crate) fn held(reader: Reader) -> Vec<Record> {
    reader.finish().swap_remove(0)
}
