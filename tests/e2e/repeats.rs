//! How much a `kill -9` repeats while events are written faster than the broker takes them.
//!
//! The relay is killed each time another part of the events has arrived: alone, together with
//! Postgres, together with the broker; once with a state file and once without. The default window
//! and the default headers: what is in flight at a kill is what it is for a user.

use std::time::Duration;

use walrelay_harness::load::ChaosWriters;
use walrelay_harness::relay::RelayProcess;
use walrelay_harness::{Broker, BrokerKind, Postgres, PostgresOptions};

use crate::support::{
    Fixture, LIMIT, Repeatable, half_machine, metric, name_on, on_both_brokers, seed, until, volume,
};

/// Of RabbitMQ: nobody can ask a queue what it holds.
const RABBITMQ_REPEATED_PERCENT: u64 = 1;
/// Of Kafka, whatever the volume: a new process reads the topics.
const KAFKA_REPEATED: [u64; 2] = [20, 5];
/// The broker's confirms of these may be lost with it.
const RESTART_LIMIT: Duration = Duration::from_secs(60);

/// What ends together with the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum With {
    Nothing,
    Postgres,
    Broker,
}

on_both_brokers!(
    a_kill_repeats_little,
    a_kill_with_a_crash_of_postgres_repeats_little,
    a_kill_with_a_kill_of_the_broker_repeats_little,
);

fn a_kill_repeats_little(kind: BrokerKind) {
    repeats_little(kind, With::Nothing);
}

fn a_kill_with_a_crash_of_postgres_repeats_little(kind: BrokerKind) {
    repeats_little(kind, With::Postgres);
}

fn a_kill_with_a_kill_of_the_broker_repeats_little(kind: BrokerKind) {
    repeats_little(kind, With::Broker);
}

struct Place {
    postgres: Postgres,
    broker: Broker,
    with: With,
}

fn repeats_little(kind: BrokerKind, with: With) {
    let _repeatable = Repeatable::new("e2e::repeats");
    let postgres = Postgres::start(PostgresOptions::default()).unwrap();
    let mut place = Place { postgres, broker: Broker::start(kind).unwrap(), with };
    let _machine = half_machine();
    let found = [false, true].map(|state_file| (state_file, place.repeated(state_file)));
    for (state_file, (repeated, committed)) in found {
        let bound = match (kind, with) {
            (BrokerKind::Kafka, _) => KAFKA_REPEATED[usize::from(state_file)],
            // Postgres forgets what it was told since its last checkpoint, and nobody else knows it.
            (BrokerKind::RabbitMq, With::Postgres) if !state_file => committed,
            (BrokerKind::RabbitMq, _) => committed * RABBITMQ_REPEATED_PERCENT / 100,
        };
        assert!(repeated <= bound, "{repeated} of {committed} repeated, state file: {state_file}");
    }
}

impl Place {
    /// How many events came twice, and how many were committed.
    fn repeated(&mut self, state_file: bool) -> (u64, u64) {
        let (events, kills) = match self.with {
            With::Nothing => volume((10_000, 4), (100_000, 20)),
            _ => volume((3_000, 1), (100_000, 20)),
        };
        let kind = self.broker.kind();
        let name = if state_file { "repeats_marked" } else { "repeats" };
        let site = Fixture::new(&self.postgres, &self.broker, &name_on(kind, name));
        self.broker.sync_declarations().unwrap();
        // GIVEN a relay, and writers without pause
        let mut config = site.config();
        if state_file {
            config.extra = "[delivery]\nstate_file = \"state\"\n".into();
        }
        let (mut relay, reader) = (site.relay_with(config), site.reader());
        let writers =
            ChaosWriters { rows_max: 2_000, ..ChaosWriters::new(&site.url, events, seed()) };
        let mut in_flight = Vec::new();
        std::thread::scope(|scope| {
            let load = scope.spawn(|| writers.run().unwrap());
            // WHEN the relay is killed again and again
            for kill in 1..=kills {
                let wanted = kill * events / (kills + 1);
                until("more events", RESTART_LIMIT, || (reader.count() >= wanted).then_some(()));
                in_flight.push(metric(&relay, "outbox_in_flight_events"));
                self.kill(&mut relay);
            }
            load.join().unwrap();
        });
        // THEN nothing is lost or reordered
        let (verdict, _) = site.judge(&mut relay, reader);
        let flying: Vec<_> = in_flight.iter().map(|it| it.map_or(-1.0, |it| it)).collect();
        println!(
            "{} with {:?}, state file: {state_file}, in flight at the kills: {flying:?}\n{verdict}",
            kind.name(),
            self.with
        );
        verdict.assert_exact(verdict.duplicates);
        (verdict.duplicates, verdict.committed)
    }

    fn kill(&mut self, relay: &mut RelayProcess) {
        match self.with {
            With::Nothing => {}
            With::Postgres => self.postgres.crash().unwrap(),
            With::Broker => self.broker.kill9().unwrap(),
        }
        relay.kill9().unwrap();
        match self.with {
            With::Nothing => {}
            With::Postgres => self.postgres.start_again().unwrap(),
            With::Broker => self.broker.start_again().unwrap(),
        }
        relay.restart().unwrap();
        relay.wait_ready(LIMIT).unwrap();
    }
}
