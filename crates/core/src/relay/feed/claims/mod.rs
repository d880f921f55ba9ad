//! Events from claimed rows: workers bring them in batches and write their verdicts to the table. A row
//! stays unpublished there until then, so nothing else must be held.

mod rows;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::rows::ClaimedRows;
use super::{Downstream, Feed};
use crate::base::clock::Moment;
use crate::base::error::Fault;
use crate::base::event::Sequence;
use crate::base::fingerprint::fingerprint;
use crate::base::lsn::Lsn;
use crate::delivery::flight::Flight;
use crate::delivery::flights::NotInFlight;
use crate::delivery::settings::DeliverySettings;
use crate::health::{IntakeHold, Pass, Phase};
use crate::outbox::Plan;
use crate::pgoutput::message::Tuple;
use crate::polling::batch::{Batch, Verdicts};
use crate::polling::claim_lease::ClaimLease;
use crate::relay::admit::{Candidate, EventNumber, Offered};
use crate::relay::failure_policy::FailurePolicy;
use crate::relay::ports::ClaimWorkers;
use crate::sink::Sink;

/// How long the end of the relay waits for the last verdicts to be taken. They may be left: then
/// the lease of their rows runs out.
const VERDICTS_TAKEN_WITHIN: Duration = Duration::from_secs(1);

/// The parts of a [`ClaimFeed`].
pub struct ClaimParts {
    pub workers: Box<dyn ClaimWorkers>,
    pub lease: Arc<ClaimLease>,
    /// How rows become events.
    pub plan: Plan,
    pub table: String,
    pub delivery: DeliverySettings,
    /// Most rows that all workers claim at once.
    pub claimed_at_once: usize,
}

pub struct ClaimFeed {
    rows: ClaimedRows,
    plan: Plan,
    table: String,
    workers: Box<dyn ClaimWorkers>,
    lease: Arc<ClaimLease>,
    /// The batch whose arrival has ended [`Feed::wait`].
    received: Option<Batch>,
    /// Verdicts for which no worker waits, and for which there was no room.
    waiting: VecDeque<Verdicts>,
    /// While more rows, or bytes, are in memory, no more are wanted.
    rows_max: usize,
    bytes_max: usize,
    opens_state_file: bool,
    hold: Option<IntakeHold>,
    closed: bool,
    /// Rows that were claimed earlier may be another process's by now.
    trusted_from: Option<Instant>,
    /// Lapses of the lease that were seen.
    lapses: u64,
    /// The next rewind releases all rows.
    gives_back: bool,
}

impl ClaimFeed {
    #[must_use]
    pub fn new(parts: ClaimParts) -> ClaimFeed {
        let ClaimParts { workers, lease, plan, table, delivery, claimed_at_once } = parts;
        ClaimFeed {
            rows: ClaimedRows::default(),
            plan,
            table,
            workers,
            lease,
            received: None,
            waiting: VecDeque::new(),
            rows_max: delivery.window_events_max.saturating_sub(claimed_at_once),
            bytes_max: delivery.window_bytes_max / 2,
            opens_state_file: true,
            hold: None,
            closed: false,
            trusted_from: None,
            lapses: 0,
            gives_back: false,
        }
    }

    /// Whether more rows may be claimed.
    fn has_room(&self) -> bool {
        self.rows.unsettled() <= self.rows_max && self.rows.held_bytes <= self.bytes_max
    }

    fn take_batches(&mut self, now: Moment) {
        while let Some(batch) =
            self.received.take().or_else(|| self.workers.receive(Duration::ZERO))
        {
            let age = now.instant.saturating_duration_since(batch.claimed_at);
            let is_trusted = self.trusted_from.is_none_or(|from| batch.claimed_at >= from);
            let is_late = age >= self.lease.length();
            if is_late {
                tracing::warn!(
                    code = "polling.claim-late",
                    rows = batch.rows.len(),
                    took_ms = age.as_millis() as u64,
                    "the rows of a claim came longer than half the lease after it began, and are given back; unless the process stood still: make the indexes of docs/polling.md, or raise source.polling.lease"
                );
            }
            if is_late || !is_trusted {
                self.rows.refuse(batch, now.instant);
            } else {
                self.rows.take(batch, now);
            }
        }
    }

    /// Offers the next row to the sink, if there are both and events may come in. False when no other
    /// can follow.
    fn offer(&mut self, down: &mut Downstream, now: Instant) -> Result<bool, Fault> {
        let Downstream { admitter, policy, driver, clock, .. } = down;
        let sink = driver.sink.as_mut().filter(|_| policy.gate.admits());
        let Some(sink) = sink else { return Ok(false) };
        let Some((sequence, row, flight)) = self.rows.next_queued() else { return Ok(false) };
        let position = flight.position;
        admitter.transaction.begin(position.commit_lsn, row.created_unix_us);
        // The crash guard identifies a row by its id, which is the same in every claim.
        admitter.begin(Lsn::from_wire(fingerprint(&row.id)));
        let number = EventNumber { sequence, position, crash_ordinal: 0, earlier: Some(flight) };
        let candidate = Candidate::Row(&self.plan, Tuple::of(&row.tuple));
        match admitter.offer(&candidate, number, policy, &mut **sink, &**clock)? {
            Offered::Taken(flight) => self.rows.offered(flight, now),
            Offered::Known(..) => {}
            Offered::SinkBroken => {
                driver.break_sink("it refuses every event", self.rows.in_flight, now);
            }
            Offered::Held(why) => {
                self.hold = Some(why);
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn send_verdicts(&mut self, now: Instant) {
        for verdicts in self.rows.take_verdicts(now) {
            if verdicts.last {
                self.waiting.extend(self.workers.answer(verdicts));
                continue;
            }
            // The worker goes on. One connection writes all that its claim still gets, in this order: a row
            // must not be settled before an earlier one of its key.
            let _later = self.workers.answer(Verdicts::of(verdicts.claim.clone()));
            if !verdicts.is_empty() {
                self.waiting.push_back(verdicts);
            }
        }
        while let Some(verdicts) = self.waiting.pop_front() {
            if let Some(verdicts) = self.workers.write(verdicts) {
                self.waiting.push_front(verdicts);
                break;
            }
        }
    }
}

impl Feed for ClaimFeed {
    /// New rows do not wake a loop that waits for the sink.
    const UNREADABLE_TICK: Duration = Duration::from_millis(5);
    const LAST_CONFIRM_WITHIN: Duration = Duration::from_secs(1);
    const TIMES_STAGES: bool = false;
    const RECEIVES_SETTLED: bool = false;

    fn origin(&self) -> String {
        format!("table {}", self.table)
    }

    fn ensure_session(&mut self, down: &mut Downstream, _now: Instant) -> Result<(), Fault> {
        if std::mem::take(&mut self.opens_state_file) {
            down.admitter.state_file.take_over(("polling", 0), &self.table, 0, None);
        }
        Ok(())
    }

    fn withdrawal(&mut self, now: Instant, missed: Duration) -> Option<String> {
        let lease = &self.lease;
        if !missed.is_zero() {
            lease.missed(now, missed);
        }
        // A renewal that comes too late counts its lapse before it prolongs the lease.
        let is_over = now >= lease.until();
        let lapses = std::mem::replace(&mut self.lapses, lease.lapses());
        let has_lapsed = lapses != self.lapses || is_over;
        if !has_lapsed {
            return None;
        }
        self.trusted_from = Some(now);
        self.gives_back = self.rows.unsettled() > 0;
        self.gives_back.then(|| "rows of its claims may be another process's by now".to_owned())
    }

    fn send_until(&self) -> Instant {
        self.lease.until()
    }

    fn intake(
        &mut self,
        down: &mut Downstream,
        _now: Instant,
        _closing: bool,
    ) -> Result<bool, Fault> {
        let now = down.clock.now();
        self.take_batches(now);
        self.hold = (!down.policy.gate.admits()).then_some(IntakeHold::DeadLettersUnread);
        while self.offer(down, now.instant)? {}
        if self.hold.is_none() && !self.has_room() {
            self.hold = Some(IntakeHold::WindowFull);
        }
        Ok(false)
    }

    fn wait(&mut self, tick: Duration, _sink: Option<&dyn Sink>, _now: Instant) -> bool {
        if self.awaits_confirms() {
            return false;
        }
        self.received = self.workers.receive(tick);
        true
    }

    fn awaits_confirms(&self) -> bool {
        self.rows.in_flight > 0 || self.rows.has_queued()
    }

    fn settle(&mut self, event: Sequence) -> Result<Flight, NotInFlight> {
        self.rows.settle(event)
    }

    fn update<T>(
        &mut self,
        event: Sequence,
        decide: impl FnOnce(&mut Flight) -> T,
    ) -> Result<T, NotInFlight> {
        self.rows.update(event, decide)
    }

    fn given_up(&self) -> Vec<Sequence> {
        self.rows.given_up()
    }

    fn retrying(&mut self, event: Sequence, attempts: u32, wait: Duration, reason: &str) {
        self.rows.retrying(event, attempts, wait, reason.to_owned());
    }

    fn next(&self) -> (Sequence, bool) {
        (self.rows.next, !self.rows.has_queued() && self.has_room())
    }

    fn rewind(&mut self, policy: &mut FailurePolicy) {
        if std::mem::take(&mut self.gives_back) {
            policy.gate.forget_letters(&self.rows.give_back());
            policy.suspects.clear();
        } else {
            self.rows.rewind();
        }
        policy.retries.rewind();
    }

    fn report(&mut self, down: &mut Downstream, now: Instant) {
        self.send_verdicts(now);
        if std::mem::take(&mut self.rows.has_given_up_deadly) {
            down.admitter.state_file.crash.forget_deaths();
        }
        let wanted = now < self.lease.until()
            && down.driver.sink.is_some()
            && down.driver.takes_events()
            && down.policy.gate.admits()
            && !self.closed
            && self.waiting.is_empty()
            && self.has_room();
        self.workers.set_wanted(wanted);
    }

    fn in_flight(&self) -> usize {
        self.rows.in_flight
    }

    fn overtaken(&self, now: Instant) -> (Vec<Sequence>, Duration) {
        self.rows.overtaken(now)
    }

    fn status(&self, now: Instant) -> Pass {
        // Without renewals of its claims it publishes nothing.
        let renews = now < self.lease.until();
        let phase = match self.workers.phase() {
            Phase::Polling if !renews => Phase::Connecting,
            phase => phase,
        };
        Pass {
            phase,
            hold: self.hold,
            in_flight_events: self.rows.in_flight as u64,
            in_flight_bytes: self.rows.bytes as u64,
            in_flight_limit: self.rows_max as u64,
            ..Pass::default()
        }
    }

    fn close(&mut self) {
        self.closed = true;
        self.workers.set_wanted(false);
    }

    fn awaits_retries(&self) -> bool {
        self.rows.failing > 0
    }

    /// Releases the rows that have no verdict. Those that have failed before, and those that the sink
    /// did not get, do not count as unconfirmed.
    fn finish(&mut self, down: &mut Downstream, _fault: Option<&Fault>) -> usize {
        let rows = &self.rows;
        let unconfirmed = match &down.driver.sink {
            Some(_) => rows.in_flight - rows.failing,
            None => rows.unsettled(),
        };
        // First the sink ends: it must not send a row of a key that another process claims next.
        down.driver.sink = None;
        let began = down.clock.now();
        self.take_batches(began);
        self.rows.give_back();
        self.send_verdicts(began.instant);
        let deadline = began.instant + VERDICTS_TAKEN_WITHIN;
        while !self.waiting.is_empty() && self.workers.writes() && down.clock.instant() < deadline {
            down.clock.sleep(Self::UNREADABLE_TICK);
            self.send_verdicts(down.clock.instant());
        }
        unconfirmed
    }
}

#[cfg(test)]
#[path = "claims_loop_tests.rs"]
mod loop_tests;
#[cfg(test)]
#[path = "claims_model_tests.rs"]
mod model_tests;
#[cfg(test)]
#[path = "claims_tests.rs"]
mod tests;
