//! Trait that a kind of broker must implement to be tested: a place for events, a look at what
//! arrived, and its faults.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use walrelay::sink::{Broker, SINKS};

use super::file::FileFixture;
use super::kafka::KafkaFixture;
use super::memory::MemoryFixture;
use super::rabbitmq::RabbitFixture;
use crate::sinks::test_relay::Event;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    /// In order; `id` is among them.
    pub(crate) headers: Vec<(String, Vec<u8>)>,
}

impl Arrived {
    pub(crate) fn id(&self) -> String {
        let id = self.headers.iter().find(|(name, _)| name == "id");
        String::from_utf8(id.expect("a header id").1.clone()).unwrap()
    }
}

/// A broker under test, with what breaks it.
pub(crate) trait SinkFixture: Send {
    /// The broker, as the relay would have it.
    fn broker(&self) -> Arc<dyn Broker>;

    /// Makes a place; what is published like this event goes there.
    fn place(&mut self, name: &str) -> Event;

    fn count(&mut self, place: &Event) -> usize;

    /// Takes what is there, in order of arrival as far as the broker has one.
    fn take(&mut self, place: &Event) -> Vec<Arrived>;

    /// The event as a broker without nulls, or with headers in its own order, returns it.
    fn normal(&self, arrived: Arrived) -> Arrived {
        arrived
    }

    /// The event, such that the broker will never take it.
    fn poison(&mut self, event: Event) -> Event;

    /// The event, such that the broker refuses it until [`SinkFixture::provide`]; none where no
    /// event is ever refused for a while.
    fn refuse_for_now(&mut self, event: Event) -> Option<Event>;

    /// Does the sink judge an event when it is published,
    /// so that nothing of its key waits behind it?
    fn refuses_at_once(&self) -> bool {
        false
    }

    /// Makes the destination of this event.
    fn provide(&mut self, place: &Event);

    /// From now until the next `cut` the broker stores events, and its answers are lost.
    fn lose_answers(&mut self);

    /// Closes every connection.
    fn cut(&mut self);

    /// From now until `go_on` the broker answers nothing.
    fn stall(&mut self);

    fn go_on(&mut self);

    /// Waits until what was stored so far survives a `kill`.
    fn keep(&self) {}

    fn kill(&mut self);

    fn revive(&mut self);

    fn connections(&self) -> usize;
}

/// Makes the fixture of a kind. A kind that is not here fails every test of the suite.
fn make(kind: &str) -> Box<dyn SinkFixture> {
    match kind {
        "memory" => Box::new(MemoryFixture::default()),
        "kafka" => Box::new(KafkaFixture::start()),
        "rabbitmq" => Box::new(RabbitFixture::start()),
        "file" => Box::new(FileFixture::start()),
        other => panic!("sink {other:?} has no fixture: write one, so that the suite runs over it"),
    }
}

type Fixtures = BTreeMap<&'static str, Mutex<Option<Box<dyn SinkFixture>>>>;

/// Runs a case over every kind of sink, or that in `WALRELAY_TEST_SINK`, and tells
/// which failed. A fixture serves one case at a time.
#[track_caller]
pub(crate) fn each(case: fn(&mut dyn SinkFixture)) {
    static FIXTURES: OnceLock<Fixtures> = OnceLock::new();
    let fixtures = FIXTURES.get_or_init(|| {
        let chosen = std::env::var("WALRELAY_TEST_SINK").ok();
        let names = SINKS.iter().map(|kind| kind.name);
        let wanted = names.filter(|name| chosen.as_deref().is_none_or(|chosen| chosen == *name));
        wanted.map(|name| (name, Mutex::default())).collect()
    });
    assert!(!fixtures.is_empty(), "WALRELAY_TEST_SINK names no sink");
    let failed = std::thread::scope(|scope| {
        let start =
            |(kind, fixture): (&&'static str, &'static Mutex<Option<Box<dyn SinkFixture>>>)| {
                let kind = *kind;
                let work = move || {
                    // A case that failed over it has not lost it.
                    let mut fixture = fixture.lock().unwrap_or_else(PoisonError::into_inner);
                    case(&mut **fixture.get_or_insert_with(|| make(kind)));
                };
                let thread = std::thread::Builder::new().name(format!("over {kind}"));
                (kind, thread.spawn_scoped(scope, work).unwrap())
            };
        let running: Vec<_> = fixtures.iter().map(start).collect();
        let ended = running.into_iter().map(|(kind, thread)| (kind, thread.join()));
        ended.filter(|(_, outcome)| outcome.is_err()).map(|(kind, _)| kind).collect::<Vec<_>>()
    });
    assert!(failed.is_empty(), "failed over {failed:?}: see above");
}
