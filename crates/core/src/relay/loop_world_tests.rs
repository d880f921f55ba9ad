//! A feed of events that the test queues, and the other surroundings of the loop, in memory. The clock goes
//! on only while somebody waits.

use std::collections::BTreeMap;
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, MutexGuard};

use super::super::*;
use crate::base::event::{Outbound, Position};
use crate::dead_letter::writer::{DeadLetterCause, DeadLetterWriter};
use crate::delivery::flight::FlightState;
use crate::delivery::flights::NotInFlight;
use crate::delivery::known::Fingerprint;
use crate::delivery::prefix::ConfirmedPrefix;
use crate::health::Pass;
use crate::relay::failure_policy::tests::failure;
use crate::relay::state_file::header::WRITTEN;
use crate::relay::state_file::marks::SlotSession;
use crate::relay::stops::StandingStops;
use crate::relay::stops::tests::Site;
use crate::relay::surroundings::{Facts, Ticks, parts};
use crate::relay::testing::{BROKER, MemoryFile};
use crate::sink::{Disposition, PublishError};

pub(super) const HOUR: Duration = Duration::from_secs(3_600);

/// The surroundings know what comes next.
#[derive(Default)]
pub(super) struct World {
    /// How long the sink may send, from the begin.
    pub(super) sends_for: Duration,
    /// The reports of the next poll, and of the next withdrawal.
    reports: Vec<SinkReport>,
    pub(super) withdrawn: Vec<SinkReport>,
    pub(super) broker: u64,
    pub(super) withdrawal: Option<String>,
    pub(super) overtaken: Vec<Sequence>,
    pub(super) prefix: Option<ConfirmedPrefix>,
    /// The fault of the next intake.
    pub(super) fault: Option<Fault>,
    pub(super) has_failing: bool,
    pub(super) is_incomplete: bool,
    pub(super) hold: Option<IntakeHold>,
}

/// A sink, which knows until when it may send, or another part of the surroundings.
#[derive(Clone)]
pub(super) struct Part {
    world: Arc<Mutex<World>>,
    facts: Arc<Mutex<Facts>>,
    clock: Arc<Ticks>,
    until: Option<Instant>,
}

impl Part {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    fn act(&self, act: impl Into<String>) {
        self.facts.lock().unwrap().acts.push(act.into());
    }

    /// Whenever the sink could send, it knows until when it may.
    fn check_until(&self) {
        assert_eq!(self.until, Some(self.send_until()));
    }

    fn send_until(&self) -> Instant {
        self.clock.began + self.world().sends_for
    }

    /// The sink may send a little longer.
    fn prolong(&self) {
        self.world().sends_for += Duration::from_micros(1);
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
            self.clock.sleep(patience);
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

/// A feed whose events may be received again after they are settled, as those of a slot may, or not.
pub(super) struct Queue<const OF_SLOT: bool> {
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

    fn overtaken(&self, _: Instant) -> (Vec<Sequence>, Duration) {
        (self.part.world().overtaken.clone(), Duration::from_secs(1))
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

pub(super) struct Bench<const OF_SLOT: bool> {
    pub(super) relay: Relay<Queue<OF_SLOT>>,
    part: Part,
    pub(super) clock: Arc<Ticks>,
    pub(super) file: MemoryFile,
    pub(super) stops: Arc<StandingStops>,
    /// Brings what is read of the dead-letter topic.
    pub(super) letters: SyncSender<TailEvent>,
}

fn flight(ordinal: u64) -> Flight {
    Flight {
        position: Position { ordinal, ..Position::default() },
        bytes: 10,
        commit_unix_us: 0,
        fingerprint: Fingerprint { event: ordinal + 1, key: 1 },
        state: FlightState::Sent,
        extras: None,
    }
}

impl<const OF_SLOT: bool> Bench<OF_SLOT> {
    /// These events are in flight after the first pass; the dead-letter topic was not read.
    pub(super) fn unread(events: u64) -> Bench<OF_SLOT> {
        let world = World { sends_for: 1_000 * HOUR, broker: BROKER, ..World::default() };
        let (world, facts) = (Arc::new(Mutex::new(world)), Arc::<Mutex<Facts>>::default());
        let clock = Ticks::since(Instant::now());
        let (letters, tail_events) = tail_event::channel();
        let file = MemoryFile::default();
        let stops = Arc::new(Site::new().stops(true, false, false));
        let part = Part { world, facts, clock: Arc::clone(&clock), until: None };
        let mut parts = parts(&clock, &part.facts, part.clone());
        parts.delivery.backoff_base = Duration::from_millis(1);
        parts.delivery.backoff_cap = HOUR;
        // The breaker opens at the second dead letter.
        parts.dead_letter_writer.settings.burst_max = 1;
        parts.tail_events = Some(tail_events);
        parts.stops = Arc::clone(&stops);
        parts.state_file = file.open();
        let waiting = (0..events).map(flight).collect();
        let feed = Queue { part: part.clone(), waiting, flights: BTreeMap::new(), next: 0 };
        let mut relay = Relay::new(parts, feed).unwrap();
        let session = Some(SlotSession::default());
        relay.down.admitter.state_file.take_over(("1", 1), "slot", 0, session);
        Bench { relay, part, clock, file, stops, letters }
    }

    pub(super) fn new(events: u64) -> Bench<OF_SLOT> {
        let mut bench = Bench::unread(events);
        bench.letters.send(TailEvent::CaughtUp).unwrap();
        bench.pass();
        bench
    }

    /// Makes a pass. Returns what that shows in the status.
    pub(super) fn pass(&mut self) -> Pass {
        self.relay.pass().unwrap();
        self.last_pass()
    }

    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.part.world()
    }

    pub(super) fn facts(&self) -> MutexGuard<'_, Facts> {
        self.part.facts.lock().unwrap()
    }

    pub(super) fn last_pass(&self) -> Pass {
        *self.facts().passes.last().unwrap()
    }

    pub(super) fn report(&self, report: SinkReport) {
        self.world().reports.push(report);
    }

    pub(super) fn fail(&self, sequence: Sequence, disposition: Disposition) {
        self.report(SinkReport::Failed(sequence, failure(disposition, "kafka.no")));
    }

    /// How often something was done.
    pub(super) fn count(&self, act: &str) -> usize {
        self.facts().acts.iter().filter(|it| *it == act).count()
    }

    pub(super) fn last_note(&self) -> String {
        self.facts().notes.last().cloned().unwrap_or_default()
    }

    pub(super) fn marks(&self) -> u64 {
        self.file.bytes().load(WRITTEN)
    }

    /// Stops the relay. After how many seconds it has ended, and with which fault.
    pub(super) fn end(&mut self) -> (u64, Option<&'static str>) {
        self.relay.flags.stop.store(true, Ordering::Relaxed);
        let began = self.clock.instant();
        let outcome = (0..20_000).find_map(|_| self.relay.step()).expect("it ends");
        ((self.clock.instant() - began).as_secs(), outcome.err().map(|fault| fault.code))
    }
}
