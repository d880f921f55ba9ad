//! One relay: the loop of a process, and what its other threads do for it.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use walrelay_core::base::error::{Exit, Fault};
use walrelay_core::base::lsn::Lsn;
use walrelay_core::base::random::Random;
use walrelay_core::base::template::Template;
use walrelay_core::dead_letter::tail_event::ReadRequests;
use walrelay_core::dead_letter::writer::{DeadLetterSettings, DeadLetterWriter, SystemId};
use walrelay_core::delivery::settings::{DeliverySettings, OnDeadLetter};
use walrelay_core::doctor::fingerprint::{Comparison, KnownPublication};
use walrelay_core::outbox::settings::{OutboxTable, Route};
use walrelay_core::relay::control::{
    OpenedSession, SessionNews, SessionRequest, StopFlags, SystemTimeline, Walsender,
    WalsenderAnswer,
};
use walrelay_core::relay::feed::slot::SlotFeed;
use walrelay_core::relay::ports::{Clock as _, Meters};
use walrelay_core::relay::read_back::{FoundRecords, ReadRequest};
use walrelay_core::relay::session_findings::SessionFindings;
use walrelay_core::relay::state_file::StateFile;
use walrelay_core::relay::state_file::memory::Memory;
use walrelay_core::relay::stops::{StandingStops, StopParts};
use walrelay_core::relay::testing::{LinkEnd, MemoryFile, link};
use walrelay_core::relay::{Parts, ReadBack, Relay};
use walrelay_core::sink::Sink;
use walrelay_core::sink::kafka::Learned;
use walrelay_core::source::catalog::Catalog;
use walrelay_core::source::progress::{Signature, is_trace};
use walrelay_core::source::settings::{ConnInfo, PostgresHost, SourceSettings};
use walrelay_core::source::sightings::Sightings;
use walrelay_core::source::walsender::Activity;
use walrelay_core::trace::event_spans::EventSpans;

use crate::broker::{DirectSink, SharedBroker};
use crate::kafka;
use crate::life::{Life, WorldClock};
use crate::network::Connection;
use crate::options::SinkKind;
use crate::postgres::{self, Postgres};
use crate::publication;
use crate::rabbitmq;
use crate::scenarios::Reading;
use crate::surroundings::{
    Counts, Ends, FactsOf, MetersOf, MortalFile, SharedPostgres, Shown, SimulatedDatabase,
    SimulatedStopSurroundings, SimulatedWire, mortal_bytes,
};
use crate::tail::{self, Tail};
use walrelay_core::base::lock::locked;

pub(crate) const SLOT: &str = "relay";
/// Between two looks at a slot that is in use.
const LOOK_INTERVAL_MIN_US: u64 = 10_000;
const LOOK_INTERVAL_MAX_US: u64 = 100_000;
/// A reader that is late reads at one of so many opportunities.
const LATE_READER: u64 = 32;
pub(crate) const ATTEMPTS_MAX: u32 = 3;
const WAL_SENDER_TIMEOUT: Duration = Duration::from_secs(10);

/// The belongings of a relay beyond the life of its processes.
pub(crate) struct Machine {
    pub(crate) index: usize,
    pub(crate) state_file: Option<MemoryFile>,
    pub(crate) policy: OnDeadLetter,
    pub(crate) window: usize,
    pub(crate) sink: SinkKind,
    /// Published events can be read without taking them away.
    pub(crate) reads_topics: bool,
    /// How many dead letters it may write within how long, if not any number.
    pub(crate) burst: Option<(usize, Duration)>,
    pub(crate) reads_letters_late: bool,
}

type TopicEnd = LinkEnd<ReadRequest, Result<FoundRecords, String>>;

pub(crate) struct Process {
    pub(crate) life: Arc<Life>,
    relay: Relay<SlotFeed>,
    pub(crate) stops: Arc<StandingStops>,
    ends: Arc<Mutex<Option<Ends>>>,
    topics: Arc<Mutex<Option<TopicEnd>>>,
    flags: Arc<StopFlags>,
    pub(crate) shown: Arc<Mutex<Shown>>,
    opener: Opener,
    tail: Tail,
    /// It is not stepped before.
    pub(crate) wakes_us: u64,
    /// The session that it has, as its slot watch knows it.
    pub(crate) sightings: Arc<Sightings>,
    /// So many steps in a row it has waited for a session behind that of a peer.
    pub(crate) steps_behind: u32,
    /// The fault that the slot watch has found, with which it ends.
    found: Option<Fault>,
}

/// How a process has ended.
pub(crate) type Ended = Result<(), Fault>;

/// The surroundings in which a process is made.
pub(crate) struct Site<'a> {
    pub(crate) clock: &'a WorldClock,
    pub(crate) postgres: &'a SharedPostgres,
    pub(crate) broker: &'a SharedBroker,
    pub(crate) counts: &'a Arc<Mutex<Counts>>,
    /// It reaches no Postgres.
    pub(crate) is_cut_off: bool,
}

/// The settings that the relays of all schedules have in common.
pub(crate) struct Settings {
    pub(crate) source: Arc<SourceSettings>,
    delivery: DeliverySettings,
    dead_letters: DeadLetterSettings,
}

pub(crate) fn settings(sink: SinkKind) -> &'static Settings {
    static SETTINGS: [OnceLock<Settings>; 2] = [OnceLock::new(), OnceLock::new()];
    let has_exchange = sink == SinkKind::Rabbitmq;
    SETTINGS[usize::from(has_exchange)].get_or_init(|| Settings {
        source: Arc::new(source_settings(has_exchange)),
        delivery: delivery_settings(),
        dead_letters: DeadLetterSettings { burst_max: 10_000, ..DeadLetterSettings::default() },
    })
}

fn source_settings(has_exchange: bool) -> SourceSettings {
    let topic = Template::parse("${aggregatetype}").unwrap_or_else(|_| Template::column("id"));
    let exchange = has_exchange.then(|| Template::parse(rabbitmq::EXCHANGE));
    let exchange = exchange.and_then(Result::ok);
    let route = Route { topic, exchange, ..Route::default() };
    let outbox = OutboxTable { route, ..OutboxTable::default() };
    let connection = ConnInfo { hosts: vec![host()], ..ConnInfo::default() };
    SourceSettings {
        slot: SLOT.to_owned(),
        outboxes: vec![outbox],
        connection,
        stall_timeout: Duration::from_secs(5),
        ..SourceSettings::default()
    }
}

fn delivery_settings() -> DeliverySettings {
    DeliverySettings {
        attempts_max: ATTEMPTS_MAX,
        backoff_base: Duration::from_millis(20),
        backoff_cap: Duration::from_millis(500),
        drain_timeout: Duration::from_secs(2),
        state_file: None,
        ..DeliverySettings::default()
    }
}

fn dead_letter_writer(machine: &Machine, system: &SystemId) -> DeadLetterWriter {
    let mut settings = settings(machine.sink).dead_letters.clone();
    if let Some(burst) = machine.burst {
        (settings.burst_max, settings.burst_window) = burst;
    }
    DeadLetterWriter { settings, relay: relay_name(machine), system: system.clone() }
}

fn standing_stops(
    machine: &Machine,
    site: &Site<'_>,
    life: &Arc<Life>,
    system: &SystemId,
) -> Arc<StandingStops> {
    let file = machine.state_file.as_ref();
    let memory = file.map(|file| Memory::read(mortal_bytes(file, life), PathBuf::new()));
    let parts = StopParts {
        source: SourceSettings::clone(&settings(machine.sink).source),
        is_polling: false,
        system: system.clone(),
        relay: relay_name(machine),
        missing_file: None,
        surroundings: Box::new(SimulatedStopSurroundings(Arc::clone(site.postgres))),
        clock: life.clone(),
    };
    Arc::new(StandingStops::new(parts, memory))
}

fn relay_name(machine: &Machine) -> String {
    format!("{SLOT}@{}", machine.index)
}

fn host() -> PostgresHost {
    PostgresHost { name: "db".to_owned(), port: 5432, password: None }
}

fn database(
    relay: usize,
    site: &Site<'_>,
    life: &Arc<Life>,
    ends: &Arc<Mutex<Option<Ends>>>,
) -> SimulatedDatabase {
    let postgres = Arc::clone(site.postgres);
    SimulatedDatabase { relay, life: Arc::clone(life), postgres, ends: Arc::clone(ends) }
}

impl Process {
    pub(crate) fn start(
        machine: &Machine,
        site: &Site<'_>,
        signature: Signature,
        seed: u64,
    ) -> Result<Process, Fault> {
        let (life, mut random) = (Life::new(site.clock, 0), Random::new(seed));
        let ends = Arc::default();
        let settings = settings(machine.sink);
        let source = &settings.source;
        let delivery = DeliverySettings {
            window_events_max: machine.window,
            on_dead_letter: machine.policy,
            ..settings.delivery.clone()
        };
        let system = SystemId::default();
        let stops = standing_stops(machine, site, &life, &system);
        let flags = Arc::<StopFlags>::default();
        let meters: Arc<dyn Meters> = Arc::new(MetersOf(Arc::clone(site.counts)));
        let sightings = Arc::<Sightings>::default();
        let database = Box::new(database(machine.index, site, &life, &ends));
        let (events, tail_events) = tail::channel();
        let tail_requests = ReadRequests::default();
        let topics: Arc<Mutex<Option<TopicEnd>>> = Arc::default();
        let shown = Shown::new();
        let parts = Parts {
            read_back: read_back(machine.reads_topics, &topics, random.number()),
            sink_factory: sink_factory(machine, &life, site.broker, random.number()),
            dead_letter_writer: dead_letter_writer(machine, &system),
            spans: EventSpans::default(),
            tail_events: Some(tail_events),
            tail_requests: tail_requests.clone(),
            stops: stops.clone(),
            flags: Arc::clone(&flags),
            state_file: state_file(machine, &life),
            meters,
            pass_meter: Box::new(MetersOf(Arc::clone(site.counts))),
            recorder: Box::new(FactsOf(Arc::clone(&shown))),
            clock: life.clone(),
            random,
            source: SourceSettings::clone(source),
            delivery,
        };
        let feed = SlotFeed::new(database, Arc::clone(&sightings), signature, &parts)?;
        let known = Arc::new(stops.known_publication());
        Ok(Process {
            found: None,
            steps_behind: 0,
            relay: Relay::new(parts, feed)?,
            stops,
            ends,
            topics,
            flags,
            shown,
            opener: Opener::new(machine.index, &life, &sightings, known, Arc::clone(source)),
            tail: Tail::new(system, events, tail_requests, machine.reads_letters_late),
            wakes_us: 0,
            life,
            sightings,
        })
    }

    /// One step of the loop. How it has ended, once it has.
    pub(crate) fn step(&mut self) -> Option<Ended> {
        let ended = self.relay.step();
        let waits = self.opener.is_standby && self.opener.request.is_some();
        self.steps_behind = if waits { self.steps_behind + 1 } else { 0 };
        self.wakes_us = self.life.now_us();
        self.life.end_step();
        ended.map(|ended| self.found.take().map_or(ended, Err))
    }

    /// It can see that its newest session has ended.
    pub(crate) fn has_ended_session(&self) -> bool {
        let state = self.opener.connection.state();
        state.closed_by_server || state.is_reset
    }

    /// It has closed its newest session in good order, and not given it up before.
    pub(crate) fn has_closed_session(&self) -> bool {
        self.opener.connection.state().copy_done
    }

    /// It had seen a peer shortly before its last attempt at a session, or at that: the position of the
    /// slot is judged there.
    pub(crate) fn had_seen_peer(&self) -> bool {
        self.opener.has_seen_peer
    }

    /// Asks it to stop.
    pub(crate) fn stop(&self) {
        self.flags.stop.store(true, Ordering::Relaxed);
    }

    /// Does the next work of the control runtime and of the readers of topics. True if anything was
    /// done.
    pub(crate) fn serve(&mut self, site: &Site<'_>, random: &mut Random) -> bool {
        let mut has_done = false;
        if let Some(ends) = &mut *locked(&self.ends) {
            has_done |= self.opener.serve(ends, site);
            has_done |= look_at_walsenders(ends, site);
            has_done |= read_catalogs(ends);
        }
        has_done |= self.read_topics(site, random);
        if !self.tail.is_late || random.number().is_multiple_of(LATE_READER) {
            has_done |= self.tail.serve(site);
        }
        if has_done {
            self.wakes_us = 0;
        }
        has_done
    }

    /// Reads the end of a topic, if one is requested.
    fn read_topics(&self, site: &Site<'_>, random: &mut Random) -> bool {
        let topics = locked(&self.topics);
        let Some(end) = &*topics else { return false };
        let Ok(mut request) = end.requests.try_recv() else { return false };
        let broker = locked(site.broker);
        let is_whole = broker.reading == Reading::Whole;
        let fails = broker.is_away
            || random.number().is_multiple_of(16) && !is_whole
            || broker.reading == Reading::Fails
            || !broker.kafka.is_readable(&request.topic);
        let answer = if fails {
            Err("the topic cannot be read".to_owned())
        } else {
            let records = broker.logs.get(request.topic.as_str()).into_iter().flatten();
            let from = request.from_unix_us;
            // A partition of which a replica is not in sync.
            let left_out = (random.number() % 32) as i32;
            let mut has_left_out = false;
            let mut recent = records.filter(|record| {
                let is_in = record.partition != left_out || record.partition == 0 || is_whole;
                has_left_out |= !is_in;
                is_in && record.stored_unix_us >= from
            });
            let whole =
                recent.all(|it| it.with_outbound(Some(it.partition), |it| request.take(it)));
            Ok(FoundRecords { records: request.stored, whole: whole && !has_left_out })
        };
        end.answers.send(answer).is_ok()
    }

    /// The slot watch looks at the slot.
    pub(crate) fn watch(&mut self, postgres: &mut Postgres, now_unix_us: i64) {
        if !postgres.runs {
            return;
        }
        postgres.sessions.insert(self.opener.relay);
        if let Some(held) = postgres.held(self.opener.relay, now_unix_us) {
            self.sightings.look(&held, self.life.instant());
            locked(&self.shown).server_lsn = Lsn::from_wire(postgres.end);
            let Opener { known, settings, .. } = &self.opener;
            let compared = known.compare(publication::look(postgres), settings, false);
            if let Comparison::Fault(fault) = compared {
                self.found.get_or_insert(fault);
                self.stop();
            }
        }
    }
}

fn look_at_walsenders(ends: &Ends, site: &Site<'_>) -> bool {
    let mut has_answered = false;
    for end in &ends.walsenders {
        let Ok(Walsender { pid, .. }) = end.requests.try_recv() else { continue };
        let postgres = locked(site.postgres);
        let own = postgres.walsenders.iter().find(|it| it.pid == pid).map(|it| &it.connection);
        let proxy_is_cut = own.is_some_and(|it| {
            let state = it.state();
            state.has_proxy && state.up_is_cut
        });
        let is_reached = postgres.runs && !site.is_cut_off && !proxy_is_cut;
        let active = postgres.slot.as_ref().filter(|_| is_reached);
        let is_there = active.is_some_and(|slot| slot.active == Some(pid));
        let confirmed = active.map_or(0, |slot| slot.confirmed);
        let (activity, confirmed) = match (is_reached, is_there) {
            (false, _) => (Err("no connection".to_owned()), 0),
            (true, true) => (Ok(Activity::Waiting), confirmed),
            (true, false) => (Ok(Activity::Gone), 0),
        };
        let confirmed = Lsn::from_wire(confirmed);
        has_answered |= end.answers.send(WalsenderAnswer { pid, activity, confirmed }).is_ok();
    }
    has_answered
}

fn read_catalogs(ends: &mut Ends) -> bool {
    let catalogs = std::mem::take(&mut ends.catalogs);
    let answered = catalogs.iter().filter(|end| end.answers.send(catalog()).is_ok());
    answered.count() > 0
}

fn catalog() -> Catalog {
    let mut catalog = Catalog::read_before(u32::MAX / 2, postgres::tables());
    catalog.outboxes = postgres::outboxes();
    catalog
}

fn state_file(machine: &Machine, life: &Arc<Life>) -> StateFile {
    let file = machine.state_file.clone();
    StateFile::new(file.map(|file| Box::new(MortalFile { life: Arc::clone(life), file }) as _))
}

fn read_back(reads: bool, topics: &Arc<Mutex<Option<TopicEnd>>>, seed: u64) -> ReadBack {
    let topics = Arc::clone(topics);
    ReadBack::new(
        Box::new(move || {
            if !reads {
                return None;
            }
            let (link, end) = link();
            *locked(&topics) = Some(end);
            Some(link)
        }),
        seed,
    )
}

fn sink_factory(
    machine: &Machine,
    life: &Arc<Life>,
    broker: &SharedBroker,
    seed: u64,
) -> Box<dyn FnMut() -> Result<Box<dyn Sink>, Fault> + Send> {
    let (life, broker, relay) = (Arc::clone(life), Arc::clone(broker), machine.index);
    let window = machine.window;
    match machine.sink {
        SinkKind::Direct => Box::new(move || {
            Ok(Box::new(DirectSink::new(relay, &life, &broker, window)) as Box<dyn Sink>)
        }),
        SinkKind::Kafka => {
            let learned = Arc::new(Learned::new(None));
            Box::new(move || kafka::sink(relay, &life, &broker, &learned, seed))
        }
        SinkKind::Rabbitmq => {
            let mut is_first = true;
            Box::new(move || {
                let is_first = std::mem::replace(&mut is_first, false);
                Ok(rabbitmq::sink(relay, &life, &broker, is_first, seed))
            })
        }
    }
}

/// Opens sessions, as the control runtime does.
struct Opener {
    relay: usize,
    life: Arc<Life>,
    request: Option<SessionRequest>,
    findings: SessionFindings,
    known: Arc<KnownPublication>,
    settings: Arc<SourceSettings>,
    is_standby: bool,
    /// The next look at the slot, and the wait after it.
    looks_us: u64,
    interval_us: u64,
    /// The server that the present attempt is connected to.
    connected: Option<walrelay_core::source::server::ServerStart>,
    /// The connection of the newest session.
    connection: Connection,
    /// A peer was seen before the last attempt at a session.
    has_seen_peer: bool,
}

impl Opener {
    fn new(
        relay: usize,
        life: &Arc<Life>,
        sightings: &Arc<Sightings>,
        known: Arc<KnownPublication>,
        settings: Arc<SourceSettings>,
    ) -> Opener {
        let findings =
            SessionFindings::new(Arc::clone(&settings), Arc::clone(&known), Arc::clone(sightings));
        Opener {
            relay,
            life: Arc::clone(life),
            request: None,
            findings,
            known,
            settings,
            is_standby: false,
            looks_us: 0,
            interval_us: LOOK_INTERVAL_MIN_US,
            connected: None,
            connection: Connection::default(),
            has_seen_peer: false,
        }
    }

    fn serve(&mut self, ends: &Ends, site: &Site<'_>) -> bool {
        if self.request.is_none() {
            let Ok(request) = ends.sessions.requests.try_recv() else { return false };
            self.findings.requested(request.confirmed);
            (self.request, self.is_standby, self.connected) = (Some(request), false, None);
            (self.looks_us, self.interval_us) = (site.clock.us(), LOOK_INTERVAL_MIN_US);
        }
        if site.clock.us() < self.looks_us {
            return false;
        }
        self.looks_us = site.clock.us() + self.interval_us;
        self.interval_us = (2 * self.interval_us).min(LOOK_INTERVAL_MAX_US);
        let Some(news) = self.attempt(site) else { return false };
        ends.sessions.answers.send(news).is_ok()
    }

    /// The preflight finds no other fault than one of the publication.
    fn check(&mut self, postgres: &Postgres, place: &SystemTimeline) -> Result<(), Fault> {
        let (look, withholding_fault) =
            (publication::look(postgres), publication::withholding_fault(postgres));
        let confirmed = Lsn::from_wire(postgres.slot.as_ref().map_or(0, |slot| slot.confirmed));
        let doubt = |decoded| publication::in_doubt(postgres, decoded);
        self.findings.compare(look, withholding_fault.is_none(), confirmed, doubt)?;
        withholding_fault.map_or(Ok(()), Err)?;
        self.findings.checked(place.clone());
        Ok(())
    }

    /// One look at the slot, and a session if it is free.
    fn attempt(&mut self, site: &Site<'_>) -> Option<SessionNews> {
        let mut postgres = locked(site.postgres);
        if !postgres.runs || site.is_cut_off {
            self.connected = None;
            return None;
        }
        let now = self.life.instant();
        let unix_us = site.clock.unix_us();
        let (system_id, timeline) = (postgres.system_id.clone(), postgres.timeline);
        let place = SystemTimeline { system_id, timeline };
        postgres.sessions.insert(self.relay);
        let had_peer = postgres.had_peer(self.relay);
        let missed_holder = postgres.has_missed_holder(self.relay);
        let Some(held) = postgres.held(self.relay, unix_us) else {
            self.request = None;
            let fault = Fault::new(Exit::Slot, "slot.missing", "the slot is gone", "", "");
            return Some(SessionNews::Failed(fault));
        };
        if self.connected.as_ref() != Some(&postgres.started) {
            self.findings.reconnected();
            self.connected = Some(postgres.started.clone());
        }
        self.findings.look(&held, now);
        // The preflight runs on each connection, and once more when a stream is started.
        let is_checked = held.holder.is_some() && self.findings.is_checked();
        let checked = if is_checked { Ok(()) } else { self.check(&postgres, &place) };
        if let Err(fault) = checked {
            self.request = None;
            return Some(SessionNews::Failed(fault));
        }
        if held.holder.is_some() {
            let is_other = self.findings.other_holder(&held).is_some();
            if is_other {
                // It may be the walsender of a process that has died.
                postgres.see_holder(self.relay, unix_us);
            }
            let waits = is_other && !self.is_standby;
            self.is_standby |= waits;
            return waits.then_some(SessionNews::Waiting(walrelay_core::health::Phase::Standby));
        }
        // A peer that it has not seen may have left the slot where it cannot be told from another program.
        let can_tell = !missed_holder || is_trace(held.confirmed_flush);
        self.has_seen_peer = held.has_peer || had_peer && can_tell;
        locked(site.broker).flush_ended(self.relay);
        let connection = Connection::default();
        let pid = postgres.start_replication(self.relay, connection.clone(), site.clock.us())?;
        let held = postgres.held(self.relay, unix_us)?;
        let walsender = Walsender { host: host(), server: postgres.started.clone(), pid };
        self.findings.opened(walsender.clone(), &held, now);
        let (seen, in_doubt) = self.findings.take(&place);
        self.request = None;
        self.connection = connection.clone();
        let wire = SimulatedWire { life: Arc::clone(&self.life), connection };
        Some(SessionNews::Opened(Box::new(OpenedSession {
            wire: Box::new(wire),
            walsender,
            place,
            slot_confirmed: held.confirmed_flush,
            looked_unix_us: held.at_unix_us,
            wal_end: Lsn::from_wire(postgres.end),
            seen,
            in_doubt,
            wal_sender_timeout: Some(WAL_SENDER_TIMEOUT),
            catalog: catalog(),
            heard_at: now,
            opened_at: now,
        })))
    }
}
