//! The stops that are kept ([`walrelay_core::relay::stops`]), with the state file, the dead-letter topic and
//! Postgres; and what a command looks for.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use walrelay_core::relay::feed::slot::not_the_last;
use walrelay_core::relay::state_file::memory::{Memory, Remembered};
pub(crate) use walrelay_core::relay::stops::StandingStops;
use walrelay_core::relay::stops::{Place, Present, StopParts, StopSurroundings};

use super::control::SystemTimeline;
use super::state_file::{look_at_memory, open_memory, path_of};
use crate::base::clock::{SystemClock, steady_clock};
use crate::base::error::Fault;
use crate::base::finding::Finding;
use crate::base::runtime;
use crate::base::stop::RESUME;
use crate::dead_letter::owner::LetterOwner;
use crate::dead_letter::reader::DeadLetterTopic;
use crate::dead_letter::record::StopRecord;
use crate::dead_letter::stop_log;
use crate::dead_letter::topic_stops::TopicStops;
use crate::dead_letter::writer::{DeadLetterAddress, SystemId};
use crate::delivery::settings::DeliverySettings;
use crate::doctor::fingerprint::{Comparison, KeptPublication, PublicationLook};
use crate::doctor::publication_age;
use crate::doctor::source::{self, fingerprint};
use crate::sink::Broker;
use crate::source::facts::{SourceFacts, system_id};
use crate::source::settings::SourceSettings;
use crate::source::sql::{self, Sql};

/// The configuration from which stops are made.
pub(crate) struct StopsConfig<'a> {
    pub(crate) source: &'a SourceSettings,
    pub(crate) delivery: &'a DeliverySettings,
    pub(crate) is_polling: bool,
    /// None if nothing is ever written to the dead-letter topic.
    pub(crate) dead_letters: Option<(Arc<dyn Broker>, DeadLetterAddress)>,
    /// Known once this process has asked Postgres.
    pub(crate) system: SystemId,
    /// Who stops: the relay and its machine.
    pub(crate) relay: String,
}

/// Where else than in the state file a stop is looked for.
#[derive(Clone)]
struct Surroundings {
    source: SourceSettings,
    dead_letters: Option<(Arc<dyn Broker>, DeadLetterAddress)>,
}

impl Surroundings {
    async fn connect(&self) -> Result<Sql, Fault> {
        let SourceSettings { connection, slot, publication, .. } = &self.source;
        let connected = sql::connect(connection).await;
        connected.map_err(|error| error.fault(connection, slot, publication))
    }

    fn facts(&self) -> Result<SourceFacts, Fault> {
        runtime::try_block_on(async {
            let sql = self.connect().await?;
            source::report(&sql.client, &self.source).await.map(|report| report.facts)
        })
    }
}

impl StopSurroundings for Surroundings {
    fn has_topic(&self) -> bool {
        self.dead_letters.is_some()
    }

    fn append(&self, record: &StopRecord) -> Result<(), Fault> {
        let Some((broker, address)) = &self.dead_letters else { return Ok(()) };
        let go_on = AtomicBool::new(false);
        let topic = DeadLetterTopic::of_relay(&**broker, address, &go_on);
        stop_log::append(record, &topic, &steady_clock())
    }

    fn present(&self) -> Result<Present, Fault> {
        let facts = self.facts()?;
        let found = fingerprint(&facts);
        if let Some(fault) = found.withholding_fault(&self.source) {
            let mend = format!("{}\nthen: {RESUME}", fault.mend);
            return Err(Fault { mend, ..fault });
        }
        let (server, digest) = (facts.server, found.digest());
        let look =
            PublicationLook { system_id: server.system_id, wal_end: server.current_lsn, found };
        Ok(Present {
            publication: KeptPublication::of(&look, &self.source),
            digest,
            system_id: look.system_id,
            timeline: server.timeline,
            wal_end: look.wal_end,
        })
    }
}

/// The stops as a relay has them: its state file is made if it is missing.
pub(crate) fn open(config: StopsConfig<'_>) -> Result<Arc<StandingStops>, Fault> {
    let (delivery, source) = (config.delivery, config.source);
    let memory = open_memory(delivery.state_file.as_deref(), &source.slot)?;
    Ok(Stops::with(config, memory, None).kept)
}

/// Stops of which none is kept.
#[cfg(test)]
pub(crate) fn unkept(source: &SourceSettings) -> Arc<StandingStops> {
    let delivery = DeliverySettings { state_file: None, ..DeliverySettings::default() };
    let config = StopsConfig {
        source,
        delivery: &delivery,
        is_polling: false,
        dead_letters: None,
        system: SystemId::default(),
        relay: "relay@host".to_owned(),
    };
    Stops::with(config, None, None).kept
}

/// The stops as a command has them.
pub(crate) struct Stops {
    pub(crate) kept: Arc<StandingStops>,
    surroundings: Surroundings,
    is_polling: bool,
    system: SystemId,
}

impl Stops {
    /// Looks at the state file, and makes none.
    pub(crate) fn look(config: StopsConfig<'_>) -> Result<Stops, Fault> {
        let (delivery, source) = (config.delivery, config.source);
        let memory = look_at_memory(delivery.state_file.as_deref(), &source.slot)?;
        let path = path_of(delivery.state_file.as_deref(), &source.slot);
        Ok(Stops::with(config, memory, path.filter(|path| !path.exists())))
    }

    fn with(
        config: StopsConfig<'_>,
        memory: Option<(Memory, Remembered)>,
        missing_file: Option<PathBuf>,
    ) -> Stops {
        let StopsConfig { source, is_polling, dead_letters, system, relay, .. } = config;
        let surroundings = Surroundings { source: source.clone(), dead_letters };
        let parts = StopParts {
            source: source.clone(),
            is_polling,
            system: system.clone(),
            relay,
            missing_file,
            surroundings: Box::new(surroundings.clone()),
            clock: Arc::new(SystemClock),
        };
        let kept = Arc::new(StandingStops::new(parts, memory));
        Stops { kept, surroundings, is_polling, system }
    }

    /// Asks Postgres for the system identifier, for a command: stops in the topic may be of another
    /// system. Without an answer all of the slot's name count.
    pub(crate) fn ask_system(&self) -> Result<(), Fault> {
        let found = runtime::try_block_on(async {
            let Ok(sql) = self.surroundings.connect().await else { return Ok(None) };
            Ok(system_id(&sql.client).await)
        })?;
        found.into_iter().for_each(|found| self.system.learn(&found));
        Ok(())
    }

    /// Looks into the dead-letter topic, for a command: only there can the stop be that the state
    /// file does not have.
    pub(crate) fn read_topic(&self) -> Result<TopicStops, Fault> {
        let Some((broker, address)) = &self.surroundings.dead_letters else {
            return Ok(TopicStops::default());
        };
        let go_on = AtomicBool::new(false);
        let topic = DeadLetterTopic::of_relay(&**broker, address, &go_on);
        let found = stop_log::read_stops(
            &topic,
            &LetterOwner::new(&self.surroundings.source.slot, self.system.get().as_deref()),
        )?;
        if let Some(stop) = found.standing.first() {
            self.kept.found_in_topic(stop.clone());
        }
        Ok(found)
    }

    /// Finds the stops that would end a relay at its start, for `check`.
    pub(crate) fn inspect(&self, seen: Option<&SourceFacts>, reads_topic: bool) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut in_topic = TopicStops::default();
        if reads_topic {
            match self.read_topic() {
                Ok(found) => in_topic = found,
                Err(fault) => {
                    self.kept.topic_is_readable(false);
                    let Fault { what, mend, .. } = fault;
                    findings.push(Finding::warn("dead-letter.unread", format!("the dead-letter topic cannot be read, so it is not known whether a stop stands there: {what}; help: {mend}")));
                }
            }
        }
        match self.kept.fault() {
            Some(fault) => findings.push(Finding::fail(fault)),
            None => findings.extend(seen.and_then(|seen| self.gap(seen, &in_topic))),
        }
        findings
    }

    /// Looks for what would stop the next relay at its start, for a command: it can be acknowledged
    /// before.
    pub(crate) fn look_for_gap(&self, in_topic: &TopicStops) -> Result<(), Fault> {
        if self.is_polling {
            return Ok(());
        }
        let seen = self.surroundings.facts()?;
        let found = self.gap(&seen, in_topic).and_then(|finding| finding.fault);
        if let Some(fault) = found {
            self.kept.found_gap(&fault);
        }
        Ok(())
    }

    /// Finds the gap that arose while no relay ran.
    fn gap(&self, facts: &SourceFacts, in_topic: &TopicStops) -> Option<Finding> {
        let (source, server) = (&self.surroundings.source, &facts.server);
        let place =
            SystemTimeline { system_id: server.system_id.clone(), timeline: server.timeline };
        let is_active = facts.slot.as_ref().is_some_and(|slot| slot.active);
        // A relay that lives has been judged, and the WAL has come farther since; a standby knows the last
        // timeline only from its checkpoints.
        let last = self.kept.last_place().filter(|_| !is_active && !server.standby);
        let slot = facts.slot.as_ref().map(|slot| slot.confirmed_flush);
        let slot = slot.filter(|at| !at.is_zero()).unwrap_or(server.current_lsn);
        let judged =
            last.and_then(|last| not_the_last(source, &last, &place, server.current_lsn, slot));
        if let Some(fault) = judged {
            return Some(Finding::fail(fault));
        }
        let found = fingerprint(facts);
        let is_acknowledged = in_topic.publication.as_ref() == Some(&found.digest());
        let look =
            PublicationLook { system_id: place.system_id, wal_end: server.current_lsn, found };
        match self.kept.restored(None).compare(look, source, true) {
            Comparison::Fault(fault) => Some(Finding::fail(fault)),
            // A relay that lives has seen what is young.
            Comparison::First if !is_acknowledged && !is_active => {
                let fault = publication_age::in_doubt(source, facts, facts.decoded)?;
                match self.kept.place_of_gaps() {
                    Place::Nowhere => Some(Finding::warn("publication.young", fault.what)),
                    _ => Some(Finding::fail(fault)),
                }
            }
            Comparison::First | Comparison::InOrder => None,
        }
    }
}

#[cfg(test)]
#[path = "stops_tests.rs"]
mod tests;
