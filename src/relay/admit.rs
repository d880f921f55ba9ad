//! What happens to one packet: decoded, recognised, routed, admitted, handed to the sink.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::admission::{Gate, Streamed, Taken};
use super::candidate::{Candidate, Entrance};
use super::crash::CrashGuard;
use super::faults;
use super::outlet::Settling;
use super::shaping::Shaping;
use crate::base::error::Fault;
use crate::base::event::{Position, Sequence};
use crate::base::log_throttle::LogThrottle;
use crate::base::lsn::Lsn;
use crate::dead_letter::writer::DeadLetterWriter;
use crate::delivery::admitted::{Admitted, Transaction as Known};
use crate::delivery::ledger::Ledger;
use crate::delivery::settings::DeliverySettings;
use crate::delivery::window::Window;
use crate::metrics::{Ignored, Metrics, PassMeter};
use crate::outbox::{ExtractError, Outboxes, Scratch, Transaction};
use crate::pgoutput::cursor::DecodeError;
use crate::pgoutput::frame::Frame;
use crate::pgoutput::message::{Message, Tuple};
use crate::pgoutput::relation::Relation;
use crate::relay::failure_policy::{Fate, Moment, Undertaker};
use crate::sink::{Failure, Sink};
use crate::source::catalog::Catalog;
use crate::source::progress::Progress;
use crate::source::publication::gap;
use crate::source::settings::SourceSettings;
use crate::source::stream::Packet;

/// A warning about rows is repeated no more often than this.
const WARN_EVERY: Duration = Duration::from_secs(10);

/// The state of the promises, and what turns a packet into an event.
pub(super) struct Core {
    pub(super) window: Window,
    pub(super) progress: Progress,
    pub(super) meter: PassMeter,
    pub(super) undertaker: Undertaker,
    pub(super) crash: CrashGuard,
    ledger: Ledger,
    admitted: Admitted,
    outboxes: Outboxes,
    transaction: Transaction,
    scratch: Scratch,
    shaping: Shaping,
    sent_lsn: Lsn,
    binary: bool,
    catalog: Catalog,
    /// The catalog was read for the packet that comes next.
    catalog_is_fresh: bool,
    /// The transaction that is being received.
    xid: u32,
    update_warnings: LogThrottle,
    place: String,
    source: SourceSettings,
}

impl Core {
    pub(super) fn new(
        source: &SourceSettings,
        delivery: &DeliverySettings,
        mailbox: DeadLetterWriter,
        metrics: &Arc<Metrics>,
    ) -> Result<Core, Fault> {
        let crash = CrashGuard::open(delivery.crash_file.as_deref(), &source.slot)?;
        let outboxes = Outboxes::new(source.outboxes.clone(), source.messages.as_ref())
            .map_err(Fault::from)?;
        Ok(Core {
            window: Window::new(delivery.window_events_max, delivery.window_bytes_max),
            progress: Progress::default(),
            meter: metrics.pass_meter(),
            undertaker: Undertaker::new(delivery, mailbox, metrics),
            crash,
            ledger: Ledger::default(),
            admitted: Admitted::default(),
            outboxes,
            transaction: Transaction::default(),
            scratch: Scratch::default(),
            shaping: Shaping::new(source)?,
            sent_lsn: Lsn::ZERO,
            binary: true,
            catalog: Catalog::default(),
            catalog_is_fresh: false,
            xid: 0,
            update_warnings: LogThrottle::new(1, WARN_EVERY),
            place: format!("slot {}, publication {}", source.slot, source.publication),
            source: source.clone(),
        })
    }

    /// A new connection: tables are described anew, and transactions begin again.
    pub(super) fn connected(&mut self, binary: bool, catalog: Catalog) {
        self.binary = binary;
        self.outboxes.forget();
        self.refresh(catalog);
        self.catalog_is_fresh = false;
        self.progress.on_connected();
    }

    /// The catalog was read anew for the packet that comes next.
    pub(super) fn refresh(&mut self, mut catalog: Catalog) {
        self.outboxes.set_known(std::mem::take(&mut catalog.outboxes));
        self.catalog = catalog;
        self.catalog_is_fresh = true;
    }

    /// Where the slot stood when this process met it on this timeline.
    pub(super) fn starts_at(&mut self, floor: Lsn) {
        self.admitted.starts_at(floor);
    }

    /// Another relay held the slot meanwhile and confirmed everything before `floor`. Events of this
    /// relay that are still in flight settle as before, but hold nothing back below `floor`, and do
    /// not come again: numbers from here on mean other events.
    pub(super) fn peers_confirmed(&mut self, floor: Lsn) {
        self.window.forget();
        self.undertaker.forget(self.window.next());
        self.ledger.close_below(floor, self.window.next());
        self.progress.on_wal(floor);
        self.progress.on_reported(floor);
    }

    /// The connection broke.
    pub(super) fn interrupt(&mut self) {
        self.admitted.interrupt();
    }

    /// Another timeline: no position means anything any more.
    pub(super) fn forget(&mut self) {
        self.admitted.forget();
        self.window.forget();
        self.undertaker.forget(self.window.next());
        self.ledger.forget();
        self.progress.forget();
    }

    /// What is not settled in order will be received and admitted anew.
    pub(super) fn rewind(&mut self) {
        let settled_below = self.window.settled_below();
        if let Some(position) = self.ledger.position_of(settled_below) {
            self.admitted.rewind(position);
        }
        self.progress.on_settled(self.ledger.settle(settled_below));
        self.progress.on_connected();
        self.ledger.rewind();
        let renumbered = self.window.rewind();
        self.undertaker.rewind(renumbered);
    }

    /// Is no transaction half received?
    pub(super) fn between_transactions(&self) -> bool {
        self.admitted.next().is_none()
    }

    /// Is nothing in flight that may still be confirmed?
    pub(super) fn is_settled(&self) -> bool {
        self.window.events() <= self.undertaker.hopeless()
    }

    /// Up to where events were handed to the sink.
    pub(super) fn sent_lsn(&self) -> Lsn {
        self.sent_lsn
    }

    /// What Postgres may forget.
    pub(super) fn reportable(&mut self) -> Lsn {
        self.progress.on_settled(self.ledger.settle(self.window.settled_below()));
        self.progress.reportable(self.ledger.is_clear())
    }

    /// One packet.
    pub(super) fn take(&mut self, packet: Packet<'_>, sink: &mut dyn Sink) -> Result<Taken, Fault> {
        match packet {
            Packet::Frame(Frame::Keepalive { wal_end, reply_requested, .. }) => {
                self.progress.on_keepalive(wal_end);
                Ok(if reply_requested { Taken::ReplyWanted } else { Taken::Yes })
            }
            Packet::Frame(Frame::XLogData { wal_end, body, .. }) => {
                self.progress.on_wal(wal_end);
                let message = Message::parse(body).map_err(|error| self.garbled(&error))?;
                self.message(message, sink)
            }
            Packet::Notice(notice) => {
                if gap::is_skipped(&notice) {
                    return Err(gap::fault(&self.source, &notice.to_string()));
                }
                let text = notice.message;
                tracing::info!(notice = text, "postgres says");
                Ok(Taken::Yes)
            }
            Packet::Other => Ok(Taken::Yes),
        }
    }

    fn message(&mut self, message: Message<'_>, sink: &mut dyn Sink) -> Result<Taken, Fault> {
        self.check_sequence(&message)?;
        match message {
            Message::Insert { relation, tuple } => return self.insert(relation, tuple, sink),
            Message::Begin { final_lsn, commit_ts, xid } => {
                self.xid = xid;
                self.transaction.begin(final_lsn, commit_ts);
                self.crash.begins(final_lsn);
                if let Known::New { already } = self.admitted.begin(final_lsn) {
                    self.ledger.begin(final_lsn, self.window.next(), already);
                }
            }
            Message::Commit { commit_lsn, end_lsn, .. } => {
                if commit_lsn != self.transaction.commit_lsn() {
                    return Err(faults::protocol("commit of another transaction", &self.place));
                }
                if self.admitted.commit() {
                    self.ledger.commit(end_lsn, self.window.next());
                    self.sent_lsn = end_lsn;
                }
            }
            Message::Relation(shape) => {
                let relation = Relation::from(shape);
                return self.learn(&relation);
            }
            Message::Update { relation } => self.no_event(relation, Ignored::Update)?,
            Message::Delete { relation } => self.no_event(relation, Ignored::Delete)?,
            Message::Truncate { relations } => {
                relations.iter().try_for_each(|it| self.no_event(it, Ignored::Truncate))?;
            }
            Message::Logical { transactional, lsn, prefix, content } => {
                return self.logical(transactional, lsn, prefix, content, sink);
            }
            Message::Origin | Message::Type => {}
        }
        Ok(Taken::Yes)
    }

    /// Every change belongs to a transaction, which begins once and ends once. Anything else would
    /// be admitted at the position of another one.
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

    /// A table is described.
    fn learn(&mut self, relation: &Relation) -> Result<Taken, Fault> {
        let is_fresh = std::mem::take(&mut self.catalog_is_fresh);
        match self.outboxes.learn(relation, self.binary) {
            Ok(true) => Ok(Taken::Yes),
            Ok(false) => Ok(self.other_table(relation, is_fresh)),
            Err(ExtractError::NeedsText { column, .. }) => {
                tracing::info!(column, "reading columns in text form");
                Ok(Taken::TextWanted)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A table that is no outbox by name or object id. It may be one since the catalog was read: a
    /// partition under its own name, say, because publish_via_partition_root was turned off. Its
    /// rows must not be passed over before the catalog was asked.
    fn other_table(&mut self, relation: &Relation, is_fresh: bool) -> Taken {
        if !self.outboxes.resembles_outbox(relation, self.binary) {
            return Taken::Yes;
        }
        if !is_fresh && !self.catalog.is_after(self.xid) {
            return Taken::LookAgain;
        }
        if self.catalog.has_partitions && !self.catalog.has_table(relation.oid) {
            tracing::warn!(
                table = relation.qualified_name(),
                "a table with an outbox's columns does not exist any more: if it was a partition of the outbox, its rows are not published"
            );
        }
        Taken::Yes
    }

    fn insert(&mut self, oid: u32, tuple: Tuple<'_>, sink: &mut dyn Sink) -> Result<Taken, Fault> {
        let (outboxes, entrance) = self.entrance(sink);
        match outboxes.plan(oid) {
            Ok(Some(plan)) => entrance.offer(&Candidate::Row(plan, tuple)),
            Ok(None) => {
                self.meter.ignored(Ignored::OtherTable);
                Ok(Taken::Yes)
            }
            Err(error) => Err(faults::protocol(&error.to_string(), &self.place)),
        }
    }

    fn logical(
        &mut self,
        transactional: bool,
        lsn: Lsn,
        prefix: &str,
        content: &[u8],
        sink: &mut dyn Sink,
    ) -> Result<Taken, Fault> {
        let (outboxes, entrance) = self.entrance(sink);
        match outboxes.messages().filter(|plan| plan.wants(transactional, prefix)) {
            Some(plan) => entrance.offer(&Candidate::Message(plan, lsn, content)),
            None => {
                self.meter.ignored(Ignored::Message);
                Ok(Taken::Yes)
            }
        }
    }

    /// The plans, and where an event made by one of them comes in.
    #[inline]
    fn entrance<'a>(
        &'a mut self,
        sink: &'a mut dyn Sink,
    ) -> (&'a Outboxes, Entrance<'a, Streamed<'a>>) {
        let Core { window, admitted, undertaker, .. } = self;
        let entrance = Entrance {
            transaction: &self.transaction,
            scratch: &mut self.scratch,
            shaping: &mut self.shaping,
            crash: &mut self.crash,
            gate: Gate { intake: Streamed { window, admitted }, undertaker, sink },
            place: &self.place,
        };
        (&self.outboxes, entrance)
    }

    /// A change that is no event.
    fn no_event(&mut self, oid: u32, why: Ignored) -> Result<(), Fault> {
        let plan = self.outboxes.plan(oid);
        let plan = plan.map_err(|error| faults::protocol(&error.to_string(), &self.place))?;
        let Some(plan) = plan else {
            self.meter.ignored(Ignored::OtherTable);
            return Ok(());
        };
        self.meter.ignored(why);
        if why == Ignored::Update && self.update_warnings.permit(Instant::now()).is_some() {
            let table = &self.outboxes.tables()[plan.outbox_index()];
            tracing::warn!(
                table = format!("{}.{}", table.schema, table.table),
                "UPDATE of an outbox row is no event and was ignored; ALTER PUBLICATION … SET (publish = 'insert') keeps updates out"
            );
        }
        Ok(())
    }

    fn garbled(&self, error: &DecodeError) -> Fault {
        faults::protocol(&error.to_string(), &self.place)
    }
}

impl Settling for Core {
    fn confirmed(&mut self, sequence: Sequence, now_unix_us: i64) -> Result<bool, Fault> {
        let commit_unix_us =
            self.window.settle(sequence).map_err(|error| faults::receipt(&error))?;
        let letter = self.undertaker.settled(sequence).is_some();
        if letter {
            self.meter.dead_lettered();
        } else {
            self.meter.published(commit_unix_us, now_unix_us);
        }
        Ok(letter)
    }

    fn failed(
        &mut self,
        sequence: Sequence,
        failure: Failure,
        sink: &mut dyn Sink,
        now: Moment,
    ) -> Result<Fate, Fault> {
        let open = Position { commit_lsn: self.transaction.commit_lsn(), ordinal: 0 };
        let position = self.ledger.position_of(sequence).unwrap_or(open);
        self.undertaker.failed(sequence, failure, position, sink, now)
    }

    fn take_due(&mut self, now: Instant) -> Option<Sequence> {
        let (published, has_room) = (self.window.next(), self.window.has_room());
        let sequence = self.undertaker.take_due(now, published, has_room)?;
        self.meter.retried();
        Some(sequence)
    }

    fn undertaker(&mut self) -> &mut Undertaker {
        &mut self.undertaker
    }

    fn in_flight(&self) -> usize {
        self.window.events()
    }
}

#[cfg(test)]
#[path = "admit_tests.rs"]
mod tests;
