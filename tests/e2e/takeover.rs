//! Two relays on one slot, and many faults, thirty in a soak run: the other takes over each time,
//! nobody gives up.
//!
//! The order of the faults is drawn from the seed. Whoever streams is the one that is hurt; a cut
//! walsender and a restart of Postgres leave it open who is faster.

use std::time::Duration;

use walrelay_harness::kit::Rng;
use walrelay_harness::relay::{RelayProcess, get};
use walrelay_harness::{BrokerKind, Postgres};

use crate::support::{
    Fixture, LIMIT, Repeatable, half_machine, metric, name_on, on_both_brokers, own_postgres, seed,
    start, stop, until, volume, wait_looks, wait_until,
};

const WAL_SENDER_TIMEOUT_MS: &str = "1500";
/// In place of the writers' own streams of random numbers.
const ACTOR: u64 = 2_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Kill,
    Stop,
    Freeze,
    Cut,
    Restart,
    Crash,
}

const SOAK: [(Fault, usize); 6] = [
    (Fault::Kill, 8),
    (Fault::Stop, 7),
    (Fault::Freeze, 3),
    (Fault::Cut, 8),
    (Fault::Restart, 2),
    (Fault::Crash, 2),
];
const KAFKA: [(Fault, usize); 6] = [
    (Fault::Kill, 2),
    (Fault::Stop, 2),
    (Fault::Freeze, 1),
    (Fault::Cut, 2),
    (Fault::Restart, 1),
    (Fault::Crash, 1),
];
const RABBITMQ: [(Fault, usize); 3] = [(Fault::Kill, 2), (Fault::Stop, 1), (Fault::Cut, 3)];

on_both_brokers!(takeovers_lose_nothing_and_nobody_gives_up, rabbitmq in soak);

fn takeovers_lose_nothing_and_nobody_gives_up(kind: BrokerKind) {
    let (faults, events): (&[(Fault, usize)], u64) = match kind {
        BrokerKind::Kafka => volume((&KAFKA, 9_000), (&SOAK, 30_000)),
        BrokerKind::RabbitMq => (&RABBITMQ, 6_000),
    };
    let name = name_on(kind, "takeover");
    let _machine = half_machine();
    let _repeatable = Repeatable::new("e2e::takeover");
    // GIVEN two relays on one slot, under load
    // A transaction of autovacuum between two looks would be taken for one that a peer has decoded.
    let settings = [("wal_sender_timeout", WAL_SENDER_TIMEOUT_MS), ("autovacuum", "off")];
    let postgres = own_postgres(&settings);
    let site = Fixture::new(&postgres, kind, &name);
    let mut config = site.config();
    // In a folder of its own each, as on two machines.
    config.extra = "[delivery]\nstate_file = \"state\"\n".into();
    let relays = [site.relay_with(config.clone()), start(config, &format!("{name}_second"))];
    let reader = site.reader();
    let mut pair = Pair { site: &site, relays, postgres };
    let load = site.writers(events, Duration::from_millis(events * 7 / 6));
    let writers = std::thread::spawn(move || load.run().unwrap());
    // WHEN whoever streams is hurt again and again
    for fault in order(faults) {
        pair.hurt(fault);
    }
    // THEN both have lived through all of it, and everything is there in order
    let report = writers.join().unwrap();
    let streaming = pair.roles();
    println!("{report:?}");
    let (verdict, _) = site.judge(&mut pair.relays[streaming], reader);
    println!("{verdict}");
    verdict.assert_complete();
    pair.assert_a_foreign_advance_is_told(streaming);
}

fn order(faults: &[(Fault, usize)]) -> Vec<Fault> {
    let mut all: Vec<Fault> =
        faults.iter().flat_map(|(fault, count)| std::iter::repeat_n(*fault, *count)).collect();
    let mut rng = Rng::fork(seed(), ACTOR);
    for last in (1..all.len()).rev() {
        all.swap(last, rng.below(last as u64 + 1) as usize);
    }
    all
}

struct Pair<'a> {
    site: &'a Fixture,
    relays: [RelayProcess; 2],
    postgres: Postgres,
}

impl Pair<'_> {
    /// Waits until one streams and the other stands by; says who streams.
    fn roles(&mut self) -> usize {
        until("one that streams and one that stands by", LIMIT, || {
            let roles = [self.says(0, "ready"), self.says(1, "ready")];
            let waits = [self.says(0, "slot_busy"), self.says(1, "slot_busy")];
            (0..2).find(|&active| roles[active] && waits[1 - active])
        })
    }

    /// Whether `/readyz` of a relay that must live is 200, or names a reason.
    fn says(&mut self, who: usize, what: &str) -> bool {
        let relay = &mut self.relays[who];
        assert!(relay.is_running(), "a relay gave up\n{}", relay.tail(30));
        get(relay.admin(), "/readyz", Duration::from_secs(1)).is_ok_and(|answer| match what {
            "ready" => answer.status == 200,
            reason => answer.status == 503 && answer.body.contains(reason),
        })
    }

    fn hurt(&mut self, fault: Fault) {
        let active = self.roles();
        let other = 1 - active;
        let reconnects = self.reconnects(active);
        match fault {
            Fault::Kill => self.relays[active].kill9().unwrap(),
            Fault::Stop => {
                self.relays[active].sigterm().unwrap();
                let code = self.relays[active].wait_exit(LIMIT).unwrap();
                assert_eq!(code, 0, "{}", self.relays[active].tail(30));
            }
            Fault::Freeze => {
                let before = self.holder();
                self.relays[active].freeze().unwrap();
                wait_until("wal_sender_timeout", || self.holder() != before);
            }
            Fault::Cut => {
                let site = self.site;
                wait_until("a walsender", || site.terminate_walsender());
            }
            Fault::Restart => {
                self.postgres.stop_fast(Duration::from_secs(10)).unwrap();
                self.postgres.start_again().unwrap();
            }
            Fault::Crash => {
                self.postgres.crash().unwrap();
                self.postgres.start_again().unwrap();
            }
        }
        let open = matches!(fault, Fault::Cut | Fault::Restart | Fault::Crash);
        wait_until("a takeover", || {
            // Until it has noticed the loss it reports itself ready.
            let noticed = open && self.reconnects(active) > reconnects;
            self.says(other, "ready") || noticed && self.says(active, "ready")
        });
        match fault {
            Fault::Kill | Fault::Stop => self.relays[active].restart().unwrap(),
            Fault::Freeze => self.relays[active].thaw().unwrap(),
            Fault::Cut | Fault::Restart | Fault::Crash => {}
        }
    }

    fn reconnects(&self, who: usize) -> Option<f64> {
        metric(&self.relays[who], "outbox_source_reconnects_total")
    }

    /// The process that holds the slot; empty when none does.
    fn holder(&self) -> String {
        self.site.value(&format!(
            "select active_pid from pg_replication_slots where slot_name = '{}'",
            self.site.name
        ))
    }

    /// A relay that has met peers still knows a move of the slot that no peer made.
    fn assert_a_foreign_advance_is_told(&mut self, streaming: usize) {
        let (site, name) = (self.site, &self.site.name);
        let standby = &mut self.relays[1 - streaming];
        stop(standby);
        // Once a second look has begun, the relay knows what the first has shown: that the slot has
        // delivered everything.
        wait_looks(site, 1);
        wait_looks(site, 1);
        let relay = &mut self.relays[streaming];
        relay.freeze().unwrap();
        wait_until("the slot to be free", || site.slot_is_active() == Some(false));
        site.insert_event("foreign", 1);
        let wal_end = "pg_current_wal_lsn()";
        site.execute(&format!("select pg_replication_slot_advance('{name}', {wal_end})"));
        relay.thaw().unwrap();
        assert_eq!(relay.wait_exit(LIMIT).unwrap(), 3, "{}", relay.tail(20));
        assert!(relay.said("slot.moved"), "{}", relay.tail(20));
    }
}
