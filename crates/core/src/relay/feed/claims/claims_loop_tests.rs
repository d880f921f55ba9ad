//! The loop over a feed of claimed rows: workers and sink in memory, and a clock that goes on only while
//! somebody waits.

use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, MutexGuard};

use super::tests::{Fixture, Table, fixture_of, tuple};
use super::*;
use crate::base::event::Position;
use crate::dead_letter::tail_event::{self, TailEvent};
use crate::delivery::settings::OnDeadLetter;
use crate::relay::failure_policy::tests::failure as refusal;
use crate::relay::ports::Clock;
use crate::relay::state_file::StateFile;
use crate::relay::state_file::header::IN_HAND;
use crate::relay::surroundings::{Broker, Ticks, parts};
use crate::relay::testing::MemoryFile;
use crate::relay::{Parts, Relay};
use crate::sink::{Disposition, Failure, PublishError, SinkReport};

/// A refusal of an event of the key `k`, which all rows of these tests have.
pub(super) fn failure(disposition: Disposition) -> Failure {
    let refusal = refusal(disposition, "kafka.no");
    Failure { known: true, key: Some(Box::from(&b"k"[..])), ..refusal }
}

struct Bench {
    relay: Relay<ClaimFeed>,
    table: Arc<Mutex<Table>>,
    lease: Arc<ClaimLease>,
    clock: Arc<Ticks>,
    broker: Arc<Mutex<Broker>>,
    /// Brings what is read of the dead-letter topic.
    letters: SyncSender<TailEvent>,
}

impl Bench {
    /// The dead-letter topic was not read.
    fn unread(delivery: DeliverySettings, state_file: StateFile) -> Bench {
        let Fixture { feed, table, lease, began } = fixture_of(delivery.clone());
        let (clock, broker) = (Ticks::since(began), Arc::<Mutex<Broker>>::default());
        let (letters, tail_events) = tail_event::channel();
        let parts = parts(&clock, &Arc::default(), Arc::clone(&broker));
        let parts = Parts { delivery, state_file, tail_events: Some(tail_events), ..parts };
        let relay = Relay::new(parts, feed).unwrap();
        Bench { relay, table, lease, clock, broker, letters }
    }

    fn new(delivery: DeliverySettings) -> Bench {
        let bench = Bench::unread(delivery, StateFile::default());
        bench.letters.send(TailEvent::CaughtUp).unwrap();
        bench
    }

    fn held(&self) -> MutexGuard<'_, Broker> {
        self.broker.lock().unwrap()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap()
    }

    fn pass(&self, claim: &str, rows: usize) {
        self.table().pass(claim, rows, self.clock.instant());
    }

    fn report(&self, report: SinkReport) {
        self.held().reports.push(report);
    }

    /// One pass of the loop. Why it takes no row in, and whether more rows are wanted.
    fn round(&mut self) -> (Option<IntakeHold>, bool) {
        self.relay.pass().unwrap();
        (self.relay.feed.status(self.clock.instant()).hold, self.table().wanted)
    }

    /// Ends the feed. The rows that count as unconfirmed, and how long it took.
    fn finish(&mut self) -> (usize, Duration) {
        let began = self.clock.instant();
        let Relay { feed, down, .. } = &mut self.relay;
        let left = feed.finish(down, None);
        (left, self.clock.instant() - began)
    }
}

fn park_key() -> DeliverySettings {
    DeliverySettings { on_dead_letter: OnDeadLetter::ParkKey, ..DeliverySettings::default() }
}

#[test]
fn no_more_rows_are_claimed_while_as_many_rows_or_bytes_as_may_be_have_no_verdict() {
    let events = DeliverySettings { window_events_max: 3, ..DeliverySettings::default() };
    let window_bytes_max = 2 * tuple("1", "k").len();
    let bytes = DeliverySettings { window_bytes_max, ..DeliverySettings::default() };
    for (delivery, fits) in [(events, 2), (bytes, 1)] {
        let mut bench = Bench::new(delivery);
        bench.pass("a", fits);
        assert_eq!(bench.round(), (None, true), "{fits} fit");
        bench.pass("b", 1);
        assert_eq!(bench.round(), (Some(IntakeHold::WindowFull), false), "{fits} fit");
        bench.report(SinkReport::Confirmed(0));
        bench.round();
        assert_eq!(bench.round(), (None, true), "{fits} fit");
    }
}

#[test]
fn rows_wait_for_an_unread_dead_letter_topic_and_for_a_full_sink_and_the_reason_is_named() {
    let mut bench = Bench::unread(park_key(), StateFile::default());
    bench.pass("a", 2);
    assert_eq!(bench.round(), (Some(IntakeHold::DeadLettersUnread), false));
    bench.letters.send(TailEvent::CaughtUp).unwrap();
    bench.held().refusal = Some(PublishError::QueueFull);
    assert_eq!(bench.round().0, Some(IntakeHold::SinkFull));
    assert!(bench.held().taken.is_empty());
    assert_eq!(bench.round(), (None, true));
    assert_eq!(bench.held().taken, ["1", "2"]);
}

#[test]
fn no_more_rows_are_claimed_while_nothing_could_be_published() {
    type Case = (&'static str, fn(&mut Bench));
    let cases: [Case; 7] = [
        ("lease", |it| it.clock.sleep(Duration::from_secs(4))),
        ("sink", |it| it.relay.down.driver.sink = None),
        ("broker", |it| {
            it.relay.down.driver.unreachable("it is away".to_owned());
        }),
        ("dead-letter topic", |it| it.relay.down.policy.gate.read_again()),
        ("end", |it| it.relay.feed.close()),
        ("verdicts", |it| it.relay.feed.waiting.push_back(Verdicts::of("z".to_owned()))),
        ("window", |it| {
            it.pass("b", 3);
            it.relay.feed.take_batches(it.clock.now());
        }),
    ];
    for (name, change) in cases {
        let mut bench = Bench::new(DeliverySettings { window_events_max: 3, ..park_key() });
        assert_eq!(bench.round(), (None, true), "{name}");
        change(&mut bench);
        let Relay { feed, down, .. } = &mut bench.relay;
        feed.report(down, bench.clock.instant());
        assert!(!bench.table().wanted, "{name}");
    }
}

#[test]
fn a_table_is_polled_while_claims_are_renewed_and_rows_that_failed_are_awaited() {
    let mut bench = Bench::new(DeliverySettings::default());
    assert_eq!(bench.relay.feed.next(), (0, true));
    bench.pass("a", 2);
    bench.relay.feed.take_batches(bench.clock.now());
    assert_eq!(bench.relay.feed.next(), (2, false), "rows are queued");
    bench.round();
    assert_eq!(bench.relay.feed.next(), (2, true));
    assert!(!bench.relay.feed.awaits_retries());
    bench.relay.feed.retrying(0, 1, Duration::ZERO, "no");
    assert!(bench.relay.feed.awaits_retries());
    assert_eq!(bench.relay.feed.status(bench.clock.instant()).phase, Phase::Polling);
    bench.clock.sleep(Duration::from_secs(4));
    assert_eq!(bench.relay.feed.status(bench.clock.instant()).phase, Phase::Connecting);
}

#[test]
fn a_sink_that_refuses_every_event_is_dropped_and_the_next_one_gets_the_row() {
    let mut bench = Bench::new(DeliverySettings::default());
    bench.held().refusal = Some(PublishError::Failed(failure(Disposition::Outage)));
    bench.pass("a", 1);
    assert_eq!(bench.round(), (None, false));
    assert!(bench.relay.down.driver.sink.is_none());
    assert!(bench.held().taken.is_empty());
    bench.clock.sleep(Duration::from_secs(1));
    assert_eq!(bench.round(), (None, true));
    assert_eq!(bench.held().taken, ["1"]);
}

#[test]
fn a_row_that_was_given_up_is_a_row_again_for_the_next_sink() {
    let mut bench = Bench::unread(DeliverySettings::default(), StateFile::default());
    bench.pass("a", 1);
    bench.round();
    bench.report(SinkReport::Failed(0, failure(Disposition::Terminal)));
    bench.report(SinkReport::Broken("it is lost".to_owned()));
    bench.round();
    assert_eq!(bench.relay.feed.given_up(), [0], "its dead letter waits for the topic");
    // WHEN the topic was read before the next sink has the row
    bench.clock.sleep(Duration::from_secs(1));
    bench.letters.send(TailEvent::CaughtUp).unwrap();
    bench.round();
    assert_eq!(bench.held().taken, ["1", "1"]);
}

#[test]
fn a_row_that_is_withdrawn_is_given_back_and_its_dead_letter_parks_no_key_any_more() {
    let mut bench = Bench::new(park_key());
    bench.pass("a", 1);
    bench.round();
    bench.report(SinkReport::Failed(0, failure(Disposition::Terminal)));
    bench.round();
    bench.relay.down.policy.suspects.insert(Position::default());
    bench.lease.lose();
    bench.round();
    assert_eq!(bench.table().given_back(), [("a".to_owned(), 1)]);
    assert!(bench.relay.down.policy.suspects.is_empty());
    // WHEN it is claimed again THEN it is an event again
    bench.pass("b", 1);
    bench.round();
    assert_eq!(bench.held().taken, ["1", "letter in place of 0", "1"]);
}

#[test]
fn a_row_on_which_three_processes_have_died_becomes_a_dead_letter_once() {
    let file = MemoryFile::default();
    for _ in 0..3 {
        let mut bench = Bench::unread(DeliverySettings::default(), file.open());
        bench.pass("a", 1);
        bench.round();
        assert_eq!(bench.held().taken, ["1"]);
        // It dies with the row in hand.
        file.bytes().store(IN_HAND, 1);
    }
    let mut bench = Bench::unread(DeliverySettings::default(), file.open());
    bench.letters.send(TailEvent::CaughtUp).unwrap();
    bench.pass("a", 2);
    bench.round();
    assert_eq!(bench.held().taken, ["letter of 1", "2"]);
    // WHEN the dead letter is there and the row comes again THEN somebody wants it published
    bench.report(SinkReport::Confirmed(0));
    bench.round();
    bench.pass("b", 1);
    bench.round();
    assert_eq!(bench.held().taken, ["letter of 1", "2", "1"]);
}

#[test]
fn at_the_end_the_sink_is_dropped_and_rows_without_a_verdict_are_given_back() {
    let mut bench = Bench::new(DeliverySettings::default());
    bench.pass("a", 3);
    bench.round();
    bench.relay.feed.retrying(0, 1, Duration::ZERO, "no");
    // GIVEN a batch that comes last
    bench.pass("b", 1);
    assert_eq!(bench.finish(), (2, Duration::ZERO), "the one that has failed does not count");
    assert!(bench.relay.down.driver.sink.is_none());
    assert_eq!(bench.table().given_back(), [("a".to_owned(), 3), ("b".to_owned(), 1)]);
}

#[test]
fn the_end_waits_a_second_for_room_for_the_last_verdicts_while_somebody_writes_them() {
    type Case = (fn(&mut Table), u64, usize);
    let cases: [Case; 3] = [
        (|table| table.room_from = Some(table.offers + 3), 10, 2),
        (|_| (), 1_000, 0),
        (|table| table.is_gone = true, 0, 0),
    ];
    for (change, waited_ms, written) in cases {
        let mut bench = Bench::new(DeliverySettings::default());
        bench.pass("a", 2);
        bench.round();
        // GIVEN a row whose failure is noted, for which no worker waits
        bench.relay.feed.retrying(0, 1, Duration::ZERO, "no");
        bench.round();
        change(&mut bench.table());
        assert_eq!(bench.finish(), (1, Duration::from_millis(waited_ms)));
        let table = bench.table();
        let last = table.written.last().map(|it| (it.given_back.len(), it.last));
        assert_eq!(table.written.len(), written);
        assert_eq!(last, (written > 0).then_some((2, true)));
    }
}
