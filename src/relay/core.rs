//! What happens to one packet: decoded, recognised, routed, admitted, handed to the sink.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::admission::{Taken, hand_over, unless_new, unpublishable};
use super::faults;
use super::link::Catalog;
use super::shaping::Shaping;
use crate::backoff::Backoff;
use crate::delivery::admitted::{Admitted, Transaction as Known};
use crate::delivery::ledger::Ledger;
use crate::delivery::retry::{Next, Retries};
use crate::delivery::settings::DeliverySettings;
use crate::delivery::window::Window;
use crate::error::Fault;
use crate::lsn::Lsn;
use crate::message::{HeaderSlots, Sequence};
use crate::metrics::{Ignored, Metrics, PassMeter};
use crate::outbox::{ExtractError, Outboxes, RowError, Scratch, Transaction};
use crate::pgoutput::cursor::DecodeError;
use crate::pgoutput::frame::Frame;
use crate::pgoutput::message::{Message, Tuple};
use crate::pgoutput::relation::Relation;
use crate::sink::{Failure, Sink};
use crate::source::progress::Progress;
use crate::source::settings::SourceSettings;
use crate::source::stream::Packet;

/// A warning about rows is repeated no more often than this.
const WARN_EVERY: Duration = Duration::from_secs(10);

/// The state of the promises, and what turns a packet into an event.
pub(super) struct Core {
    pub(super) window: Window,
    pub(super) progress: Progress,
    pub(super) meter: PassMeter,
    ledger: Ledger,
    retries: Retries,
    admitted: Admitted,
    outboxes: Outboxes,
    transaction: Transaction,
    scratch: Scratch,
    shaping: Shaping,
    sent_lsn: Lsn,
    /// Events that will never be confirmed; the relay is about to stop because of them.
    refused: usize,
    binary: bool,
    published: HashSet<(String, String)>,
    /// Tables that came up without being in `published`, and were looked up anew for it.
    looked_up: HashSet<(String, String)>,
    last_warning: Option<Instant>,
    place: String,
}

impl Core {
    pub(super) fn new(
        source: &SourceSettings,
        delivery: &DeliverySettings,
        metrics: &Arc<Metrics>,
    ) -> Result<Core, Fault> {
        let outboxes = Outboxes::new(source.outboxes.clone(), source.messages.as_ref())
            .map_err(Fault::from)?;
        Ok(Core {
            window: Window::new(delivery.window_events_max, delivery.window_bytes_max),
            progress: Progress::default(),
            meter: metrics.pass_meter(),
            ledger: Ledger::default(),
            retries: Retries::new(
                delivery.attempts_max,
                Backoff::new(delivery.backoff_base, delivery.backoff_cap),
            ),
            admitted: Admitted::default(),
            outboxes,
            transaction: Transaction::default(),
            scratch: Scratch::default(),
            shaping: Shaping::new(source)?,
            sent_lsn: Lsn::ZERO,
            refused: 0,
            binary: true,
            published: HashSet::new(),
            looked_up: HashSet::new(),
            last_warning: None,
            place: format!("slot {}, publication {}", source.slot, source.publication),
        })
    }

    /// A new connection: tables are described anew, and transactions begin again.
    pub(super) fn connected(&mut self, binary: bool, catalog: Catalog) {
        self.binary = binary;
        self.published = catalog.published.into_iter().collect();
        self.outboxes.forget();
        self.outboxes.set_partitions(catalog.partitions);
        self.progress.on_connected();
    }

    /// Where the slot stood when this process met it on this timeline.
    pub(super) fn starts_at(&mut self, floor: Lsn) {
        self.admitted.starts_at(floor);
    }

    /// The connection broke.
    pub(super) fn interrupt(&mut self) {
        self.admitted.interrupt();
    }

    /// Another timeline: no position means anything any more.
    pub(super) fn forget(&mut self) {
        self.admitted.forget();
        self.window.forget();
        self.ledger.forget();
        self.retries.forget();
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
        self.retries.rewind();
        self.window.rewind();
    }

    /// Is no transaction half received?
    pub(super) fn between_transactions(&self) -> bool {
        self.admitted.next().is_none()
    }

    /// Is nothing in flight that may still be confirmed?
    pub(super) fn is_settled(&self) -> bool {
        self.window.events() <= self.refused
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

    /// The sink has confirmed an event.
    pub(super) fn confirmed(&mut self, sequence: Sequence, now_unix_us: i64) -> Result<(), Fault> {
        let commit_unix_us =
            self.window.settle(sequence).map_err(|error| faults::receipt(&error))?;
        self.meter.published(commit_unix_us, now_unix_us);
        self.retries.settled(sequence);
        Ok(())
    }

    /// The sink could not publish an event this time.
    pub(super) fn failed(&mut self, sequence: Sequence, now: Instant) -> Next {
        self.retries.failed(sequence, now)
    }

    /// An event that may be tried again now.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Sequence> {
        let sequence = self.retries.take_due(now)?;
        self.meter.retried();
        Some(sequence)
    }

    /// The sink will never confirm an event; the fault that stops the relay.
    pub(super) fn halt(&mut self, sequence: Sequence, failure: &Failure, attempts: u32) -> Fault {
        self.refused += 1;
        let lsn = self.ledger.position_of(sequence).map(|position| position.commit_lsn);
        faults::refused(failure, lsn.unwrap_or_else(|| self.transaction.commit_lsn()), attempts)
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
                let text = notice.message;
                // PostgreSQL 18 goes on without the publication and drops its rows in silence. The
                // text may be translated.
                if notice.sqlstate == "55000" || notice.routine == "LoadPublications" {
                    return Err(faults::publication_gone(&text, &self.place));
                }
                tracing::info!(notice = text, "postgres says");
                Ok(Taken::Yes)
            }
            Packet::Other => Ok(Taken::Yes),
        }
    }

    fn message(&mut self, message: Message<'_>, sink: &mut dyn Sink) -> Result<Taken, Fault> {
        match message {
            Message::Insert { relation, tuple } => return self.insert(relation, tuple, sink),
            Message::Begin { final_lsn, commit_ts, .. } => {
                self.transaction.begin(final_lsn, commit_ts);
                if let Known::New { already } = self.admitted.begin(final_lsn) {
                    self.ledger.begin(final_lsn, self.window.next(), already);
                }
            }
            Message::Commit { commit_lsn, end_lsn, .. } => {
                if commit_lsn != self.transaction.commit_lsn() {
                    let what = DecodeError { what: "commit of another transaction", offset: 0 };
                    return Err(self.garbled(&what));
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
                for relation in relations.iter() {
                    self.no_event(relation, Ignored::Truncate)?;
                }
            }
            Message::Logical { transactional, lsn, prefix, content } => {
                return self.logical(transactional, lsn, prefix, content, sink);
            }
            Message::Origin | Message::Type => {}
        }
        Ok(Taken::Yes)
    }

    /// A table is described.
    fn learn(&mut self, relation: &Relation) -> Result<Taken, Fault> {
        match self.outboxes.learn(relation, self.binary) {
            Ok(true) => Ok(Taken::Yes),
            Ok(false) => {
                // A partition under its own name, say, because publish_via_partition_root was
                // turned off: its rows must not be passed over before the catalog was asked.
                let name = (relation.namespace.clone(), relation.name.clone());
                if self.published.contains(&name) {
                    return Ok(Taken::Yes);
                }
                if self.looked_up.insert(name) {
                    return Ok(Taken::LookAgain);
                }
                let table = relation.qualified_name();
                tracing::warn!(
                    table,
                    "a table that is in the publication no more: its rows are no events"
                );
                Ok(Taken::Yes)
            }
            Err(ExtractError::NeedsText { column, .. }) => {
                tracing::info!(column, "reading columns in text form");
                Ok(Taken::TextWanted)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn insert(&mut self, oid: u32, tuple: Tuple<'_>, sink: &mut dyn Sink) -> Result<Taken, Fault> {
        let Core { outboxes, transaction, scratch, shaping, admitted, window, .. } = self;
        let plan = match outboxes.plan(oid) {
            Ok(Some(plan)) => plan,
            Ok(None) => {
                self.meter.ignored(Ignored::OtherTable);
                return Ok(Taken::Yes);
            }
            Err(error) => return Err(faults::protocol(&error.to_string(), &self.place)),
        };
        if let Some(taken) = unless_new(admitted, window) {
            return Ok(taken);
        }
        let mut headers = HeaderSlots::new();
        match plan.extract(tuple, transaction, scratch, &mut headers) {
            Ok(event) => shaping
                .of_table(plan.outbox_index())
                .shape(event, |event| hand_over(event, window, admitted, sink))
                .unwrap_or_else(|error| Err(unpublishable(&error, transaction))),
            Err(RowError::Decode(error)) => Err(faults::protocol(&error.to_string(), &self.place)),
            Err(RowError::Event(error)) => Err(unpublishable(&error, transaction)),
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
        let Core { outboxes, transaction, scratch, shaping, admitted, window, .. } = self;
        let Some(plan) = outboxes.messages().filter(|plan| plan.wants(transactional, prefix))
        else {
            self.meter.ignored(Ignored::Message);
            return Ok(Taken::Yes);
        };
        if let Some(taken) = unless_new(admitted, window) {
            return Ok(taken);
        }
        let mut headers = HeaderSlots::new();
        match plan.extract(lsn, content, transaction, scratch, &mut headers) {
            Ok(event) => shaping
                .of_messages()
                .shape(event, |event| hand_over(event, window, admitted, sink))
                .unwrap_or_else(|error| Err(unpublishable(&error, transaction))),
            Err(error) => Err(unpublishable(&error, transaction)),
        }
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
        let quiet = self.last_warning.is_some_and(|at| at.elapsed() < WARN_EVERY);
        if why == Ignored::Update && !quiet {
            self.last_warning = Some(Instant::now());
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
