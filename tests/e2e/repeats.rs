//! How much a `kill -9` repeats while events are written faster than the broker takes them.
//!
//! The relay is killed each time another part of the events has arrived: alone, together with
//! Postgres, together with the broker; without a state file and with one. Window and headers are the
//! defaults: what is in flight at a kill is what it is for a user.

use walrelay_harness::load::ChaosWriters;
use walrelay_harness::oracle::Verdict;
use walrelay_harness::relay::RelayProcess;
use walrelay_harness::{Broker, BrokerKind, Postgres, PostgresOptions};

use crate::support::{
    Fixture, LIMIT, Repeatable, half_machine, metric, name_on, on_both_brokers, seed, volume,
    wait_until,
};

/// The limit of Kafka, whatever the volume: a new process reads the topics.
const KAFKA_REPEATED: u64 = 20;
const KAFKA_REPEATED_WITH_STATE_FILE: u64 = 5;
/// The limits of RabbitMQ for each kill: 1 % of 100,000 events with 20 kills; one kill alone
/// may find more under way. A queue cannot be asked what it holds, so without the file nothing
/// is promised.
const RABBITMQ_REPEATED: u64 = 50;
const RABBITMQ_REPEATED_ONCE: u64 = 150;

/// The service that ends together with the relay.
#[derive(Clone, Copy, Debug)]
enum With {
    Nothing,
    Postgres,
    Broker,
}

struct Place {
    postgres: Postgres,
    broker: Broker,
}

on_both_brokers!(a_kill_repeats_little, both in soak);

fn a_kill_repeats_little(kind: BrokerKind) {
    let _repeatable = Repeatable::new("e2e::repeats");
    let postgres = Postgres::start(PostgresOptions::default()).unwrap();
    let mut place = Place { postgres, broker: Broker::start(kind).unwrap() };
    let _machine = half_machine();
    let mut too_many = Vec::new();
    // A start of the broker takes long.
    let all = [With::Nothing, With::Postgres, With::Broker];
    for with in all.into_iter().take(volume(2, 3)) {
        for state_file in [false, true] {
            let (kills, verdict) = place.verdict(with, state_file);
            verdict.assert_complete();
            let most = match (kind, state_file) {
                (BrokerKind::Kafka, false) => KAFKA_REPEATED,
                (BrokerKind::Kafka, true) => KAFKA_REPEATED_WITH_STATE_FILE,
                (BrokerKind::RabbitMq, false) => continue,
                (BrokerKind::RabbitMq, true) => {
                    kills * volume(RABBITMQ_REPEATED_ONCE, RABBITMQ_REPEATED)
                }
            };
            if verdict.duplicates > most {
                let repeated = verdict.duplicates;
                too_many.push(format!("{with:?}, state file {state_file}: {repeated} > {most}"));
            }
        }
    }
    assert!(too_many.is_empty(), "repeated: {too_many:#?}");
}

impl Place {
    /// After so many kills.
    fn verdict(&mut self, with: With, state_file: bool) -> (u64, Verdict) {
        let (events, kills) = match with {
            With::Nothing => volume((10_000, 4), (100_000, 20)),
            With::Postgres | With::Broker => volume((3_000, 1), (100_000, 20)),
        };
        let kind = self.broker.kind();
        let name = name_on(kind, &format!("repeats_{with:?}_{state_file}").to_lowercase());
        let site = Fixture::new(&self.postgres, &self.broker, &name);
        self.broker.sync_declarations().unwrap();
        let writers =
            ChaosWriters { rows_max: 2_000, ..ChaosWriters::new(&site.url, events, seed()) };
        let mut in_flight = Vec::new();
        let verdict = std::thread::scope(|scope| {
            // GIVEN a backlog, and writers without pause
            let load = scope.spawn(|| writers.run().unwrap());
            let half = format!("select (count(*) >= {events} / 2)::text from outbox");
            wait_until("a backlog", || site.value(&half) == "true");
            let mut config = site.config();
            if state_file {
                config.extra = "[delivery]\nstate_file = \"state\"\n".into();
            }
            let (mut relay, reader) = (site.relay_with(config), site.reader());
            // WHEN the relay is killed again and again
            for kill in 1..=kills {
                let wanted = kill * events / (kills + 1);
                wait_until("more events", || reader.count() >= wanted);
                in_flight.extend(metric(&relay, "outbox_in_flight_events"));
                self.kill(&mut relay, with);
            }
            load.join().unwrap();
            // THEN it brings everything, in order
            site.judge(&mut relay, reader).0
        });
        let broker = kind.name();
        println!(
            "{broker}, with {with:?}, state file {state_file}, in flight {in_flight:?}\n{verdict}"
        );
        (kills, verdict)
    }

    fn kill(&mut self, relay: &mut RelayProcess, with: With) {
        match with {
            With::Nothing => {}
            With::Postgres => self.postgres.crash().unwrap(),
            With::Broker => self.broker.kill9().unwrap(),
        }
        relay.kill9().unwrap();
        match with {
            With::Nothing => {}
            With::Postgres => self.postgres.start_again().unwrap(),
            With::Broker => self.broker.start_again().unwrap(),
        }
        relay.restart().unwrap();
        relay.wait_ready(LIMIT).unwrap();
    }
}
