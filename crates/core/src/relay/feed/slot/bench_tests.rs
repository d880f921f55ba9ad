//! The loop over the feed of a slot: Postgres and the broker in memory, and a clock that goes on only
//! while somebody waits.

use std::io::{self, ErrorKind};
use std::sync::{Mutex, MutexGuard};

use super::*;
use crate::base::readiness::Readiness;
use crate::dead_letter::tail_event::ReadRequests;
use crate::outbox::settings::{Columns, Messages, Route};
use crate::pgoutput::encoder::Encoder;
use crate::relay::Relay;
use crate::relay::control::{ConfirmedPosition, Walsender, WalsenderAnswer};
use crate::relay::ports::WalsenderLink;
use crate::relay::state_file::StateFile;
use crate::relay::stops::tests::Site;
use crate::relay::surroundings::{Broker, Facts, Ticks, parts};
use crate::relay::testing::{LinkEnd, link, walsender};
use crate::sink::SinkReport;
use crate::source::catalog::Catalog;
use crate::source::server::{ServerRun, ServerStart};
use crate::source::slot_state::{HeldSlot, SlotHolder};
use crate::source::stream::{SentBytes, Wire};
use crate::source::walsender::Activity;
use crate::testing::lsn;

/// A session as the server has it.
#[derive(Default)]
pub(super) struct Socket {
    /// The bytes that the relay has not read.
    pub(super) sent: Vec<u8>,
    /// The positions that were reported.
    pub(super) reports: Vec<u64>,
    pub(super) is_closed: bool,
    pub(super) is_broken: bool,
    pub(super) answers_end: bool,
    pub(super) waits: u32,
}

struct Connected(Arc<Mutex<Socket>>, Arc<Ticks>);

impl Connected {
    fn socket(&self) -> io::Result<MutexGuard<'_, Socket>> {
        let socket = self.0.lock().unwrap();
        if socket.is_broken { Err(ErrorKind::BrokenPipe.into()) } else { Ok(socket) }
    }
}

impl Wire for Connected {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut socket = self.socket()?;
        let length = buffer.len().min(socket.sent.len());
        if length == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        buffer[..length].copy_from_slice(&socket.sent[..length]);
        socket.sent.drain(..length);
        Ok(length)
    }

    fn has_buffered(&self) -> bool {
        false
    }

    fn is_closed(&self) -> bool {
        self.0.lock().unwrap().is_closed
    }

    fn report(&mut self, flushed: Lsn, _: i64, _: bool) -> io::Result<()> {
        self.socket()?.reports.push(flushed.to_wire());
        Ok(())
    }

    fn sent(&self) -> SentBytes {
        let written = self.0.lock().unwrap().reports.len() as u64;
        SentBytes { written, acknowledged: written }
    }

    fn send_copy_done(&mut self) -> io::Result<()> {
        let mut socket = self.socket()?;
        if socket.answers_end {
            socket.sent.extend(packet(b'c', b""));
        }
        Ok(())
    }

    fn wait(&mut self, timeout: Duration, _: Option<Readiness<'_>>) -> io::Result<()> {
        self.1.sleep(timeout);
        self.socket()?.waits += 1;
        Ok(())
    }

    fn pause(&mut self, length: Duration, _: Option<Readiness<'_>>) {
        self.1.sleep(length);
    }
}

/// The other ends of the links, and what was confirmed over SQL.
#[derive(Default)]
pub(super) struct Ends {
    pub(super) sessions: Option<LinkEnd<SessionRequest, SessionNews>>,
    /// The links of the stall detector, of the lease, and of the trace.
    pub(super) walsenders: Vec<LinkEnd<Walsender, WalsenderAnswer>>,
    pub(super) catalogs: Vec<LinkEnd<(), Catalog>>,
    pub(super) confirmed: Vec<u64>,
}

impl Database for Arc<Mutex<Ends>> {
    fn sessions(&self) -> SessionLink {
        let (near, far) = link();
        self.lock().unwrap().sessions = Some(far);
        near
    }

    fn walsender(&self) -> WalsenderLink {
        let (near, far) = link();
        self.lock().unwrap().walsenders.push(far);
        near
    }

    fn read_catalog(&self) -> CatalogLink {
        let (near, far) = link();
        self.lock().unwrap().catalogs.push(far);
        near
    }

    fn confirm(&self, position: ConfirmedPosition) -> Result<(), String> {
        self.lock().unwrap().confirmed.push(position.lsn.to_wire());
        Ok(())
    }
}

fn packet(tag: u8, body: &[u8]) -> Vec<u8> {
    Encoder::tag(tag).u32(body.len() as u32 + 4).bytes(body).0
}

fn wal(message: &Encoder) -> Vec<u8> {
    packet(b'd', &Encoder::tag(b'w').u64(0).u64(0).u64(0).bytes(&message.0).0)
}

pub(super) fn keepalive(wal_end: u64, requests_reply: bool) -> Vec<u8> {
    packet(b'd', &Encoder::tag(b'k').u64(wal_end).u64(0).u8(requests_reply.into()).0)
}

pub(super) fn server_error(sqlstate: &str) -> Vec<u8> {
    packet(b'E', format!("SERROR\0C{sqlstate}\0Mit is one\0\0").as_bytes())
}

pub(super) fn begin(at: u64) -> Vec<u8> {
    wal(&Encoder::tag(b'B').u64(at).u64(0).u32(at as u32))
}

pub(super) fn commit(at: u64) -> Vec<u8> {
    wal(&Encoder::tag(b'C').u8(0).u64(at).u64(at + 40).u64(0))
}

pub(super) fn event(id: &str) -> Vec<u8> {
    let content =
        format!(r#"{{"id": "{id}", "aggregatetype": "t", "aggregateid": "k", "payload": 1}}"#);
    let head = Encoder::tag(b'M').u8(1).u64(0).cstr("outbox").u32(content.len() as u32);
    wal(&head.bytes(content.as_bytes()))
}

/// A table with the columns of an outbox, and the type of one of them.
pub(super) fn table(name: &str, type_oid: u32) -> Vec<u8> {
    let columns = ["id", "aggregatetype", "aggregateid", "type", "payload"];
    let table = Encoder::tag(b'R').u32(7).cstr("public").cstr(name).u8(b'd').u16(5);
    let type_of = |column: &str| if column == "type" { type_oid } else { 25 };
    wal(&columns
        .iter()
        .fold(table, |table, column| table.u8(0).cstr(column).u32(type_of(column)).u32(u32::MAX)))
}

/// A transaction of events with these ids.
pub(super) fn transaction(at: u64, ids: &[&str]) -> Vec<u8> {
    let events: Vec<u8> = ids.iter().flat_map(|id| event(id)).collect();
    [begin(at), events, commit(at)].concat()
}

pub(super) fn ms(number: u64) -> Duration {
    Duration::from_millis(number)
}

pub(super) struct Bench {
    pub(super) relay: Relay<SlotFeed>,
    pub(super) clock: Arc<Ticks>,
    pub(super) letters: ReadRequests,
    sightings: Arc<Sightings>,
    pub(super) flags: Arc<StopFlags>,
    facts: Arc<Mutex<Facts>>,
    broker: Arc<Mutex<Broker>>,
    ends: Arc<Mutex<Ends>>,
    /// The socket of the last session.
    socket: Arc<Mutex<Socket>>,
    pid: i32,
}

impl Bench {
    pub(super) fn with(state_file: StateFile, stops: &Arc<StandingStops>) -> Bench {
        let clock = Ticks::since(Instant::now());
        let (facts, broker) = (Arc::<Mutex<Facts>>::default(), Arc::<Mutex<Broker>>::default());
        let (ends, columns, route) =
            (Arc::<Mutex<Ends>>::default(), Columns::default(), Route::default());
        let mut parts = parts(&clock, &facts, Arc::clone(&broker));
        parts.source.messages = Some(Messages { prefix: "outbox".to_owned(), columns, route });
        parts.stops = Arc::clone(stops);
        parts.state_file = state_file;
        let (letters, flags) = (parts.tail_requests.clone(), Arc::clone(&parts.flags));
        let (database, sightings) = (Box::new(Arc::clone(&ends)), Arc::<Sightings>::default());
        let feed =
            SlotFeed::new(database, Arc::clone(&sightings), Signature::drawn(0), &parts).unwrap();
        let relay = Relay::new(parts, feed).unwrap();
        let socket = Arc::default();
        Bench { relay, clock, letters, sightings, flags, facts, broker, ends, socket, pid: 0 }
    }

    pub(super) fn of(state_file: StateFile) -> Bench {
        Bench::with(state_file, &Arc::new(Site::new().stops(false, false, true)))
    }

    /// A relay that has taken the slot and published event a, which is not confirmed.
    pub(super) fn streaming() -> Bench {
        let mut bench = Bench::of(StateFile::default());
        bench.stream();
        bench
    }

    pub(super) fn stream(&mut self) {
        let opened = self.session(1024);
        self.open(opened);
        self.read_behind(1025, 2048, &["a"]);
        assert_eq!(self.broker().taken, ["a"]);
    }

    pub(super) fn broker(&self) -> MutexGuard<'_, Broker> {
        self.broker.lock().unwrap()
    }

    pub(super) fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap()
    }

    pub(super) fn socket(&self) -> MutexGuard<'_, Socket> {
        self.socket.lock().unwrap()
    }

    pub(super) fn ends(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().unwrap()
    }

    /// The session that was requested.
    pub(super) fn requested(&self) -> Option<SessionRequest> {
        self.ends().sessions.as_ref().unwrap().requests.try_recv().ok()
    }

    /// A session of system 7 on timeline 1, whose slot stands at a position.
    pub(super) fn session(&mut self, slot_confirmed: u64) -> OpenedSession {
        self.pid += 1;
        self.socket = Arc::default();
        let now = self.clock.instant();
        let progress = &self.relay.feed.replication.progress;
        OpenedSession {
            wire: Box::new(Connected(Arc::clone(&self.socket), Arc::clone(&self.clock))),
            walsender: walsender(self.pid),
            looked_unix_us: i64::MAX,
            wal_end: lsn(slot_confirmed).max(progress.seen()).max(progress.reported()),
            wal_sender_timeout: Some(Duration::from_secs(8)),
            heard_at: now,
            opened_at: now,
            ..session::tests::opened(slot_confirmed)
        }
    }

    pub(super) fn answer(&self, news: SessionNews) {
        self.requested();
        self.ends().sessions.as_ref().unwrap().answers.send(news).unwrap();
    }

    pub(super) fn open(&mut self, opened: OpenedSession) {
        self.answer(SessionNews::Opened(Box::new(opened)));
        self.round();
    }

    /// The stream breaks, as shows where it is read or closed, and another session is requested.
    pub(super) fn lose(&mut self) {
        {
            let is_read = self.relay.feed.hold.is_none();
            let mut socket = self.socket();
            (socket.is_broken, socket.is_closed) = (true, !is_read);
        }
        self.round();
        self.round();
    }

    pub(super) fn send(&self, bytes: &[u8]) {
        self.socket().sent.extend(bytes);
    }

    /// A transaction comes, before which the slot must show this trace; nothing is published before.
    pub(super) fn read_behind(&mut self, trace: u64, at: u64, ids: &[&str]) {
        self.send(&transaction(at, ids));
        let taken = self.broker().taken.len();
        for _ in 0..2 {
            assert_eq!(self.round(), Some(IntakeHold::TraceAwaited));
        }
        assert_eq!(self.socket().reports.last(), Some(&trace));
        assert_eq!(self.broker().taken.len(), taken);
        self.tell(2, Activity::Waiting, trace);
        self.round();
    }

    /// Answers one of the questions about the walsender.
    pub(super) fn tell(&self, link: usize, activity: Activity, confirmed: u64) {
        let (pid, confirmed) = (self.pid, lsn(confirmed));
        let answer = WalsenderAnswer { pid, activity: Ok(activity), confirmed };
        self.ends().walsenders[link].answers.send(answer).unwrap();
    }

    /// The slot is looked at, in a run of the server with this number.
    pub(super) fn look(&self, run: i64, has_peer: bool) {
        let holder = Some(SlotHolder { pid: self.pid, ..SlotHolder::default() });
        let slot = HeldSlot { holder, run: server_run(run), has_peer, ..HeldSlot::default() };
        self.sightings.opened(walsender(self.pid));
        self.sightings.look(&slot, self.clock.instant());
    }

    pub(super) fn confirm(&mut self, event: Sequence) {
        self.broker().reports.push(SinkReport::Confirmed(event));
        self.round();
    }

    /// One pass of the loop, a while after the last one. Why it takes nothing in.
    pub(super) fn round(&mut self) -> Option<IntakeHold> {
        self.clock.sleep(ms(20));
        self.relay.pass().unwrap();
        self.relay.feed.hold
    }

    pub(super) fn finish(&mut self, fault: Option<&Fault>) {
        let Relay { feed, down, .. } = &mut self.relay;
        feed.finish(down, fault);
    }

    pub(super) fn is_open(&self) -> bool {
        self.relay.feed.is_connected()
    }

    pub(super) fn status(&self) -> Pass {
        self.relay.feed.status(self.clock.instant())
    }

    /// How long nothing has been heard on the stream.
    pub(super) fn unheard_for(&self) -> Option<Duration> {
        let Connection::Open(stream) = &self.relay.feed.connection else { return None };
        Some(self.clock.instant() - stream.last_received())
    }
}

pub(super) fn server_run(number: i64) -> ServerRun {
    ServerRun::new(ServerStart::default(), Some(number))
}
