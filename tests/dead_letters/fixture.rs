//! A fixture with dead letters of its own, and the commands that look at them.

use std::collections::HashSet;
use std::ops::Range;
use std::path::PathBuf;

use serde_json::Value;
use walrelay_harness::consumer::Record;
use walrelay_harness::oracle::{self, Verdict};
use walrelay_harness::relay::{RelayConfig, RelayProcess};
use walrelay_harness::{BrokerKind, Postgres};

use crate::support::broker::{Destination, Reader};
use crate::support::faults::{Ended, Relay};
use crate::support::{Fixture, LIMIT, name_on, shared_postgres};

pub(crate) struct DeadLetterFixture {
    pub(crate) site: Fixture,
    pub(crate) config: RelayConfig,
}

impl DeadLetterFixture {
    /// On the shared services. `delivery` and `dead_letter` are lines of those sections.
    pub(crate) fn on(
        kind: BrokerKind,
        name: &str,
        delivery: &str,
        dead_letter: &str,
    ) -> DeadLetterFixture {
        let name = name_on(kind, name);
        DeadLetterFixture::new(shared_postgres(), kind, &name, delivery, dead_letter)
    }

    pub(crate) fn new(
        postgres: &Postgres,
        destination: impl Into<Destination>,
        name: &str,
        delivery: &str,
        dead_letter: &str,
    ) -> DeadLetterFixture {
        let site = Fixture::new(postgres, destination, name);
        let mut config = site.config();
        config.topic = "${aggregatetype}".into();
        // The client finds out soon that a topic was made, and does not itself refuse an event that
        // is larger than a topic takes.
        for (property, value) in
            [("topic.metadata.refresh.interval.ms", "500"), ("message.max.bytes", "4000000")]
        {
            config.properties.push((property.into(), value.into()));
        }
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("commands").join(name);
        let state_file = folder.join("crash");
        drop(std::fs::remove_file(&state_file));
        config.extra = format!(
            "[delivery]\nbackoff_base = \"20ms\"\nstate_file = {state_file:?}\n{delivery}\n\
             [dead_letter]\ntopic = \"{name}.dlq\"\nexchange = \"{name}.dlx\"\n{dead_letter}\n"
        );
        let case = DeadLetterFixture { site, config };
        case.must(&["init"]);
        case
    }

    /// The configuration of a second relay on the slot, with a state file of its own.
    pub(crate) fn config_of_peer(&self) -> RelayConfig {
        let mut config = self.config.clone();
        config.extra = config.extra.replace("/crash\"", "/crash_second\"");
        assert_ne!(config.extra, self.config.extra);
        let name = &self.site.name;
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("commands").join(name);
        drop(std::fs::remove_file(folder.join("crash_second")));
        config
    }

    pub(crate) fn reconfigure(&mut self, from: &str, to: &str) {
        assert!(self.config.extra.contains(from), "{}", self.config.extra);
        self.config.extra = self.config.extra.replace(from, to);
    }

    /// An aggregate type whose events have no route until [`Fixture::open_route`] makes one.
    pub(crate) fn lost(&self) -> String {
        format!("{}.lost", self.site.name)
    }

    pub(crate) fn relay(&self) -> RelayProcess {
        self.site.relay_with(self.config.clone())
    }

    pub(crate) fn start(&self) -> RelayProcess {
        crate::support::start(self.config.clone(), &self.site.name)
    }

    pub(crate) fn spawn(&self, words: &[&str]) -> Relay {
        self.site.command(&self.config, words)
    }

    pub(crate) fn walrelay(&self, words: &[&str]) -> Ended {
        // A soak run reads a hundred thousand dead letters.
        self.spawn(words).wait_within(3 * LIMIT)
    }

    #[track_caller]
    pub(crate) fn must(&self, words: &[&str]) -> Ended {
        let ended = self.walrelay(words);
        assert_eq!(ended.code, 0, "{ended}");
        ended
    }

    /// `dlq list --json` with these words: the dead letters, and the whole output.
    #[track_caller]
    pub(crate) fn list_output(&self, words: &[&str]) -> (Vec<Value>, Ended) {
        let ended = self.must(&[&["dlq", "list", "--json"], words].concat());
        let letters = ended.out.lines().map(|line| serde_json::from_str(line).unwrap());
        (letters.collect(), ended)
    }

    #[track_caller]
    pub(crate) fn list(&self, words: &[&str]) -> Vec<Value> {
        self.list_output(words).0
    }

    /// Records in the dead-letter topic, as `dlq list` counts them.
    #[track_caller]
    pub(crate) fn records_read(&self) -> u64 {
        let err = self.must(&["dlq", "list", "--state", "all"]).err;
        let (before, _) = err.split_once(" record").unwrap_or_else(|| panic!("{err}"));
        before.rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// Ids of the open dead letters, in the order of the log.
    #[track_caller]
    pub(crate) fn open(&self) -> Vec<String> {
        ids(&self.list(&[]))
    }

    /// Opens the admin API to this token, which is read from a file.
    pub(crate) fn with_token(mut self, token: &str) -> DeadLetterFixture {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("commands");
        let file = folder.join(format!("{}.token", self.site.name));
        std::fs::write(&file, format!("{token}\n")).unwrap();
        // Lines before the first section belong to `[admin]`.
        self.config.extra.insert_str(0, &format!("token = {{ file = {file:?} }}\n"));
        self
    }

    /// Events in transactions of a hundred; `seq` rises by key from `first`.
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

    pub(crate) fn insert_one(&self, aggregate_type: &str, key: &str, seq: u64) -> String {
        self.insert_before(aggregate_type, key, seq).0
    }

    /// Inserts one event; returns its id, and an LSN before the end of its transaction: a slot that
    /// is confirmed no farther is held before it.
    pub(crate) fn insert_before(&self, aggregate_type: &str, key: &str, seq: u64) -> (String, u64) {
        let row = self.site.value(&format!(
            "with event as (
               insert into outbox values (gen_random_uuid(), '{aggregate_type}', '{key}', 'created',
               '{{\"seq\": {seq}}}') returning id
             )
             select id || ' ' || (pg_current_wal_insert_lsn() - '0/0')::bigint from event"
        ));
        let (id, lsn) = row.split_once(' ').unwrap();
        (id.to_owned(), lsn.parse().unwrap())
    }

    /// Compares what was committed for a route with what it holds.
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

pub(crate) fn ids(letters: &[Value]) -> Vec<String> {
    letters.iter().map(|letter| letter["event_id"].as_str().unwrap().to_owned()).collect()
}

/// Everything that the destination of a reader holds.
pub(crate) fn held(reader: Reader) -> Vec<Record> {
    reader.finish().swap_remove(0)
}
