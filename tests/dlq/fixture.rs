//! A dead-letter topic of the test's own, and a place for its events.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use walrelay::base::event::{Outbound, Position};
use walrelay::base::lsn::Lsn;
use walrelay::base::time::parse_rfc3339;
use walrelay::config::{Config, Request};
use walrelay::dead_letter::writer::{self, DeadLetterCause, DeadLetterWriter};
use walrelay::sink::log::{LogRead, ReadFrom};
use walrelay::sink::{PublishError, SinkReport};
use walrelay_harness::consumer::create_topic;
use walrelay_harness::kit::{now_us, payload_hash};
use walrelay_harness::oracle::{self, TruthRow, Verdict};
use walrelay_harness::rabbit::{Queue, Rabbit};
use walrelay_harness::relay::RelayConfig;

use crate::support::broker::Reader;
use crate::support::faults::{Ended, Relay};
use crate::support::{Fixture, LIMIT, shared_kafka, shared_postgres, shared_rabbitmq};

pub(crate) const SECOND: i64 = 1_000_000;

#[derive(Clone)]
pub(crate) struct Spec {
    pub(crate) id: String,
    pub(crate) key: Option<String>,
    /// The site's own place, when nothing else is said.
    pub(crate) topic: Option<String>,
    pub(crate) class: &'static str,
    pub(crate) value: Vec<u8>,
    pub(crate) failed_unix_us: i64,
    pub(crate) parks_key: bool,
}

impl Spec {
    pub(crate) fn new(n: usize, key: impl Into<String>) -> Spec {
        Spec {
            id: format!("e{n}"),
            key: Some(key.into()),
            topic: None,
            class: "test.refused",
            value: format!("{{\"seq\": {n}}}").into_bytes(),
            failed_unix_us: now_us(),
            parks_key: false,
        }
    }
}

pub(crate) struct DlqFixture {
    pub(crate) site: Fixture,
    pub(crate) is_kafka: bool,
    folder: PathBuf,
    pub(crate) file: PathBuf,
    config: Config,
    truth: Vec<TruthRow>,
}

impl DlqFixture {
    pub(crate) fn kafka(name: &str) -> DlqFixture {
        let site = Fixture::new(shared_postgres(), shared_kafka(), name);
        create_topic(&shared_kafka().bootstrap(), &format!("{name}.dlq"), 3, &[]).unwrap();
        DlqFixture::new(site, true)
    }

    pub(crate) fn rabbitmq(name: &str) -> DlqFixture {
        let site = Fixture::new(shared_postgres(), shared_rabbitmq(), name);
        let (exchange, queue) = (format!("{name}.dlx"), format!("{name}.dlq"));
        let mut rabbit = Rabbit::open(&shared_rabbitmq().amqp_url()).unwrap();
        rabbit.declare_exchange(&exchange, "direct").unwrap();
        rabbit.declare_stream(&queue).unwrap();
        rabbit.bind(&queue, &exchange, &queue).unwrap();
        rabbit.close();
        DlqFixture::new(site, false)
    }

    fn new(site: Fixture, is_kafka: bool) -> DlqFixture {
        let name = site.name.clone();
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("dlq").join(&name);
        std::fs::create_dir_all(&folder).unwrap();
        let relay = site.config();
        let (file, config) = configure(&folder, "walrelay.toml", relay, &name);
        DlqFixture { site, is_kafka, folder, file, config, truth: Vec::new() }
    }

    /// The same dead letters of a broker that does not answer.
    pub(crate) fn with_broker_down(&mut self) {
        let port = walrelay_harness::free_port().unwrap();
        let mut relay = self.site.config();
        match &mut relay.rabbitmq {
            Some(rabbitmq) => rabbitmq.url = format!("amqp://guest:guest@127.0.0.1:{port}"),
            None => relay.brokers = format!("127.0.0.1:{port}"),
        }
        let (file, _) = configure(&self.folder, "down.toml", relay, &self.site.name);
        self.file = file;
    }

    pub(crate) fn open_route(&self, topic: &str) {
        if self.is_kafka {
            create_topic(&shared_kafka().bootstrap(), topic, 1, &[]).unwrap();
            return;
        }
        let mut rabbit = Rabbit::open(&shared_rabbitmq().amqp_url()).unwrap();
        rabbit.declare_queue(topic, Queue::Classic).unwrap();
        rabbit.bind(topic, &self.site.name, topic).unwrap();
        rabbit.close();
    }

    /// Writes letters as a relay would, and waits until the broker has them.
    pub(crate) fn write(&mut self, letters: impl IntoIterator<Item = Spec>) {
        let mut sink = self.config.sink.open(None).unwrap();
        let settings = self.config.dead_letter.clone();
        let writer = DeadLetterWriter { settings, relay: self.site.name.clone() };
        let exchange = if self.is_kafka { "" } else { self.site.name.as_str() };
        let (mut sent, mut confirmed, mut reports) = (0, 0, Vec::new());
        let mut last = Instant::now();
        let mut letters = letters.into_iter().peekable();
        while letters.peek().is_some() || confirmed < sent {
            while let Some(spec) = letters.peek() {
                let topic = spec.topic.clone().unwrap_or_else(|| self.site.name.clone());
                let event = Outbound {
                    exchange,
                    topic: &topic,
                    key: spec.key.as_deref().map(str::as_bytes),
                    value: Some(&spec.value),
                    id: &spec.id,
                    event_type: Some("Test"),
                    content_type: Some("application/json"),
                    headers: &[("id", spec.id.as_bytes())],
                    commit_unix_us: spec.failed_unix_us - SECOND,
                    partition: None,
                };
                let cause = DeadLetterCause {
                    class: spec.class.to_owned(),
                    reason: "nobody wants it".to_owned(),
                    attempts: 5,
                    first_failed_unix_us: spec.failed_unix_us - SECOND,
                    failed_unix_us: spec.failed_unix_us,
                    position: Position { commit_lsn: Lsn::from_wire(0x16_B374_D848), ordinal: 0 },
                    incomplete: false,
                    parks_key: spec.parks_key,
                };
                match writer
                    .compose(&event, &cause, |letter| sink.publish_dead_letter(sent, letter))
                {
                    Ok(()) => {}
                    Err(PublishError::QueueFull) => break,
                    Err(PublishError::Failed(failure)) => panic!("{failure:?}"),
                }
                if topic == self.site.name {
                    self.truth.push(TruthRow {
                        id: spec.id.clone(),
                        key: spec.key.clone().unwrap_or_default(),
                        seq: i64::try_from(sent).unwrap(),
                        hash: payload_hash(&spec.value),
                    });
                }
                sent += 1;
                letters.next();
            }
            sink.poll(Duration::from_millis(5), &mut reports);
            for reports in reports.drain(..) {
                match reports {
                    SinkReport::Confirmed(_) => {
                        confirmed += 1;
                        last = Instant::now();
                    }
                    SinkReport::Reachable => {}
                    other => panic!("{other:?}"),
                }
            }
            assert!(last.elapsed() < LIMIT, "{confirmed} of {sent} letters confirmed");
        }
    }

    /// When letters were resolved, in microseconds, by the records themselves.
    pub(crate) fn resolved_at(&self) -> Vec<i64> {
        let address = &self.config.dead_letter.address;
        let mut log = self.config.sink.log(address, ReadFrom::Beginning).unwrap();
        let mut at = Vec::new();
        loop {
            match log.next(Duration::from_millis(20)).unwrap() {
                LogRead::Entry(entry) => {
                    let header = |wanted| entry.headers.iter().find(|(name, _)| name == wanted);
                    if let Some((_, time)) = header(writer::RESOLVED_AT) {
                        at.push(parse_rfc3339(std::str::from_utf8(time).unwrap()).unwrap());
                    } else {
                        assert!(header(writer::ERROR_CLASS).is_some(), "a foreign record");
                    }
                }
                LogRead::Nothing => {}
                LogRead::End => return at,
            }
        }
    }

    pub(crate) fn spawn(&self, words: &[&str]) -> Relay {
        let words = [&["dlq"], words].concat();
        Relay::spawn(&self.folder, &self.file, &words, &[("NO_COLOR".into(), "1".into())])
    }

    #[track_caller]
    pub(crate) fn dlq(&self, words: &[&str]) -> Ended {
        self.spawn(words).wait_within(LIMIT)
    }

    /// `dlq list --json` with these words.
    #[track_caller]
    pub(crate) fn list(&self, words: &[&str]) -> (Vec<Value>, Ended) {
        let ended = self.dlq(&[&["list", "--json"], words].concat());
        ended.assert_done();
        let letters = ended.out.lines().map(|line| serde_json::from_str(line).unwrap());
        (letters.collect(), ended)
    }

    #[track_caller]
    pub(crate) fn ids(&self, words: &[&str]) -> Vec<String> {
        let text = |letter: &Value| letter["event_id"].as_str().unwrap().to_owned();
        self.list(words).0.iter().map(text).collect()
    }

    pub(crate) fn reader(&self) -> Reader {
        self.site.reader()
    }

    /// The events of all letters that were written for the site's place, against what is there.
    pub(crate) fn judge(&self, reader: Reader) -> Verdict {
        oracle::check(&self.truth, &reader.finish().swap_remove(0), &HashSet::new())
    }
}

fn configure(
    folder: &std::path::Path,
    file: &str,
    relay: RelayConfig,
    name: &str,
) -> (PathBuf, Config) {
    let extra = format!("[dead_letter]\ntopic = \"{name}.dlq\"\nexchange = \"{name}.dlx\"\n");
    let relay = RelayConfig { extra, ..relay };
    let file = folder.join(file);
    std::fs::write(&file, relay.toml(([127, 0, 0, 1], 0).into())).unwrap();
    let request = Request { file: Some(file.clone()), ..Request::default() };
    let config = walrelay::config::load(&request).unwrap_or_else(|faults| panic!("{faults:?}"));
    (file, config.config)
}
