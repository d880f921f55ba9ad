//! Decodes the packets of the stream, skips what was admitted before, and offers the rest as
//! candidates. Tracks which events are in flight, which are settled, and which LSN may be reported.

use std::collections::BTreeMap;
use std::fmt::Display;

use crate::base::error::Fault;
use crate::base::event::Sequence;
use crate::base::lsn::Lsn;
use crate::delivery::flight::Flight;
use crate::delivery::flights::{Flights, NotInFlight};
use crate::delivery::history::{CommitId, OtherHistory};
use crate::delivery::known::Mark;
use crate::delivery::prefix::{PrefixRefuted, Prefixes};
use crate::delivery::settings::DeliverySettings;
use crate::delivery::transactions::Transactions;
use crate::health::{IntakeHold, Pass};
use crate::metrics::{Ignored, KnownFrom};
use crate::mutants::{Mutant, on};
use crate::outbox::{NEEDS_TEXT, Outboxes};
use crate::pgoutput::cursor::DecodeError;
use crate::pgoutput::frame::Frame;
use crate::pgoutput::message::{Message, Tuple};
use crate::pgoutput::relation::Relation;
use crate::relay::admit::{Admission, Admitter, Candidate, EventNumber, Offered};
use crate::relay::failure_policy::FailurePolicy;
use crate::relay::faults;
use crate::source::catalog::Catalog;
use crate::source::faults::publication_gap;
use crate::source::progress::{OwnPositions, Progress, Signature};
use crate::source::settings::SourceSettings;
use crate::source::stream::Packet;

/// A publication of all tables may have any number of tables with the columns of an outbox.
const UNCONFIGURED_MAX: u32 = 10;

/// The outcome of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketOutcome {
    Done,
    /// Done, and the server requests a status update.
    ReplyRequested,
    /// This position must be reported first, as a trace in the slot; offer it again then.
    TraceDue(Lsn),
    /// No position is free for a trace. Offer it again once another relay must have noticed this session.
    NoTraceFits,
    /// It was not taken in, and for now no other can be.
    Stopped(IntakeStop),
}

/// Why no packet can be taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntakeStop {
    /// Offer it again.
    Held(IntakeHold),
    /// Its columns can only be read from a stream in text mode.
    TextModeNeeded,
    /// The catalog must be read first; offer it again then.
    CatalogNeeded,
    SinkBroken,
    /// The claim of an earlier process about this transaction is refuted: nothing that was passed
    /// over since its begin may be reported.
    ClaimRefuted,
    /// The event that comes is not the one that this process had in its place, as when a table has left
    /// the publication in between: what is known under its number is that of another event.
    OtherEvent,
}

/// The state behind invariants I1 to I7 of [`crate::delivery`], fed with packets.
pub struct Replication {
    pub flights: Flights,
    pub transactions: Transactions,
    pub prefixes: Prefixes,
    pub progress: Progress,
    outboxes: Outboxes,
    /// End of the last transaction that was handed to the sink.
    pub sent_lsn: Lsn,
    binary: bool,
    catalog: Catalog,
    /// The catalog was read for the next packet.
    catalog_is_fresh: bool,
    /// Where the slot stood when this relay took it, until a transaction comes behind that.
    pub untraced: Option<Lsn>,
    /// Tables with the columns of an outbox that do not exist any more, by object id.
    gone: BTreeMap<u32, String>,
    /// The number of tables that were named because they are published and not configured.
    unconfigured: u32,
    /// The signature of this process.
    signature: Signature,
    source: SourceSettings,
    /// Where the slot stood when the session began.
    slot_confirmed: Lsn,
    /// The last warning since which no WAL has come: a walsender that waits repeats it.
    last_notice: String,
}

impl Replication {
    pub fn new(
        source: &SourceSettings,
        delivery: &DeliverySettings,
        signature: Signature,
    ) -> Result<Replication, Fault> {
        let outboxes = Outboxes::new(source.outboxes.clone(), source.messages.as_ref());
        Ok(Replication {
            flights: Flights::new(delivery.window_events_max, delivery.window_bytes_max),
            transactions: Transactions::default(),
            prefixes: Prefixes::default(),
            progress: Progress::default(),
            outboxes: outboxes?,
            sent_lsn: Lsn::ZERO,
            binary: true,
            catalog: Catalog::default(),
            catalog_is_fresh: false,
            untraced: None,
            gone: BTreeMap::new(),
            unconfigured: 0,
            signature,
            source: source.clone(),
            slot_confirmed: Lsn::ZERO,
            last_notice: String::new(),
        })
    }

    /// This relay takes a slot that another one has left at one of these positions.
    pub fn sign_unlike(&mut self, positions: [Lsn; 2]) {
        self.signature = self.signature.unlike(positions);
    }

    pub fn signature(&self) -> Signature {
        self.signature
    }

    /// The positions that this process has reported since it has found the slot at `found`.
    pub fn own_positions(&self, found: Lsn) -> OwnPositions {
        let (reported, traced) = (self.progress.reported(), self.progress.traced());
        OwnPositions { signature: self.signature, found, reported, traced }
    }

    /// Leaves the trace again where the slot stands at no position of this process, which has found
    /// the slot at `found`.
    pub fn trace_again(&mut self, found: Lsn, slot_confirmed: Lsn) {
        if slot_confirmed < found || !self.own_positions(found).include(slot_confirmed) {
            self.untraced = Some(Lsn::ZERO);
        }
    }

    /// There is a new connection: tables are described again, and transactions begin again with those
    /// that were committed at `slot_confirmed` or later.
    pub fn connected(&mut self, binary: bool, catalog: Catalog, slot_confirmed: Lsn) {
        self.binary = binary;
        self.outboxes.forget();
        self.gone.clear();
        self.refresh(catalog);
        self.catalog_is_fresh = false;
        self.transactions.begin_session(slot_confirmed);
        self.progress.on_connected(slot_confirmed);
        self.slot_confirmed = slot_confirmed;
    }

    pub fn refresh(&mut self, mut catalog: Catalog) {
        self.outboxes.set_known(std::mem::take(&mut catalog.outboxes));
        self.catalog = catalog;
        self.catalog_is_fresh = true;
    }

    /// Another relay has held the slot in the meantime, or may have, and everything before `floor` is
    /// confirmed. It may have published again what this relay's broker has confirmed beyond that: so all
    /// of it is received and admitted again, or the key of an event would end with an older one. What
    /// was in flight has been withdrawn.
    pub fn taken_over(&mut self, floor: Lsn, admitter: &mut Admitter, policy: &mut FailurePolicy) {
        policy.gate.forget_letters(&self.flights.forget());
        admitter.forget();
        self.outboxes.forget_ignored();
        self.transactions.taken_over(floor);
        self.prefixes.forget();
        self.progress.taken_over(floor);
    }

    /// Everything before `floor` was confirmed, by this relay or by another. Everything before `known` was
    /// committed until `until_us`, and everything before `received` was received by this relay. The server's
    /// clock shows `looked_us`.
    pub fn start_at(
        &mut self,
        floor: Lsn,
        known: Lsn,
        until_us: i64,
        looked_us: i64,
        received: Lsn,
    ) {
        self.transactions.start_at(floor, known, until_us, received);
        self.transactions.looked_at(looked_us);
        self.progress.on_reported(floor);
    }

    /// Another timeline: its positions cannot be compared with those known here.
    pub fn forget(&mut self, admitter: &mut Admitter, policy: &mut FailurePolicy) {
        admitter.forget();
        self.outboxes.forget_ignored();
        self.transactions.forget();
        policy.gate.forget_letters(&self.flights.forget());
        policy.suspects.clear();
        self.prefixes.forget();
        self.progress.forget();
    }

    /// Everything from the first unsettled event on will be received and admitted again.
    pub fn rewind(&mut self, policy: &mut FailurePolicy) {
        self.progress.on_settled(self.transactions.settle(self.flights.settled_below()));
        self.progress.on_rewound();
        let rewound = self.flights.rewind();
        self.transactions.rewind(rewound.from.filter(|_| !on(Mutant::RewindForgotten)));
        policy.gate.forget_letters(&rewound.dropped_letters);
        policy.retries.rewind();
    }

    pub fn between_transactions(&self) -> bool {
        self.transactions.receiving().is_none()
    }

    /// Whether a transaction is not received to its end, or what is settled not again in this session:
    /// it cannot be reported before.
    pub fn is_incomplete(&self) -> bool {
        !self.between_transactions()
            || self.transactions.is_unfinished()
            || self.progress.is_settled_unsent()
    }

    /// The newest position that may be reported to Postgres.
    pub fn reportable(&mut self) -> Lsn {
        if on(Mutant::AckOnEnqueue) {
            self.progress.on_settled(self.transactions.settle(self.flights.next()));
        }
        self.progress.on_settled(self.transactions.settle(self.flights.settled_below()));
        self.progress.reportable(self.transactions.is_clear())
    }

    /// The position to leave in the slot without a session. A relay that has lost the slot to this one and
    /// sees it move, while nothing is decoded, knows from the signature that a relay has moved it. So it is
    /// also signed where the position of a keepalive was reported, and that report may be lost. Everything before
    /// `floor` was confirmed when the last session began.
    pub fn final_position(&mut self, floor: Lsn) -> Lsn {
        let reportable = self.reportable();
        let before = self.progress.settled().max(self.progress.traced()).max(floor);
        self.signature.sign_keepalive(before, reportable)
    }

    /// The broker has confirmed this event, or its dead letter.
    pub fn settle(&mut self, event: Sequence) -> Result<Flight, NotInFlight> {
        let flight = self.flights.settle(event)?;
        if on(Mutant::AckNewest) {
            self.progress.on_settled(self.transactions.settle(event + 1));
        }
        Ok(flight)
    }

    pub fn status(&self) -> Pass {
        let Replication { flights, progress, sent_lsn, .. } = self;
        Pass {
            in_flight_events: flights.events() as u64,
            in_flight_bytes: flights.bytes() as u64,
            in_flight_limit: flights.limit() as u64,
            received_lsn: progress.seen(),
            // Where nothing was to be sent, nothing waits.
            sent_lsn: (*sent_lsn).max(progress.reported()),
            confirmed_lsn: progress.reported(),
            ..Pass::default()
        }
    }

    pub fn take(
        &mut self,
        packet: Packet<'_>,
        admission: &mut Admission<'_>,
    ) -> Result<PacketOutcome, Fault> {
        match packet {
            Packet::Frame(Frame::Keepalive { wal_end, reply_requested, .. }) => {
                self.transactions.check_sent(wal_end).map_err(|other| self.went_back(&other))?;
                // The position may be behind events of the transaction that are yet to come.
                if self.between_transactions() || on(Mutant::KeepaliveInTransaction) {
                    self.progress.on_keepalive(wal_end);
                }
                if reply_requested {
                    return Ok(PacketOutcome::ReplyRequested);
                }
            }
            Packet::Frame(Frame::XLogData { wal_end, body, .. }) => {
                self.progress.on_wal(wal_end);
                self.last_notice.clear();
                let message = Message::parse(body).map_err(|error| self.garbled(&error))?;
                return self.message(message, admission);
            }
            Packet::Notice(notice) => {
                if notice.is_skipped_publication() {
                    return Err(publication_gap(&self.source, &notice.to_string()));
                }
                if self.last_notice != notice.message {
                    tracing::warn!(code = "source.notice", notice = %notice, "a warning from postgres");
                    self.last_notice = notice.message;
                }
            }
            Packet::Other => {}
        }
        Ok(PacketOutcome::Done)
    }

    pub fn message(
        &mut self,
        message: Message<'_>,
        admission: &mut Admission<'_>,
    ) -> Result<PacketOutcome, Fault> {
        self.check_sequence(&message)?;
        match message {
            Message::Insert { relation, tuple } => return self.insert(relation, tuple, admission),
            Message::Begin { final_lsn, commit_ts, xid } => {
                self.transactions.check_sent(final_lsn).map_err(|other| self.went_back(&other))?;
                if let Some(outcome) = self.trace_before(final_lsn, admission) {
                    return Ok(outcome);
                }
                // A Postgres that has gone back before this position has lost the transaction.
                self.progress.on_wal(final_lsn);
                admission.admitter.transaction.begin(final_lsn, commit_ts);
                admission.admitter.begin(final_lsn);
                let commit = CommitId { commit_lsn: final_lsn, xid, commit_unix_us: commit_ts };
                self.transactions.begin(commit);
                if on(Mutant::AckBegin) {
                    let end = Lsn::from_wire(final_lsn.to_wire() + 8);
                    self.progress.on_committed(end);
                    self.progress.on_settled(end);
                }
            }
            Message::Commit { commit_lsn, end_lsn, .. } => {
                if self.transactions.receiving().is_none_or(|it| it.commit_lsn != commit_lsn) {
                    return Err(self.garbled("commit of another transaction"));
                }
                if self.prefixes.end_transaction(commit_lsn).is_err() {
                    return Ok(PacketOutcome::Stopped(IntakeStop::ClaimRefuted));
                }
                // An event has left the transaction, and later ones may stand in the wrong places.
                if !self.transactions.is_known() && self.flights.expects_more_of(commit_lsn) {
                    // Or it is another transaction, of a Postgres that has gone back.
                    if !on(Mutant::EmptyTakenForKnown) {
                        self.transactions.check().map_err(|other| self.went_back(&other))?;
                    }
                    return Ok(PacketOutcome::Stopped(IntakeStop::OtherEvent));
                }
                let reported = self.signature.sign(commit_lsn, end_lsn);
                if self.transactions.commit(reported, self.flights.next()) {
                    self.sent_lsn = end_lsn;
                }
                self.progress.on_committed(reported);
            }
            Message::Relation(relation) => return self.learn(relation),
            Message::Update { relation } => self.ignore(relation, Ignored::Update, admission)?,
            Message::Delete { relation } => self.ignore(relation, Ignored::Delete, admission)?,
            Message::Truncate { relations } => {
                for relation in relations {
                    self.ignore(relation, Ignored::Truncate, admission)?;
                }
            }
            Message::Logical { transactional, lsn, prefix, content } => {
                let plan = self.outboxes.messages().filter(|it| it.wants(transactional, &prefix));
                let Some(plan) = plan else {
                    admission.meter.ignored(Ignored::Message);
                    return Ok(PacketOutcome::Done);
                };
                self.transactions.check().map_err(|other| self.went_back(&other))?;
                let candidate = Candidate::Message(plan, lsn, content);
                let Replication { flights, transactions, prefixes, .. } = self;
                return admit((flights, transactions, prefixes), &candidate, admission);
            }
            Message::Type { oid, schema, name } => self.outboxes.learn_type(oid, &schema, &name),
            Message::Origin => {}
        }
        Ok(PacketOutcome::Done)
    }

    /// The first transaction that this relay receives of a slot that it has taken: before anything of
    /// it is published, the slot must show that, or a relay that had the slot before could believe
    /// that nothing was published since. Where no trace fits in between, a relay that had the slot before
    /// this one could leave none either, so the marks of an earlier process do not count beside a peer.
    fn trace_before(
        &mut self,
        commit_lsn: Lsn,
        admission: &mut Admission<'_>,
    ) -> Option<PacketOutcome> {
        let reported = self.progress.reported();
        // A Postgres that has gone back may have other transactions before what was reported.
        let waits = commit_lsn < reported && !on(Mutant::TraceAhead);
        let floor = self.untraced.take_if(|floor| !waits && commit_lsn >= *floor)?;
        if on(Mutant::TraceForgotten) {
            return None;
        }
        // What was reported since shows it too.
        if reported != floor {
            return Some(PacketOutcome::TraceDue(reported));
        }
        if let Some(trace) = self.signature.trace(floor, commit_lsn) {
            return Some(PacketOutcome::TraceDue(trace));
        }
        admission.admitter.forget_marks_beside_peer(admission.clock.now().unix_us);
        self.untraced = Some(floor);
        Some(PacketOutcome::NoTraceFits)
    }

    /// Every change belongs to a transaction, which begins once and ends once. Otherwise it would
    /// be admitted at the position of another transaction.
    #[inline]
    fn check_sequence(&self, message: &Message<'_>) -> Result<(), Fault> {
        let what = match (message, self.between_transactions()) {
            (message, true) if message.is_change() => "a change outside a transaction",
            (Message::Commit { .. }, true) => "a commit without a begin",
            (Message::Begin { .. }, false) => "a begin within a transaction",
            _ => return Ok(()),
        };
        Err(self.garbled(&DecodeError { what, offset: 0 }))
    }

    fn learn(&mut self, relation: Relation) -> Result<PacketOutcome, Fault> {
        let relation = &self.outboxes.resolve(relation);
        let is_fresh = std::mem::take(&mut self.catalog_is_fresh);
        match self.outboxes.learn(relation, self.binary) {
            // Rows that were no events are events now: those behind them in the transaction are not in
            // the places where they were admitted before.
            Ok(true)
                if self.flights.earlier().is_some() && self.outboxes.was_ignored(relation.oid) =>
            {
                // Or it is another transaction, of a Postgres that has gone back.
                self.transactions.check().map_err(|other| self.went_back(&other))?;
                Ok(PacketOutcome::Stopped(IntakeStop::OtherEvent))
            }
            Ok(true) => Ok(PacketOutcome::Done),
            Ok(false) => {
                let outcome = self.other_table(relation, is_fresh);
                if outcome == PacketOutcome::Done {
                    self.outboxes.note_ignored(relation.oid);
                }
                Ok(outcome)
            }
            Err(fault) if fault.code == NEEDS_TEXT => {
                tracing::info!(reason = fault.what, "reading columns in text form");
                Ok(PacketOutcome::Stopped(IntakeStop::TextModeNeeded))
            }
            Err(fault) => Err(fault),
        }
    }

    /// A table that is no outbox by name or object id. It may have become one since the catalog was
    /// read, for example a partition that appears under its own name because
    /// publish_via_partition_root was turned off. Its rows must not be skipped before the catalog
    /// has been read again.
    fn other_table(&mut self, relation: &Relation, is_fresh: bool) -> PacketOutcome {
        if !self.outboxes.resembles_outbox(relation, self.binary) {
            return PacketOutcome::Done;
        }
        let receiving = self.transactions.receiving();
        let is_after = receiving.is_some_and(|commit| self.catalog.is_after(commit.xid));
        if !is_fresh && !is_after {
            return PacketOutcome::Stopped(IntakeStop::CatalogNeeded);
        }
        if self.catalog.has_partitions && !self.catalog.has_table(relation.oid) {
            self.gone.insert(relation.oid, relation.qualified_name());
        } else if self.unconfigured < UNCONFIGURED_MAX && !self.outboxes.was_ignored(relation.oid) {
            self.unconfigured += 1;
            tracing::info!(
                code = "outbox.table-not-configured",
                table = relation.qualified_name(),
                help = "add it to the configuration of every relay of the slot, or take it out of the publication (docs/outbox.md, Adding a table)",
                "rows come under the name of a table with an outbox's columns that is in no [[source.outbox]] (or was a partition until lately): they are not published"
            );
        }
        PacketOutcome::Done
    }

    fn insert(
        &mut self,
        oid: u32,
        tuple: Tuple<'_>,
        admission: &mut Admission<'_>,
    ) -> Result<PacketOutcome, Fault> {
        let Some(plan) = self.outboxes.plan(oid).map_err(|error| self.garbled(&error))? else {
            if let Some(fault) = self.outboxes.unfit(oid) {
                return Err(fault.clone());
            }
            // Postgres also describes a partition whose rows come under the name of its root.
            if let Some(table) = self.gone.remove(&oid) {
                tracing::warn!(
                    code = "outbox.table-gone",
                    table,
                    "rows come under the name of a table that does not exist any more and had an outbox's columns: if it was a partition of the outbox, they are not published"
                );
            }
            admission.meter.ignored(Ignored::OtherTable);
            return Ok(PacketOutcome::Done);
        };
        self.transactions.check().map_err(|other| self.went_back(&other))?;
        let Replication { flights, transactions, prefixes, .. } = self;
        admit((flights, transactions, prefixes), &Candidate::Row(plan, tuple), admission)
    }

    /// A change that is not an event.
    fn ignore(
        &mut self,
        oid: u32,
        why: Ignored,
        admission: &mut Admission<'_>,
    ) -> Result<(), Fault> {
        let Some(plan) = self.outboxes.plan(oid).map_err(|error| self.garbled(&error))? else {
            admission.meter.ignored(Ignored::OtherTable);
            return Ok(());
        };
        admission.meter.ignored(why);
        if why == Ignored::Update {
            let table = &self.outboxes.tables()[plan.outbox_index()];
            tracing::warn!(
                code = "outbox.updated",
                %table,
                publication = self.source.publication,
                "UPDATE of an outbox row is no event and was ignored; ALTER PUBLICATION … SET (publish = 'insert') keeps updates out (this stops a running relay once: walrelay resume)"
            );
        }
        Ok(())
    }

    #[cold]
    fn went_back(&self, other: &OtherHistory) -> Fault {
        faults::other_history(&self.source, other, self.slot_confirmed, self.progress.seen())
    }

    fn garbled(&self, error: &(impl Display + ?Sized)) -> Fault {
        faults::protocol(&error.to_string(), &faults::slot_place(&self.source))
    }
}

/// Offers a candidate, unless it was admitted before or there is no room for it.
#[inline]
fn admit(
    (flights, transactions, prefixes): (&mut Flights, &mut Transactions, &mut Prefixes),
    candidate: &Candidate<'_>,
    admission: &mut Admission<'_>,
) -> Result<PacketOutcome, Fault> {
    let is_repeat = transactions.is_repeat();
    if !is_repeat && !flights.has_room() {
        return Ok(PacketOutcome::Stopped(IntakeStop::Held(IntakeHold::WindowFull)));
    }
    // A transaction is open: `check_sequence` refuses changes outside of one.
    let position = transactions.next().unwrap_or_default();
    let earlier = flights.earlier().filter(|_| !is_repeat);
    if earlier.is_some_and(|earlier| earlier.position != position) {
        return Ok(PacketOutcome::Stopped(IntakeStop::OtherEvent));
    }
    if is_repeat || earlier.is_some_and(|earlier| earlier.state.is_settled()) {
        if !admission.admitter.recalls(candidate, position)? {
            return Ok(PacketOutcome::Stopped(IntakeStop::Held(IntakeHold::TopicUnread)));
        }
        if !is_repeat {
            flights.pass_over(position);
        }
        transactions.advance();
        return Ok(PacketOutcome::Done);
    }
    let sequence = flights.next();
    let number = EventNumber { sequence, position, crash_ordinal: position.ordinal, earlier };
    let Admission { admitter, policy, sink, meter, clock } = admission;
    let fingerprint = match admitter.offer(candidate, number, policy, &mut **sink, *clock)? {
        Offered::Taken(flight) => {
            if on(Mutant::MarkOnEnqueue) {
                flight.mark().into_iter().for_each(|it| admitter.state_file.marks.push(it));
            }
            let fingerprint = flight.fingerprint;
            flights.admit(flight);
            fingerprint
        }
        Offered::Known(from, fingerprint) => {
            meter.known(from);
            if from == KnownFrom::Topic {
                // It may have been published again behind a later event of its key that is marked: the
                // next process may not read the topic, and must not believe that mark.
                admitter.state_file.marks.push(Mark {
                    position,
                    fingerprint,
                    is_dead_letter: false,
                });
            }
            flights.pass_over(position);
            fingerprint
        }
        Offered::Held(why) => return Ok(PacketOutcome::Stopped(IntakeStop::Held(why))),
        Offered::SinkBroken => return Ok(PacketOutcome::Stopped(IntakeStop::SinkBroken)),
    };
    transactions.advance();
    Ok(match prefixes.admitted(position, fingerprint.event, flights.next()) {
        Ok(()) => PacketOutcome::Done,
        Err(PrefixRefuted) => PacketOutcome::Stopped(IntakeStop::ClaimRefuted),
    })
}

#[cfg(test)]
#[path = "replication_tests.rs"]
mod tests;
