//! The loop over a feed of events that the test queues. Its surroundings are in memory, and the clock goes
//! on only while somebody waits.

use std::collections::BTreeMap;
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, MutexGuard};

use super::failure_policy::tests::failure;
use super::state_file::header::{PREFIX_COPY, WRITTEN};
use super::state_file::marks::SlotSession;
use super::stops::StandingStops;
use super::stops::tests::Site;
use super::testing::{BROKER, MemoryFile};
use super::*;
use crate::base::error::Exit;
use crate::base::event::{Outbound, Position};
use crate::base::lsn::Lsn;
use crate::base::random::Random;
use crate::base::stop::BREAKER_OPEN;
use crate::dead_letter::tail_event::ReadRequests;
use crate::dead_letter::writer::{DeadLetterCause, DeadLetterWriter};
use crate::delivery::flight::FlightState;
use crate::delivery::flights::NotInFlight;
use crate::delivery::known::Fingerprint;
use crate::delivery::prefix::ConfirmedPrefix;
use crate::delivery::settings::DeliverySettings;
use crate::health::Pass;
use crate::metrics::{Ignored, KnownFrom};
use crate::relay::ports::{Counter, PassMeter, Recorder};
use crate::sink::{Disposition, PublishError};
use crate::source::settings::SourceSettings;
use crate::testing::dead_letter_writer;
use crate::trace::event_spans::EventSpans;

const HOUR: Duration = Duration::from_secs(3_600);

/// What the loop has done to its surroundings, and what comes next.
#[derive(Default)]
struct World {
    passed: Duration,
    /// How long the sink may send, from the begin.
    sends_for: Duration,
    /// The reports of the next poll, and of the next withdrawal.
    reports: Vec<SinkReport>,
    withdrawn: Vec<SinkReport>,
    broker: u64,
    /// Everything that was done, counted, measured or noted.
    acts: Vec<String>,
    passes: Vec<Pass>,
    withdrawal: Option<String>,
    overtaken: Vec<Sequence>,
    prefix: Option<ConfirmedPrefix>,
    /// The fault of the next intake.
    fault: Option<Fault>,
    has_failing: bool,
    is_incomplete: bool,
    hold: Option<IntakeHold>,
}

/// A sink, which knows until when it may send, or another part of the surroundings.
#[derive(Clone)]
struct Part {
    world: Arc<Mutex<World>>,
    began: Instant,
    until: Option<Instant>,
}

impl Part {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    fn act(&self, act: impl Into<String>) {
        self.world().acts.push(act.into());
    }

    /// Whenever the sink could send, it knows until when it may.
    fn check_until(&self) {
        assert_eq!(self.until, Some(self.send_until()));
    }

    fn send_until(&self) -> Instant {
        self.began + self.world().sends_for
    }

    /// The sink may send a little longer.
    fn prolong(&self) {
        self.world().sends_for += Duration::from_micros(1);
    }
}

impl Clock for Part {
    fn now(&self) -> Moment {
        let passed = self.world().passed;
        Moment { instant: self.began + passed, unix_us: passed.as_micros() as i64 }
    }

    fn sleep(&self, length: Duration) {
        self.world().passed += length;
    }
}

impl Sink for Part {
    fn publish(&mut self, sequence: Sequence, _: &Outbound<'_>) -> Result<(), PublishError> {
        self.check_until();
        self.act(format!("publish {sequence}"));
        Ok(())
    }

    fn poll(&mut self, _: Instant, patience: Duration, reports: &mut Vec<SinkReport>) {
        self.check_until();
        let mut coming = std::mem::take(&mut self.world().reports);
        if coming.is_empty() {
            self.sleep(patience);
        }
        reports.append(&mut coming);
    }

    fn publish_until(&mut self, until: Instant) {
        self.until = Some(until);
    }

    fn withdraw(&mut self, _: Instant, reports: &mut Vec<SinkReport>) {
        reports.append(&mut self.world().withdrawn);
    }

    fn destination(&self, _: Sequence) -> Option<String> {
        self.act("look");
        Some("orders".to_owned())
    }

    fn broker(&mut self) -> u64 {
        self.world().broker
    }

    fn retry(&mut self, sequence: Sequence) {
        self.act(format!("retry {sequence}"));
    }

    fn replace_with_dead_letter(
        &mut self,
        sequence: Sequence,
        _: &DeadLetterWriter,
        _: &DeadLetterCause,
    ) {
        self.act(format!("letter {sequence}"));
    }
}

impl Meters for Part {
    fn count(&self, _: Counter, _: u64) {}

    fn set(&self, gauge: Gauge, value: u64) {
        self.act(format!("{gauge:?} {value}"));
    }
}

impl PassMeter for Part {
    fn published(&mut self, _: i64, _: i64) {}

    fn dead_lettered(&mut self) {
        self.act("dead-lettered");
    }

    fn known(&mut self, _: KnownFrom) {}

    fn retried(&mut self) {
        self.act("retried");
    }

    fn ignored(&mut self, _: Ignored) {}

    fn stage(&mut self, stage: Stage, _: Duration) {
        self.act(format!("{stage:?}"));
    }

    fn flush(&mut self) {
        self.act("flush");
    }
}

impl Recorder for Part {
    fn pass(&mut self, pass: &Pass, _: Instant) {
        self.world().passes.push(*pass);
    }

    fn note(&mut self, sentence: &str) {
        self.act(format!("note {sentence}"));
    }

    fn server_lsn(&self) -> Lsn {
        Lsn::ZERO
    }
}

/// A feed whose events may be received again after they are settled, as those of a slot may, or not.
struct Queue<const OF_SLOT: bool> {
    part: Part,
    waiting: Vec<Flight>,
    flights: BTreeMap<Sequence, Flight>,
    next: Sequence,
}

impl<const OF_SLOT: bool> Feed for Queue<OF_SLOT> {
    const UNREADABLE_TICK: Duration = Duration::from_millis(5);
    const LAST_CONFIRM_WITHIN: Duration = Duration::from_secs(1);
    const TIMES_STAGES: bool = true;
    const RECEIVES_SETTLED: bool = OF_SLOT;

    fn origin(&self) -> String {
        String::new()
    }

    fn ensure_session(&mut self, _: &mut Downstream, _: Instant) -> Result<(), Fault> {
        self.part.prolong();
        Ok(())
    }

    fn withdrawal(&mut self, _: Instant, _: Duration) -> Option<String> {
        self.part.world().withdrawal.take()
    }

    fn send_until(&self) -> Instant {
        self.part.send_until()
    }

    fn intake(&mut self, down: &mut Downstream, now: Instant, _: bool) -> Result<bool, Fault> {
        down.read_at = Some(now);
        if let Some(sink) = &mut down.driver.sink {
            for flight in self.waiting.drain(..) {
                sink.publish(self.next, &Outbound::default()).unwrap();
                self.flights.insert(self.next, flight);
                self.next += 1;
            }
        }
        self.part.prolong();
        let fault = self.part.world().fault.take();
        fault.map_or(Ok(false), Err)
    }

    fn hold(&mut self, _: Instant) {
        self.part.act("hold");
    }

    fn wait(&mut self, _: Duration, _: Option<&dyn Sink>, _: Instant) -> bool {
        false
    }

    fn awaits_confirms(&self) -> bool {
        !self.flights.is_empty()
    }

    fn settle(&mut self, event: Sequence) -> Result<Flight, NotInFlight> {
        self.flights.remove(&event).ok_or(NotInFlight(event))
    }

    fn update<T>(
        &mut self,
        event: Sequence,
        decide: impl FnOnce(&mut Flight) -> T,
    ) -> Result<T, NotInFlight> {
        self.flights.get_mut(&event).map(decide).ok_or(NotInFlight(event))
    }

    fn given_up(&self) -> Vec<Sequence> {
        let is_given_up = |it: &Flight| matches!(it.state, FlightState::GivenUp(_));
        self.flights.iter().filter(|(_, it)| is_given_up(it)).map(|(event, _)| *event).collect()
    }

    fn confirmed_prefix(&mut self) -> Option<ConfirmedPrefix> {
        self.part.world().prefix.take()
    }

    fn forget_prefix(&mut self) {
        self.part.act("forget prefix");
    }

    fn retrying(&mut self, event: Sequence, _: u32, _: Duration, _: &str) {
        self.part.world().has_failing = true;
        self.part.act(format!("retrying {event}"));
    }

    fn next(&self) -> (Sequence, bool) {
        (self.next, true)
    }

    fn rewind(&mut self, policy: &mut FailurePolicy) {
        let again = std::mem::take(&mut self.flights);
        self.next -= again.len() as u64;
        self.waiting.extend(again.into_values());
        policy.retries.rewind();
    }

    fn report(&mut self, _: &mut Downstream, _: Instant) {
        self.part.act("report");
    }

    fn in_flight(&self) -> usize {
        self.flights.len()
    }

    fn overtaken(&self, _: Instant) -> Vec<Sequence> {
        self.part.world().overtaken.clone()
    }

    fn status(&self, _: Instant) -> Pass {
        Pass {
            phase: Phase::Streaming,
            hold: self.part.world().hold,
            in_flight_events: self.flights.len() as u64,
            in_flight_bytes: 20,
            in_flight_limit: 300,
            ..Pass::default()
        }
    }

    fn note_peer(&self, _: &mut Downstream) {
        self.part.act("peer noted");
    }

    fn close(&mut self) {
        self.part.act("close");
    }

    fn is_incomplete(&self) -> bool {
        self.part.world().is_incomplete
    }

    fn awaits_retries(&self) -> bool {
        self.part.world().has_failing
    }

    fn finish(&mut self, _: &mut Downstream, _: Option<&Fault>) -> usize {
        self.flights.len()
    }
}

struct Bench<const OF_SLOT: bool> {
    relay: Relay<Queue<OF_SLOT>>,
    part: Part,
    file: MemoryFile,
    stops: Arc<StandingStops>,
    /// Brings what is read of the dead-letter topic.
    letters: SyncSender<TailEvent>,
}

fn flight(ordinal: u64) -> Flight {
    Flight {
        position: Position { ordinal, ..Position::default() },
        bytes: 10,
        commit_unix_us: 0,
        fingerprint: Fingerprint { event: ordinal + 1, key: 1 },
        state: FlightState::Sent,
        attempts: None,
        span: None,
    }
}

impl<const OF_SLOT: bool> Bench<OF_SLOT> {
    /// These events are in flight after the first pass; the dead-letter topic was not read.
    fn unread(events: u64) -> Bench<OF_SLOT> {
        let world = World { sends_for: 1_000 * HOUR, broker: BROKER, ..World::default() };
        let world = Arc::new(Mutex::new(world));
        let part = Part { world, began: Instant::now(), until: None };
        let file = MemoryFile::default();
        let stops = Arc::new(Site::new().stops(true, false, false));
        let (letters, tail_events) = tail_event::channel();
        // The breaker opens at the second dead letter.
        let mut writer = dead_letter_writer(1024);
        writer.settings.burst_max = 1;
        let sink = part.clone();
        let parts = Parts {
            source: SourceSettings::default(),
            delivery: DeliverySettings {
                backoff_base: Duration::from_millis(1),
                backoff_cap: HOUR,
                ..DeliverySettings::default()
            },
            read_back: ReadBack::default(),
            sink_factory: Box::new(move || Ok(Box::new(sink.clone()) as Box<dyn Sink>)),
            dead_letter_writer: writer,
            spans: EventSpans::default(),
            tail_events: Some(tail_events),
            tail_requests: ReadRequests::default(),
            stops: Arc::clone(&stops),
            flags: Arc::default(),
            state_file: file.open(),
            meters: Arc::new(part.clone()),
            pass_meter: Box::new(part.clone()),
            recorder: Box::new(part.clone()),
            clock: Arc::new(part.clone()),
            random: Random::new(1),
        };
        let waiting = (0..events).map(flight).collect();
        let feed = Queue { part: part.clone(), waiting, flights: BTreeMap::new(), next: 0 };
        let mut relay = Relay::new(parts, feed).unwrap();
        let session = Some(SlotSession::default());
        relay.down.admitter.state_file.take_over(("1", 1), "slot", 0, session);
        Bench { relay, part, file, stops, letters }
    }

    fn new(events: u64) -> Bench<OF_SLOT> {
        let mut bench = Bench::unread(events);
        bench.letters.send(TailEvent::CaughtUp).unwrap();
        bench.pass();
        bench
    }

    /// One pass. What it publishes of itself.
    fn pass(&mut self) -> Pass {
        self.relay.pass().unwrap();
        self.last_pass()
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.part.world()
    }

    fn last_pass(&self) -> Pass {
        *self.world().passes.last().unwrap()
    }

    fn report(&self, report: SinkReport) {
        self.world().reports.push(report);
    }

    fn fail(&self, sequence: Sequence, disposition: Disposition) {
        self.report(SinkReport::Failed(sequence, failure(disposition, "kafka.no")));
    }

    /// How often something was done.
    fn count(&self, act: &str) -> usize {
        self.world().acts.iter().filter(|it| *it == act).count()
    }

    fn last_note(&self) -> String {
        let world = self.world();
        let note = world.acts.iter().rev().find_map(|act| act.strip_prefix("note "));
        note.unwrap_or_default().to_owned()
    }

    fn marks(&self) -> u64 {
        self.file.bytes().load(WRITTEN)
    }

    /// Stops the relay. After how many seconds it has ended, and with which fault.
    fn end(&mut self) -> (u64, Option<&'static str>) {
        self.relay.flags.stop.store(true, Ordering::Relaxed);
        let began = self.part.instant();
        let outcome = (0..20_000).find_map(|_| self.relay.step()).expect("it ends");
        ((self.part.instant() - began).as_secs(), outcome.err().map(|fault| fault.code))
    }
}

fn moved() -> Fault {
    Fault::new(Exit::Slot, "slot.moved", "it was moved", "", "").standing(Lsn::ZERO, Lsn::ZERO)
}

#[test]
fn a_pass_measures_its_stages_and_shows_the_loop_in_metrics_and_status() {
    let mut bench = Bench::<true>::new(2);
    for act in [
        "Publish",
        "Confirm",
        "flush",
        "BreakerOpen 0",
        "Connected 1",
        "InFlightEvents 2",
        "InFlightBytes 20",
        "InFlightLimit 300",
    ] {
        assert_eq!(bench.count(act), 1, "{act}");
    }
    bench.report(SinkReport::Confirmed(0));
    assert_eq!(bench.pass().settled_events, 1);
}

#[test]
fn the_reason_for_which_events_wait_is_noted_until_it_is_over() {
    let mut bench = Bench::<true>::new(1);
    // Whether the broker is reachable, and whether it refuses the login.
    for (report, note, facts) in [
        (SinkReport::Unreachable("it is away".to_owned()), "it is away", (false, false)),
        (SinkReport::LoginRefused("no login".to_owned()), "no login", (false, true)),
        (SinkReport::Reachable, "", (true, false)),
        (SinkReport::Broken("it is lost".to_owned()), "it is lost", (false, false)),
    ] {
        bench.report(report);
        let pass = bench.pass();
        assert_eq!((pass.sink_reachable, pass.sink_login_refused), facts, "{note}");
        assert_eq!(bench.last_note(), note);
    }
    // WHEN there is a new sink
    bench.part.sleep(Duration::from_secs(1));
    assert!(bench.pass().sink_reachable);
    assert_eq!((bench.last_note().as_str(), bench.count("publish 0")), ("", 2));
    // WHEN a dead letter cannot be written, and is written after all
    bench.fail(0, Disposition::Terminal);
    bench.pass();
    bench.fail(0, Disposition::Delayed);
    assert!(bench.pass().dead_letter_unwritten);
    assert!(bench.last_note().starts_with("a dead letter cannot be written"));
    bench.report(SinkReport::Confirmed(0));
    assert!(!bench.pass().dead_letter_unwritten);
    assert_eq!((bench.last_note().as_str(), bench.count("dead-lettered")), ("", 1));
}

#[test]
fn after_a_confirm_the_next_sink_is_built_without_a_long_wait() {
    let mut bench = Bench::<true>::new(2);
    let broken = || SinkReport::Broken("it is lost".to_owned());
    // GIVEN waits that have doubled again and again
    for _ in 0..20 {
        bench.report(broken());
        bench.pass();
        bench.part.sleep(HOUR);
        bench.pass();
    }
    bench.report(SinkReport::Confirmed(0));
    bench.pass();
    bench.report(broken());
    bench.pass();
    // WHEN the loop waits meanwhile THEN it sleeps
    let began = bench.part.instant();
    bench.relay.rest().unwrap();
    assert_eq!(bench.part.instant() - began, Duration::from_millis(5));
    bench.part.sleep(Duration::from_millis(95));
    bench.pass();
    assert!(bench.relay.down.driver.sink.is_some());
}

#[test]
fn confirmed_events_are_marked_and_no_prefix_outlives_the_broker_that_has_it() {
    let mut bench = Bench::<true>::new(2);
    bench.report(SinkReport::Confirmed(0));
    bench.world().prefix = Some(ConfirmedPrefix::default());
    bench.pass();
    assert_eq!((bench.marks(), bench.file.bytes().load(PREFIX_COPY)), (1, 1));
    assert_eq!(bench.count("forget prefix"), 0);
    bench.world().broker = BROKER + 1;
    bench.report(SinkReport::Confirmed(1));
    bench.pass();
    assert_eq!((bench.marks(), bench.count("forget prefix")), (0, 1));
}

#[test]
fn an_event_that_a_sink_has_confirmed_when_it_was_withdrawn_is_marked_before_the_end() {
    let mut bench = Bench::<true>::new(2);
    {
        let mut world = bench.world();
        world.withdrawal = Some("there is a peer".to_owned());
        world.withdrawn.push(SinkReport::Confirmed(0));
    }
    assert_eq!(bench.end(), (0, Some("stop.unsettled")));
    assert_eq!(bench.marks(), 1);
}

fn count_suspects<const OF_SLOT: bool>() -> usize {
    let mut bench = Bench::<OF_SLOT>::new(1);
    bench.report(SinkReport::Suspect(0));
    bench.report(SinkReport::Confirmed(0));
    bench.pass();
    bench.relay.down.policy.suspects.len()
}

#[test]
fn an_event_that_was_refused_with_others_is_remembered_while_it_may_be_received_again() {
    assert_eq!((count_suspects::<true>(), count_suspects::<false>()), (1, 0));
}

#[test]
fn an_event_that_has_failed_is_tried_again_but_not_while_a_peer_may_publish() {
    let mut bench = Bench::<true>::new(1);
    bench.fail(0, Disposition::Transient);
    bench.pass();
    assert_eq!(bench.count("retrying 0"), 1);
    bench.world().sends_for = Duration::ZERO;
    bench.part.sleep(Duration::from_secs(1));
    bench.pass();
    assert_eq!((bench.count("retry 0"), bench.count("retried")), (0, 0));
    bench.world().sends_for = HOUR;
    bench.pass();
    assert_eq!((bench.count("retry 0"), bench.count("retried")), (1, 1));
}

#[test]
fn once_the_topic_is_read_events_that_were_given_up_become_dead_letters_as_far_as_the_breaker_allows()
 {
    let mut bench = Bench::<true>::unread(2);
    bench.world().hold = Some(IntakeHold::DeadLettersUnread);
    bench.fail(0, Disposition::Terminal);
    bench.fail(1, Disposition::Terminal);
    bench.pass();
    assert!(bench.relay.history_wait_logged);
    assert_eq!(bench.count("letter 0"), 0);
    // WHEN the topic was read
    bench.world().hold = None;
    bench.letters.send(TailEvent::CaughtUp).unwrap();
    assert_eq!(bench.relay.pass().unwrap_err().code, BREAKER_OPEN);
    assert_eq!((bench.count("letter 0"), bench.count("letter 1")), (1, 0));
    bench.pass();
    assert!(!bench.relay.history_wait_logged);
}

#[test]
fn a_destination_that_does_not_answer_is_named_while_events_wait() {
    let mut bench = Bench::<true>::unread(2);
    bench.world().overtaken = vec![0, 1];
    let silent = SilentDestination { name: ShortText::new("orders"), events: 2 };
    assert_eq!(bench.pass().silent, Some(silent));
    bench.report(SinkReport::Confirmed(0));
    bench.report(SinkReport::Confirmed(1));
    assert_eq!(bench.pass().silent, None);
    // It is not looked for in each pass.
    assert_eq!(bench.count("look"), 1);
    bench.part.sleep(SILENCE_LOOK_EVERY);
    bench.pass();
    assert_eq!(bench.count("look"), 2);
}

#[test]
fn a_relay_with_nothing_in_flight_stops_at_once() {
    let mut bench = Bench::<true>::new(0);
    assert_eq!(bench.end(), (0, None));
    assert_eq!(bench.last_pass().phase, Phase::Stopped);
    assert_eq!((bench.count("close"), bench.count("peer noted")), (1, 1));
}

#[test]
fn a_relay_that_stops_waits_for_confirms_and_tries_again_meanwhile() {
    let mut bench = Bench::<true>::new(1);
    bench.relay.flags.stop.store(true, Ordering::Relaxed);
    assert!(bench.relay.step().is_none());
    bench.world().acts.clear();
    bench.fail(0, Disposition::Transient);
    assert!(bench.relay.step().is_none());
    assert_eq!((bench.count("hold"), bench.count("report")), (1, 1));
    assert_eq!(bench.last_pass().phase, Phase::Draining);
    bench.part.sleep(Duration::from_millis(10));
    assert!(bench.relay.step().is_none());
    assert_eq!(bench.count("retry 0"), 1);
    bench.report(SinkReport::Confirmed(0));
    assert_eq!(bench.end(), (0, None));
}

#[test]
fn the_end_waits_as_long_as_that_is_of_use() {
    type Case = (&'static str, fn(&mut Bench<true>), u64, Option<&'static str>);
    let cases: [Case; 7] = [
        ("the broker confirms nothing", |_| (), 20, Some("stop.unsettled")),
        ("a peer may publish", |it| it.world().sends_for = Duration::ZERO, 1, None),
        ("an attempt has failed", |it| it.world().has_failing = true, 1, Some("stop.unsettled")),
        (
            "there is no sink",
            |it| {
                it.world().is_incomplete = true;
                it.relay.down.driver.sink = None;
            },
            0,
            Some("stop.unsettled"),
        ),
        (
            "a transaction does not end",
            |it| {
                it.world().is_incomplete = true;
                it.report(SinkReport::Confirmed(0));
            },
            15,
            None,
        ),
        (
            "the slot was moved",
            |it| {
                it.world().fault = Some(moved());
                it.relay.step();
            },
            1,
            Some("slot.moved"),
        ),
        (
            "it can never be published",
            |it| {
                it.fail(0, Disposition::Halt);
                it.relay.step();
            },
            0,
            Some("sink.unable"),
        ),
    ];
    for (name, change, waited_s, code) in cases {
        let mut bench = Bench::<true>::new(1);
        change(&mut bench);
        assert_eq!(bench.end(), (waited_s, code), "{name}");
    }
}

#[test]
fn a_stop_that_protects_data_is_kept_before_the_relay_has_ended() {
    for is_stopping in [false, true] {
        let mut bench = Bench::<true>::new(1);
        if is_stopping {
            bench.world().is_incomplete = true;
            bench.relay.flags.stop.store(true, Ordering::Relaxed);
            bench.relay.step();
        }
        bench.world().fault = Some(moved());
        assert!(bench.relay.step().is_none());
        assert!(bench.stops.standing().is_some(), "{is_stopping}");
        assert_eq!(bench.end(), (1, Some("slot.moved")), "{is_stopping}");
    }
}
