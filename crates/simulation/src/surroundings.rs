//! The ports of a simulated process: its wire, its database, its state file, and what it is counted by.

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use walrelay_core::base::error::{Exit, Fault};
use walrelay_core::base::lsn::Lsn;
use walrelay_core::base::readiness::Readiness;
use walrelay_core::dead_letter::record::StopRecord;
use walrelay_core::health::{Pass, Phase};
use walrelay_core::metrics::{Ignored, KnownFrom, Stage};
use walrelay_core::relay::control::{
    ConfirmedPosition, SessionNews, SessionRequest, Walsender, WalsenderAnswer,
};
use walrelay_core::relay::ports::{
    CatalogLink, Counter, Database, FileBytes, Gauge, Meters, PassMeter, Recorder, SessionLink,
    StateBytes, StateFileSource, WalsenderLink,
};
use walrelay_core::relay::state_file::memory::{Memory, Remembered};
use walrelay_core::relay::stops::{Present, StopSurroundings};
use walrelay_core::relay::testing::{LinkEnd, MemoryFile, link};
use walrelay_core::source::catalog::Catalog;
use walrelay_core::source::progress;
use walrelay_core::source::stream::{SentBytes, Wire};

use crate::life::Life;
use crate::network::Connection;
use crate::postgres::Postgres;
use crate::publication;
use walrelay_core::base::lock::locked;

pub(crate) type SharedPostgres = Arc<Mutex<Postgres>>;

pub(crate) struct SimulatedWire {
    pub(crate) life: Arc<Life>,
    pub(crate) connection: Connection,
}

impl Wire for SimulatedWire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.connection.state();
        if state.is_reset {
            return Err(ErrorKind::ConnectionReset.into());
        }
        if state.arrived.is_empty() {
            return if state.closed_by_server { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
        }
        Ok(state.arrived.read(buffer))
    }

    fn has_buffered(&self) -> bool {
        false
    }

    fn is_closed(&self) -> bool {
        let state = self.connection.state();
        state.is_reset || state.closed_by_server
    }

    fn report(&mut self, flushed: Lsn, _now_unix_us: i64, reply_requested: bool) -> io::Result<()> {
        if !self.life.has_effect() {
            return Ok(());
        }
        let mut state = self.connection.state();
        if state.is_reset {
            return Err(ErrorKind::BrokenPipe.into());
        }
        state.updates_sent += 1;
        if !state.up_is_cut && !state.ends_up {
            state.updates.push_back((flushed.to_wire(), reply_requested));
            let is_behind = state.up_ends_behind.is_some_and(|it| flushed.to_wire() > it);
            state.ends_up = is_behind && progress::is_trace(flushed);
        }
        Ok(())
    }

    fn sent(&self) -> SentBytes {
        let state = self.connection.state();
        SentBytes { written: state.updates_sent, acknowledged: state.updates_acknowledged() }
    }

    fn send_copy_done(&mut self) -> io::Result<()> {
        if self.life.has_effect() {
            self.connection.state().copy_done = true;
        }
        Ok(())
    }

    fn wait(&mut self, timeout: Duration, _other: Option<Readiness<'_>>) -> io::Result<()> {
        self.life.wait(timeout);
        Ok(())
    }

    fn pause(&mut self, length: Duration, _other: Option<Readiness<'_>>) {
        self.life.wait(length);
    }
}

impl Drop for SimulatedWire {
    /// The kernel closes the socket, also of a process that was killed.
    fn drop(&mut self) {
        let mut state = self.connection.state();
        state.closed_by_relay = true;
        state.arrived.clear();
    }
}

/// The other ends of the links of one process.
pub(crate) struct Ends {
    pub(crate) sessions: LinkEnd<SessionRequest, SessionNews>,
    pub(crate) walsenders: Vec<LinkEnd<Walsender, WalsenderAnswer>>,
    pub(crate) catalogs: Vec<LinkEnd<(), Catalog>>,
}

pub(crate) struct SimulatedDatabase {
    pub(crate) relay: usize,
    pub(crate) life: Arc<Life>,
    pub(crate) postgres: SharedPostgres,
    pub(crate) ends: Arc<Mutex<Option<Ends>>>,
}

impl Database for SimulatedDatabase {
    fn sessions(&self) -> SessionLink {
        let (link, sessions) = link();
        let mut ends = locked(&self.ends);
        let walsenders = ends.take().map_or_else(Vec::new, |ends| ends.walsenders);
        *ends = Some(Ends { sessions, walsenders, catalogs: Vec::new() });
        link
    }

    fn walsender(&self) -> WalsenderLink {
        let (walsender, end) = link();
        let mut ends = locked(&self.ends);
        let ends = ends.get_or_insert_with(|| Ends {
            sessions: link().1,
            walsenders: Vec::new(),
            catalogs: Vec::new(),
        });
        ends.walsenders.push(end);
        walsender
    }

    fn read_catalog(&self) -> CatalogLink {
        let (catalog, end) = link();
        if let Some(ends) = &mut *locked(&self.ends) {
            ends.catalogs.push(end);
        }
        catalog
    }

    fn confirm(&self, position: ConfirmedPosition) -> Result<(), String> {
        if !self.life.has_effect() {
            return Err("the process is dead".to_owned());
        }
        let mut postgres = locked(&self.postgres);
        if !postgres.runs {
            return Err("postgres does not run".to_owned());
        }
        let slot =
            postgres.slot_state(self.relay, self.life.world.unix_us()).ok_or("there is no slot")?;
        if let Some(why) = position.refusal(&slot) {
            return Err(why.to_owned());
        }
        let own = position.own_pid;
        let active = postgres.slot.as_ref().and_then(|slot| slot.active);
        match active {
            Some(pid) if pid != own => return Err("another process reads the slot".to_owned()),
            Some(_) => postgres.end_walsender(own),
            None => {}
        }
        postgres.confirm(self.relay, position.lsn.to_wire());
        Ok(())
    }
}

/// A state file whose writer may die between any two writes.
#[derive(Debug)]
pub(crate) struct MortalFile {
    pub(crate) life: Arc<Life>,
    pub(crate) file: MemoryFile,
}

impl StateFileSource for MortalFile {
    fn hold(self: Box<Self>) -> io::Result<Arc<dyn StateBytes>> {
        let MortalFile { life, file } = *self;
        let held = Box::new(file).hold()?;
        Ok(Arc::new(MortalBytes { life, held }))
    }

    fn note(&self, word: usize, value: u64) -> io::Result<()> {
        if self.life.has_effect() { self.file.note(word, value) } else { Ok(()) }
    }

    fn boot(&self) -> Option<u64> {
        self.file.boot()
    }
}

#[derive(Debug)]
struct MortalBytes {
    life: Arc<Life>,
    held: Arc<dyn StateBytes>,
}

impl FileBytes for MortalBytes {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.held.read_at(bytes, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        if self.life.has_effect() { self.held.write_at(bytes, at) } else { Ok(()) }
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl StateBytes for MortalBytes {
    fn load(&self, word: usize) -> u64 {
        self.held.load(word)
    }

    fn store(&self, word: usize, value: u64) {
        if self.life.has_effect() {
            self.held.store(word, value);
        }
    }
}

/// The state file of a machine for one process, which may die between any two writes.
pub(crate) fn mortal_bytes(file: &MemoryFile, life: &Arc<Life>) -> Arc<dyn FileBytes> {
    Arc::new(MortalBytes { life: Arc::clone(life), held: file.bytes() })
}

/// Lets `change` have what the state file of a machine remembers, while no process writes it.
pub(crate) fn remembered<T>(file: &MemoryFile, change: impl FnOnce(&mut Remembered) -> T) -> T {
    let (mut memory, mut remembered) = Memory::read(file.bytes(), PathBuf::new());
    let before = remembered.clone();
    let outcome = change(&mut remembered);
    if remembered != before {
        memory.write(&remembered).unwrap_or_else(|error| panic!("the state file: {error}"));
    }
    outcome
}

/// Postgres as an acknowledgement of a stop is compared with it. No stop is written to the dead-letter
/// topic.
pub(crate) struct SimulatedStopSurroundings(pub(crate) SharedPostgres);

impl StopSurroundings for SimulatedStopSurroundings {
    fn has_topic(&self) -> bool {
        true
    }

    fn append(&self, _record: &StopRecord) -> Result<(), Fault> {
        let what = "the dead-letter topic takes no record of a stop";
        Err(Fault::new(Exit::Sink, "stop.unwritten", what, "", ""))
    }

    fn present(&self) -> Result<Present, Fault> {
        publication::present(&locked(&self.0))
    }
}

/// The facts of a process, as `/status` shows them.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) pass: Pass,
    pub(crate) server_lsn: Lsn,
}

#[derive(Debug)]
pub(crate) struct FactsOf(pub Arc<Mutex<Shown>>);

impl Recorder for FactsOf {
    fn pass(&mut self, pass: &Pass, _now: Instant) {
        locked(&self.0).pass = *pass;
    }

    fn note(&mut self, _sentence: &str) {}

    fn server_lsn(&self) -> Lsn {
        locked(&self.0).server_lsn
    }
}

impl Shown {
    pub(crate) fn new() -> Arc<Mutex<Shown>> {
        let pass = Pass { phase: Phase::Starting, ..Pass::default() };
        Arc::new(Mutex::new(Shown { pass, server_lsn: Lsn::ZERO }))
    }
}

/// How often each of the interesting things has happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub known_from_file: u64,
    pub known_from_topic: u64,
    pub dead_letters: u64,
    pub retries: u64,
    pub exhausted: u64,
}

#[derive(Debug)]
pub(crate) struct MetersOf(pub Arc<Mutex<Counts>>);

impl Meters for MetersOf {
    fn count(&self, counter: Counter, by: u64) {
        let mut counts = locked(&self.0);
        match counter {
            Counter::DeadLettered => counts.dead_letters += by,
            Counter::RetryExhausted => counts.exhausted += by,
            _ => {}
        }
    }

    fn set(&self, _gauge: Gauge, _value: u64) {}
}

impl PassMeter for MetersOf {
    fn published(&mut self, _commit_unix_us: i64, _now_unix_us: i64) {}

    fn dead_lettered(&mut self) {}

    fn known(&mut self, from: KnownFrom) {
        let mut counts = locked(&self.0);
        match from {
            KnownFrom::StateFile => counts.known_from_file += 1,
            KnownFrom::Topic => counts.known_from_topic += 1,
        }
    }

    fn retried(&mut self) {
        locked(&self.0).retries += 1;
    }

    fn ignored(&mut self, _why: Ignored) {}

    fn stage(&mut self, _stage: Stage, _spent: Duration) {}

    fn flush(&mut self) {}
}
