//! What happens to one claimed row: routed, offered to the sink, and told of.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::hand::Hand;
use crate::base::error::Fault;
use crate::base::event::{Position, Sequence};
use crate::base::lsn::Lsn;
use crate::dead_letter::writer::DeadLetterWriter;
use crate::delivery::settings::DeliverySettings;
use crate::metrics::{Metrics, PassMeter};
use crate::outbox::{Plan, Scratch, Transaction};
use crate::pgoutput::message::Tuple;
use crate::pgoutput::relation::Relation;
use crate::polling::batch::Batch;
use crate::relay::admission::{Gate, Intake, Taken};
use crate::relay::candidate::{Candidate, Entrance};
use crate::relay::crash::{self, CrashGuard};
use crate::relay::failure_policy::{Fate, Moment, Undertaker};
use crate::relay::faults;
use crate::relay::outlet::Settling;
use crate::relay::shaping::Shaping;
use crate::sink::{Failure, Sink};
use crate::source::settings::SourceSettings;

/// What turns rows into events, and remembers them.
pub(super) struct Core {
    pub(super) hand: Hand,
    pub(super) undertaker: Undertaker,
    pub(super) meter: PassMeter,
    crash: CrashGuard,
    plan: Plan,
    transaction: Transaction,
    scratch: Scratch,
    shaping: Shaping,
    place: String,
}

/// A row as it goes in.
struct Claimed<'a> {
    sequence: Sequence,
    position: Position,
    /// What it weighs, once the sink has taken it.
    taken_bytes: &'a mut Option<usize>,
}

impl Intake for Claimed<'_> {
    fn unless_new(&mut self) -> Option<Taken> {
        None
    }

    fn next(&self) -> Sequence {
        self.sequence
    }

    fn position(&self) -> Position {
        self.position
    }

    /// The guard is told of each row on its own.
    fn crash_ordinal(&self) -> u64 {
        0
    }

    fn admit(&mut self, bytes: usize, _commit_unix_us: i64) {
        *self.taken_bytes = Some(bytes);
    }
}

impl Core {
    pub(super) fn new(
        source: &SourceSettings,
        relation: &Relation,
        delivery: &DeliverySettings,
        mailbox: DeadLetterWriter,
        metrics: &Arc<Metrics>,
    ) -> Result<Core, Fault> {
        let table = relation.qualified_name();
        let crash_file = delivery.crash_file.as_deref();
        let mut crash = CrashGuard::open(crash_file.map(Path::new), &source.slot)?;
        // A row's id is the same wherever and whenever it is claimed.
        crash.takes_over("polling", 0, &table);
        let outbox = source.outboxes.first().ok_or_else(|| faults::protocol("no table", &table))?;
        Ok(Core {
            hand: Hand::default(),
            undertaker: Undertaker::new(delivery, mailbox, metrics),
            meter: metrics.pass_meter(),
            crash,
            plan: Plan::compile(outbox, 0, relation, false)?.without_lsn(),
            transaction: Transaction::default(),
            scratch: Scratch::default(),
            shaping: Shaping::new(source)?,
            place: format!("table {table}"),
        })
    }

    /// Takes claimed rows in.
    pub(super) fn take(&mut self, batch: Batch) {
        for failed in self.hand.take(batch) {
            self.undertaker.has_failed_before(failed.sequence, failed.attempts);
        }
    }

    /// Hands the next row over; nothing when there is none.
    pub(super) fn offer(&mut self, sink: &mut dyn Sink) -> Result<Option<Taken>, Fault> {
        let Core { hand, undertaker, transaction, scratch, shaping, crash, .. } = self;
        let Some(sequence) = hand.upcoming() else { return Ok(None) };
        let Some(row) = hand.row(sequence) else { return Ok(None) };
        let position = hand.position(sequence);
        transaction.begin(position.commit_lsn, row.created_unix_us);
        crash.begins(Lsn::from_wire(crash::fingerprint(&row.id)));
        let mut taken_bytes = None;
        let intake = Claimed { sequence, position, taken_bytes: &mut taken_bytes };
        let entrance = Entrance {
            transaction,
            scratch,
            shaping,
            crash,
            gate: Gate { intake, undertaker, sink },
            place: &self.place,
        };
        let taken = entrance.offer(&Candidate::Row(&self.plan, Tuple::of(&row.tuple)))?;
        if let Some(bytes) = taken_bytes {
            self.hand.offered(bytes);
        }
        Ok(Some(taken))
    }

    /// Everything that is not settled will be handed to a new sink.
    pub(super) fn rewind(&mut self) {
        self.hand.rewind();
        self.undertaker.rewind(false);
    }
}

impl Settling for Core {
    fn confirmed(&mut self, sequence: Sequence, now_unix_us: i64) -> Result<bool, Fault> {
        let told = |error| faults::receipt(&error);
        let Some(cause) = self.undertaker.settled(sequence) else {
            let created_unix_us = self.hand.published(sequence).map_err(told)?;
            self.meter.published(created_unix_us, now_unix_us);
            return Ok(false);
        };
        let reason = format!("{} ({})", cause.reason, cause.class);
        self.hand.failed(sequence, cause.attempts, reason).map_err(told)?;
        self.meter.dead_lettered();
        Ok(true)
    }

    fn failed(
        &mut self,
        sequence: Sequence,
        failure: Failure,
        sink: &mut dyn Sink,
        now: Moment,
    ) -> Result<Fate, Fault> {
        let position = self.hand.position(sequence);
        let fate = self.undertaker.failed(sequence, failure, position, sink, now)?;
        if let Fate::Waits { attempts, wait, reason } = &fate {
            self.hand.noted(sequence, *attempts, *wait, reason.clone());
        }
        Ok(fate)
    }

    fn take_due(&mut self, now: Instant) -> Option<Sequence> {
        let sequence = self.undertaker.take_due(now, self.hand.next(), !self.hand.has_queued())?;
        self.meter.retried();
        Some(sequence)
    }

    fn undertaker(&mut self) -> &mut Undertaker {
        &mut self.undertaker
    }

    fn in_flight(&self) -> usize {
        self.hand.in_flight()
    }
}
