//! Dead letters that a test writes as a relay would, and the commands that resolve them.

use std::collections::HashSet;
use std::ops::Deref;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use walrelay::base::event::{Outbound, Position};
use walrelay::base::lsn::Lsn;
use walrelay::config::{Config, Request};
use walrelay::dead_letter::writer::{DeadLetterCause, DeadLetterWriter};
use walrelay::sink::{PublishError, SinkReport};
use walrelay_harness::BrokerKind;
use walrelay_harness::consumer::create_topic;
use walrelay_harness::kit::{now_us, payload_hash};
use walrelay_harness::oracle::{self, TruthRow, Verdict};

use crate::dead_letters::fixture::{DeadLetterFixture, held, ids};
use crate::support::broker::Reader;
use crate::support::faults::Ended;
use crate::support::{LIMIT, name_on, shared_kafka};

pub(crate) const SECOND: i64 = 1_000_000;

#[derive(Clone)]
pub(crate) struct Spec {
    pub(crate) id: String,
    pub(crate) key: Option<String>,
    /// The fixture's own topic when none.
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

/// Dead letters that a test writes itself, without a relay.
pub(crate) struct DlqFixture {
    case: DeadLetterFixture,
    config: Config,
    truth: Vec<TruthRow>,
}

impl Deref for DlqFixture {
    type Target = DeadLetterFixture;

    fn deref(&self) -> &DeadLetterFixture {
        &self.case
    }
}

impl DlqFixture {
    pub(crate) fn on(kind: BrokerKind, name: &str) -> DlqFixture {
        if kind == BrokerKind::Kafka {
            let topic = format!("{}.dlq", name_on(kind, name));
            create_topic(&shared_kafka().bootstrap(), &topic, 3, &[("retention.ms", "-1")])
                .unwrap();
        }
        let case = DeadLetterFixture::on(kind, name, "", "");
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let file = folder.join(format!("{}.toml", case.site.name));
        std::fs::write(&file, case.config.toml(([127, 0, 0, 1], 0).into())).unwrap();
        let request = Request { file: Some(file), ..Request::default() };
        let config = walrelay::config::load(&request).unwrap_or_else(|faults| panic!("{faults:?}"));
        DlqFixture { case, config: config.config, truth: Vec::new() }
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Writes dead letters as a relay would, and waits until the broker has confirmed them.
    pub(crate) fn write(&mut self, letters: impl IntoIterator<Item = Spec>) {
        let mut sink = self.config.sink.open(None).unwrap();
        let (settings, relay) = (self.config.dead_letter.clone(), self.case.site.name.clone());
        let writer = DeadLetterWriter { settings, relay, system: Default::default() };
        let exchange = match self.case.site.kind() {
            BrokerKind::Kafka => "",
            BrokerKind::RabbitMq => self.case.site.name.as_str(),
        };
        let (mut sent, mut confirmed, mut reports) = (0, 0, Vec::new());
        let mut last = Instant::now();
        let mut letters = letters.into_iter().peekable();
        while letters.peek().is_some() || confirmed < sent {
            while let Some(spec) = letters.peek() {
                let topic = spec.topic.clone().unwrap_or_else(|| self.case.site.name.clone());
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
                if topic == self.case.site.name {
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
            sink.poll(Instant::now(), Duration::from_millis(5), &mut reports);
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

    pub(crate) fn dlq(&self, words: &[&str]) -> Ended {
        self.walrelay(&[&["dlq"], words].concat())
    }

    #[track_caller]
    pub(crate) fn ids(&self, words: &[&str]) -> Vec<String> {
        ids(&self.list(words))
    }

    /// Compares the events of all dead letters that were written for the fixture's own route with
    /// what is there.
    pub(crate) fn judge(&self, reader: Reader) -> Verdict {
        oracle::check(&self.truth, &held(reader), &HashSet::new())
    }
}
