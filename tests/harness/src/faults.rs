//! Which faults happen when: all of it from one seed.

use std::time::Duration;

use crate::kit::Rng;

#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub relay_kills: usize,
    /// The relay's clock is stopped for a while.
    pub freezes: usize,
    pub terminations: usize,
    pub crashes: usize,
    pub broker_kills: usize,
    pub alarms: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    KillRelay,
    Freeze,
    Terminate,
    Crash,
    KillBroker,
    /// A memory or disk alarm of RabbitMQ, for a while.
    Alarm,
}

pub type Lane = Vec<(Duration, Fault)>;

pub struct Plan {
    pub relay: Lane,
    pub postgres: Lane,
    pub broker: Lane,
}

impl Plan {
    /// Faults all over the time of the load.
    pub fn draw(seed: u64, load: Duration, counts: &Counts) -> Plan {
        // The actors below are the writers'.
        let mut rng = Rng::fork(seed, 1_000);
        let mut lane = |faults: &[(Fault, usize)]| {
            let all = faults.iter().flat_map(|(fault, count)| std::iter::repeat_n(*fault, *count));
            let mut lane: Lane =
                all.map(|fault| (load.mul_f64(0.02 + 0.93 * rng.unit()), fault)).collect();
            lane.sort_by_key(|(due, _)| *due);
            lane
        };
        Plan {
            relay: lane(&[(Fault::KillRelay, counts.relay_kills), (Fault::Freeze, counts.freezes)]),
            postgres: lane(&[
                (Fault::Terminate, counts.terminations),
                (Fault::Crash, counts.crashes),
            ]),
            broker: lane(&[
                (Fault::KillBroker, counts.broker_kills),
                (Fault::Alarm, counts.alarms),
            ]),
        }
    }
}
