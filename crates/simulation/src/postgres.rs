//! A model of Postgres, as far as a logical slot shows it: committed transactions in the order of
//! their commits, one slot, its walsenders, crashes, promotions and restores.

use std::collections::{BTreeMap, BTreeSet};

use walrelay_core::base::lsn::Lsn;
use walrelay_core::pgoutput::encoder::Encoder;
use walrelay_core::source::server::{ServerRun, ServerStart};
use walrelay_core::source::slot_state::{HeldSlot, SlotHolder};

use crate::network::{Bytes, Connection};
use crate::world::RELAYS_MAX;

mod peers;

pub(crate) const APPLICATION: &str = "walrelay";
pub(crate) const TABLE: u32 = 16_400;
const OTHER_TABLE: u32 = 16_401;
/// Bytes of WAL of a change.
const CHANGE_BYTES: u64 = 64;
/// Bytes of WAL of a commit record.
const COMMIT_BYTES: u64 = 48;
/// A walsender does not encode more than this ahead of the network.
const SEND_BUFFER_BYTES: usize = 16 * 1024;
pub(crate) const TOPICS: [&str; 2] = ["orders", "bills"];
pub(crate) const KEYS: [&[u8]; 6] = [b"k0", b"k1", b"k2", b"k3", b"k4", b"k5"];
/// The payload of an event that the broker takes, and that of one that it refuses for ever.
pub(crate) const PAYLOADS: [&[u8]; 2] = [b"{}", b"poison"];

/// A row of the outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Its id, in the order of the inserts of a history.
    pub(crate) number: u64,
    pub(crate) key: Option<u8>,
    pub(crate) topic: u8,
    /// The broker refuses it for ever.
    pub(crate) poison: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Change {
    Event(Event),
    /// A row of a table that is no outbox.
    Other,
}

#[derive(Clone, Debug)]
pub(crate) struct Transaction {
    pub(crate) xid: u32,
    pub(crate) commit_lsn: u64,
    pub(crate) end_lsn: u64,
    pub(crate) commit_unix_us: i64,
    pub(crate) changes: Vec<Change>,
    /// The publication let its rows through.
    pub(crate) published: bool,
}

impl Transaction {
    pub(crate) fn events(&self) -> impl Iterator<Item = &Event> {
        let events = self.changes.iter().filter_map(|change| match change {
            Change::Event(event) => Some(event),
            Change::Other => None,
        });
        events.filter(|_| self.published)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) confirmed: u64,
    /// The position that a crash leaves.
    pub(crate) on_disk: u64,
    pub(crate) active: Option<i32>,
    /// Transactions decoded since the start of the statistics.
    pub(crate) decoded: i64,
}

#[derive(Debug)]
pub(crate) struct Walsender {
    pub(crate) pid: i32,
    /// The relay that has this session.
    pub(crate) relay: usize,
    /// The next transaction, and how far it is sent.
    next: usize,
    sent_changes: Option<usize>,
    sent: u64,
    has_described: bool,
    pub(crate) connection: Connection,
    /// When a status update came last.
    pub(crate) heard_us: u64,
    /// When a keepalive was sent last.
    pub(crate) kept_us: u64,
}

impl Walsender {
    /// The relay has not read all that is committed.
    pub(crate) fn is_behind(&self, wal: &[Transaction]) -> bool {
        self.next < wal.len() || self.connection.state().backlog() > 0
    }
}

pub(crate) struct Postgres {
    pub(crate) system_id: String,
    pub(crate) timeline: u32,
    /// How often it has begun to run.
    runs_begun: u32,
    pub(crate) started: ServerStart,
    /// It crashes, and its postmaster starts it again.
    postmaster_lives: bool,
    pub(crate) runs: bool,
    pub(crate) wal: Vec<Transaction>,
    pub(crate) end: u64,
    next_xid: u32,
    next_pid: i32,
    pub(crate) slot: Option<Slot>,
    pub(crate) walsenders: Vec<Walsender>,
    /// The relays with an SQL session in which they look at the slot: that shows them to each other.
    pub(crate) sessions: BTreeSet<usize>,
    /// When each relay has looked at the slot last, and when it has seen another one last.
    looks: BTreeMap<usize, (i64, Option<i64>)>,
    /// Relays of which a process has ever seen another one.
    know_peers: BTreeSet<usize>,
    /// Relays whose process has seen one, and has made no step since.
    see_peers: BTreeSet<usize>,
    /// A relay that does not know its peer has confirmed a position over SQL, behind what a crash has taken
    /// back: the slot stood there.
    pub(crate) confirmed_unknowing: Option<u64>,
    /// Whether a crash or a restore has taken back positions since each relay has had the slot last.
    took_back: BTreeMap<usize, bool>,
    /// Relays that have not seen the other one that has taken the slot last.
    unseen_holder: BTreeSet<usize>,
    /// Relays whose last walsender has ended because it did not hear them.
    pub(crate) unheard: BTreeSet<usize>,
    pub(crate) publishes: bool,
    /// How often the table was taken out and put back.
    pub(crate) publication_changes: u32,
    /// The position of the slot that the standby knows.
    pub(crate) synced: u64,
    /// The newest position that was ever confirmed of this history.
    highest: u64,
    pub(crate) clock_ahead_us: i64,
    /// The relays of the sessions that have begun, and where each began.
    pub(crate) begun: Vec<(usize, u64)>,
    /// No status update of a session that begins arrives behind the trace.
    pub(crate) loses_reports: bool,
    /// Where the WAL ended when the table was put back into the publication, until somebody has
    /// acknowledged that.
    pub(crate) published_again: Option<u64>,
    /// Inside a transaction, a keepalive has the position of its end: the protocol allows a server to
    /// tell how far its WAL goes.
    pub(crate) keeps_alive_ahead: bool,
    /// It is reached through a proxy, in every other seed.
    pub(crate) has_proxy: bool,
}

impl Postgres {
    pub(crate) fn new(keeps_alive_ahead: bool, seed: u64) -> Postgres {
        let end = 0x1000;
        Postgres {
            system_id: "7000000000000000001".to_owned(),
            timeline: 1,
            runs_begun: 1,
            started: started(1),
            postmaster_lives: false,
            runs: true,
            wal: Vec::new(),
            end,
            next_xid: 700,
            next_pid: 100,
            slot: Some(Slot { confirmed: end, on_disk: end, active: None, decoded: 0 }),
            walsenders: Vec::new(),
            sessions: BTreeSet::new(),
            looks: BTreeMap::new(),
            know_peers: BTreeSet::new(),
            see_peers: BTreeSet::new(),
            confirmed_unknowing: None,
            took_back: BTreeMap::new(),
            unseen_holder: BTreeSet::new(),
            unheard: BTreeSet::new(),
            publishes: true,
            publication_changes: 0,
            synced: end,
            highest: end,
            clock_ahead_us: 0,
            begun: Vec::new(),
            loses_reports: false,
            published_again: None,
            keeps_alive_ahead,
            has_proxy: !seed.is_multiple_of(2),
        }
    }

    /// Everything that has been written is on disk.
    pub(crate) fn commit(&mut self, changes: Vec<Change>, now_unix_us: i64) {
        let commit_lsn = self.end + changes.len() as u64 * CHANGE_BYTES;
        let end_lsn = commit_lsn + COMMIT_BYTES;
        let (xid, published) = (self.next_xid, self.publishes);
        let commit_unix_us = now_unix_us + self.clock_ahead_us;
        self.wal.push(Transaction { xid, commit_lsn, end_lsn, commit_unix_us, changes, published });
        self.next_xid += 1;
        self.end = end_lsn;
    }

    /// The transactions that Postgres sends from this position on.
    pub(crate) fn sent_from(&self, position: u64) -> &[Transaction] {
        &self.wal[self.wal.partition_point(|it| it.commit_lsn < position)..]
    }

    /// WAL that is no transaction of this database.
    pub(crate) fn write_other(&mut self, bytes: u64) {
        self.end += bytes & !7;
    }

    fn has_peer(&self, relay: usize) -> bool {
        self.sessions.iter().any(|it| *it != relay)
    }

    /// A relay looks at the slot.
    pub(crate) fn held(&mut self, relay: usize, now_unix_us: i64) -> Option<HeldSlot> {
        if self.has_peer(relay) {
            self.see_peer(relay, now_unix_us);
        } else {
            self.looks.entry(relay).or_insert((now_unix_us, None)).0 = now_unix_us;
        }
        self.slot_state(relay, now_unix_us)
    }

    /// The slot as a relay sees it that does not remember what it sees.
    pub(crate) fn slot_state(&self, relay: usize, now_unix_us: i64) -> Option<HeldSlot> {
        let slot = self.slot.as_ref()?;
        let holder = slot.active.map(|pid| {
            let walsender = self.walsenders.iter().find(|it| it.pid == pid);
            let peer = walsender.is_some_and(|it| it.relay != usize::MAX);
            let application = if peer { APPLICATION } else { "pg_recvlogical" }.to_owned();
            SlotHolder { pid, application, peer }
        });
        Some(HeldSlot {
            confirmed_flush: Lsn::from_wire(slot.confirmed),
            holder,
            decoded: Some(slot.decoded),
            run: ServerRun::new(self.started.clone(), Some(i64::from(self.runs_begun))),
            has_peer: self.has_peer(relay),
            at_unix_us: now_unix_us + self.clock_ahead_us,
        })
    }

    /// A session begins where the slot stands. None if the slot is in use or is not there.
    pub(crate) fn start_replication(
        &mut self,
        relay: usize,
        connection: Connection,
        now_us: u64,
    ) -> Option<i32> {
        let slot = self.slot.as_mut().filter(|slot| slot.active.is_none())?;
        let pid = self.next_pid;
        self.next_pid += 1;
        slot.active = Some(pid);
        let confirmed = slot.confirmed;
        self.begun.push((relay, confirmed));
        self.unheard.remove(&relay);
        self.unseen_holder.extend((0..RELAYS_MAX).filter(|it| *it != relay));
        self.unseen_holder.remove(&relay);
        connection.state().up_ends_behind = Some(confirmed).filter(|_| self.loses_reports);
        connection.state().has_proxy = self.has_proxy;
        let next = self.wal.partition_point(|it| it.commit_lsn < confirmed);
        self.walsenders.push(Walsender {
            pid,
            relay,
            next,
            sent_changes: None,
            sent: confirmed,
            has_described: false,
            connection,
            heard_us: now_us,
            kept_us: now_us,
        });
        Some(pid)
    }

    /// Encodes the next messages of a walsender; at most `messages` of them.
    pub(crate) fn send(&mut self, index: usize, messages: usize, now_us: u64) {
        let Some(sender) = self.walsenders.get_mut(index) else { return };
        let mut connection = sender.connection.state();
        for _ in 0..messages {
            if connection.backlog() > SEND_BUFFER_BYTES {
                return;
            }
            let Some(transaction) = self.wal.get(sender.next) else {
                sender.sent = sender.sent.max(self.end);
                return;
            };
            // Each message has the position of its change, that of Begin the first one.
            let begins = transaction.commit_lsn - transaction.changes.len() as u64 * CHANGE_BYTES;
            let mut at = begins + sender.sent_changes.unwrap_or_default() as u64 * CHANGE_BYTES;
            let Transaction { commit_lsn, end_lsn, xid, .. } = *transaction;
            let time = postgres_time(transaction.commit_unix_us);
            let to = &mut connection.under_way;
            match sender.sent_changes {
                None => {
                    sender.sent_changes = Some(0);
                    data(to, at, |it| it.u8(b'B').u64(commit_lsn).u64(time).u32(xid));
                }
                Some(_) if !sender.has_described && has_rows(transaction) => {
                    sender.has_described = true;
                    data(to, at, |it| relation(it, OTHER_TABLE, "others"));
                    data(to, at, |it| relation(it, TABLE, "outbox"));
                }
                Some(sent) if transaction.published && sent < transaction.changes.len() => {
                    sender.sent_changes = Some(sent + 1);
                    data(to, at, |it| row(it, &transaction.changes[sent]));
                }
                Some(_) => {
                    (sender.sent_changes, sender.sent) = (None, end_lsn);
                    sender.next += 1;
                    at = end_lsn;
                    if let Some(slot) = &mut self.slot {
                        slot.decoded += 1;
                    }
                    data(to, at, |it| it.u8(b'C').u8(0).u64(commit_lsn).u64(end_lsn).u64(time));
                }
            }
            sender.kept_us = now_us;
        }
    }

    /// Sends a keepalive, as far as the walsender is.
    pub(crate) fn keep_alive(&mut self, index: usize, wants_reply: bool, now_us: u64) {
        let Some(sender) = self.walsenders.get_mut(index) else { return };
        let open = sender.sent_changes.and_then(|_| self.wal.get(sender.next));
        let ahead = open.filter(|_| self.keeps_alive_ahead).map(|it| it.end_lsn);
        let (sent, reply) = (ahead.unwrap_or(sender.sent), u8::from(wants_reply));
        let to = &mut sender.connection.state().under_way;
        copy_data(to, |it| it.u8(b'k').u64(sent).u64(0).u8(reply));
        sender.kept_us = now_us;
    }

    /// A status update arrives.
    pub(crate) fn confirmed(&mut self, pid: i32, lsn: u64) {
        if self.slot.as_ref().is_some_and(|slot| slot.active == Some(pid)) {
            self.advance(lsn);
        }
    }

    /// A relay confirms a position over SQL.
    pub(crate) fn confirm(&mut self, relay: usize, lsn: u64) {
        let has_lost_trace = self.took_back.get(&relay) == Some(&true);
        let stood_at = self.slot.as_ref().map(|slot| slot.confirmed);
        if has_lost_trace && !self.knows_peer(relay) {
            self.confirmed_unknowing = self.confirmed_unknowing.or(stood_at);
        }
        self.advance(lsn);
    }

    /// The slot moves to this position, if it is not farther.
    pub(crate) fn advance(&mut self, lsn: u64) {
        if let Some(slot) = &mut self.slot {
            slot.confirmed = slot.confirmed.max(lsn);
            self.highest = self.highest.max(slot.confirmed);
        }
    }

    /// The newest position that was reported, whether it has arrived, or a crash has undone it.
    pub(crate) fn reported(&self) -> u64 {
        let under_way = self.walsenders.iter().flat_map(|it| it.connection.last_report()).max();
        self.highest.max(under_way.unwrap_or_default())
    }

    /// The walsender ends, and the slot is free.
    pub(crate) fn end_walsender(&mut self, pid: i32) {
        if let Some(index) = self.walsenders.iter().position(|it| it.pid == pid) {
            self.walsenders.swap_remove(index);
        }
        if let Some(slot) = self.slot.as_mut().filter(|slot| slot.active == Some(pid)) {
            slot.active = None;
        }
    }

    pub(crate) fn checkpoint(&mut self) {
        if let Some(slot) = &mut self.slot {
            slot.on_disk = slot.confirmed;
        }
    }

    /// Takes the table out of the publication, or puts it back.
    pub(crate) fn set_publishes(&mut self, publishes: bool) {
        self.publishes = publishes;
        self.publication_changes += u32::from(publishes);
        self.published_again = Some(self.end).filter(|_| publishes);
    }

    /// The slot stood still when the table was put into the publication, or shortly before.
    pub(crate) fn is_publication_young(&self, decoded: Option<i64>) -> bool {
        let slot = self.slot.as_ref().filter(|it| decoded > Some(0) && it.confirmed < self.end);
        slot.zip(self.published_again).is_some_and(|(slot, again)| slot.confirmed < again)
    }

    /// Drops the slot and makes it again, if nobody reads it.
    pub(crate) fn recreate_slot(&mut self) -> bool {
        let end = self.end;
        let slot = self.slot.as_mut().filter(|slot| slot.active.is_none());
        let Some(slot) = slot else { return false };
        *slot = Slot { confirmed: end, on_disk: end, active: None, decoded: 0 };
        true
    }

    pub(crate) fn sync_standby(&mut self) {
        self.synced = self.slot.as_ref().map_or(self.synced, |slot| slot.confirmed);
    }

    /// Crashes the server. No committed transaction is lost; positions of the slot that were not
    /// written are.
    pub(crate) fn crash(&mut self) {
        self.runs = false;
        self.postmaster_lives = self.next_xid.is_multiple_of(2);
        self.drop_sessions();
        self.set_slot_back();
    }

    /// The slot is as it was written to disk last, and not behind the end of the WAL.
    fn set_slot_back(&mut self) {
        let Some(slot) = &mut self.slot else { return };
        let back = slot.on_disk.min(self.end);
        let has_lost = slot.confirmed > back;
        self.took_back.values_mut().for_each(|it| *it |= has_lost);
        (slot.confirmed, slot.on_disk, slot.decoded) = (back, back, 0);
        self.synced = self.synced.min(back);
    }

    pub(crate) fn start_again(&mut self) {
        (self.runs_begun, self.runs) = (self.runs_begun + 1, true);
        if !std::mem::take(&mut self.postmaster_lives) {
            self.started = started(self.runs_begun);
        }
    }

    /// The standby has all of the WAL, and the slot as it was synchronized last.
    pub(crate) fn fail_over(&mut self) {
        self.drop_sessions();
        self.postmaster_lives = false;
        (self.timeline, self.runs) = (self.timeline + 1, false);
        let synced = self.synced;
        if let Some(slot) = &mut self.slot {
            (slot.confirmed, slot.on_disk, slot.decoded) = (synced, synced, 0);
        }
    }

    /// The data folder is put back to the state before the last `transactions`, with the slot no
    /// farther than that. A standby that is ahead of it cannot follow, and is made anew.
    pub(crate) fn restore(&mut self, transactions: usize) -> Vec<Transaction> {
        let gone = self.cut_wal(transactions);
        self.set_slot_back();
        gone
    }

    /// The standby has not got the last `transactions`.
    pub(crate) fn fail_over_behind(&mut self, transactions: usize) -> Vec<Transaction> {
        let gone = self.cut_wal(transactions);
        self.timeline += 1;
        let synced = self.synced;
        if let Some(slot) = &mut self.slot {
            (slot.confirmed, slot.on_disk, slot.decoded) = (synced, synced, 0);
        }
        gone
    }

    /// Postgres stops, and its WAL ends before the last `transactions`.
    fn cut_wal(&mut self, transactions: usize) -> Vec<Transaction> {
        self.drop_sessions();
        (self.runs, self.postmaster_lives) = (false, false);
        let kept = self.wal.len().saturating_sub(transactions);
        let gone = self.wal.split_off(kept);
        if let Some(first) = gone.first() {
            self.end = first.commit_lsn - first.changes.len() as u64 * CHANGE_BYTES;
            self.next_xid = first.xid;
        }
        let end = self.end;
        (self.synced, self.highest) = (self.synced.min(end), self.highest.min(end));
        gone
    }

    fn drop_sessions(&mut self) {
        self.sessions.clear();
        for mut sender in self.walsenders.drain(..) {
            sender.connection.end();
        }
        if let Some(slot) = &mut self.slot {
            slot.active = None;
        }
    }
}

fn started(run: u32) -> ServerStart {
    ServerStart::from(format!("start {run}").as_str())
}

fn has_rows(transaction: &Transaction) -> bool {
    transaction.published && !transaction.changes.is_empty()
}

fn postgres_time(unix_us: i64) -> u64 {
    const EPOCH_US: i64 = 946_684_800_000_000;
    (unix_us - EPOCH_US) as u64
}

/// Writes a CopyData message.
fn copy_data(to: &mut Bytes, body: impl FnOnce(Encoder) -> Encoder) {
    to.append(|bytes| {
        let start = bytes.len() + 1;
        let Encoder(mut bytes) = body(Encoder(bytes).u8(b'd').u32(0));
        let length = (bytes.len() - start) as u32;
        bytes[start..start + 4].copy_from_slice(&length.to_be_bytes());
        bytes
    });
}

fn data(to: &mut Bytes, wal_end: u64, body: impl FnOnce(Encoder) -> Encoder) {
    copy_data(to, |it| body(it.u8(b'w').u64(wal_end).u64(wal_end).u64(0)));
}

pub(crate) const COLUMNS: [(&str, u32); 5] =
    [("id", 25), ("aggregatetype", 1043), ("aggregateid", 1043), ("type", 25), ("payload", 17)];

fn relation(to: Encoder, oid: u32, name: &str) -> Encoder {
    let head = to.u8(b'R').u32(oid).cstr("public").cstr(name).u8(b'd');
    let columns: &[(&str, u32)] = if oid == TABLE { &COLUMNS } else { &COLUMNS[..1] };
    let head = head.u16(columns.len() as u16);
    let column =
        |it: Encoder, (name, oid): &(&str, u32)| it.u8(0).cstr(name).u32(*oid).u32(u32::MAX);
    columns.iter().fold(head, column)
}

fn row(to: Encoder, change: &Change) -> Encoder {
    let insert = |table, columns| to.u8(b'I').u32(table).u8(b'N').u16(columns);
    match change {
        Change::Other => text(insert(OTHER_TABLE, 1), b"1"),
        Change::Event(event) => {
            let row = id(insert(TABLE, COLUMNS.len() as u16), event.number);
            let row = text(row, TOPICS[usize::from(event.topic)].as_bytes());
            let row = match event.key {
                Some(key) => text(row, KEYS[usize::from(key)]),
                None => row.u8(b'n'),
            };
            let payload = PAYLOADS[usize::from(event.poison)];
            text(row, b"Changed").u8(b'b').u32(payload.len() as u32).bytes(payload)
        }
    }
}

/// The id by which consumers know an event.
fn id(row: Encoder, number: u64) -> Encoder {
    let mut digits = [b'0'; 21];
    let (mut first, mut left) = (digits.len(), number);
    while left > 0 || first == digits.len() {
        first -= 1;
        digits[first] = b'0' + (left % 10) as u8;
        left /= 10;
    }
    first -= 1;
    digits[first] = b'e';
    text(row, &digits[first..])
}

fn text(row: Encoder, value: &[u8]) -> Encoder {
    row.u8(b't').u32(value.len() as u32).bytes(value)
}

/// The object ids of the tables, ascending.
pub(crate) fn tables() -> Vec<u32> {
    vec![TABLE, OTHER_TABLE]
}

/// Object id, schema, name, and place in the settings.
pub(crate) fn outboxes() -> Vec<(u32, String, String, usize)> {
    vec![(TABLE, "public".to_owned(), "outbox".to_owned(), 0)]
}
