//! Which faults happen when: all of it from one seed.

use std::time::Duration;

use walrelay_harness::kit::Rng;

const RELAY_KILLS: usize = 20;
const RELAY_FREEZES: usize = 3;
const TERMINATIONS: usize = 20;
const POSTGRES_CRASHES: usize = 3;
const BROKER_KILLS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    KillRelay,
    Freeze,
    Terminate,
    Crash,
    KillBroker,
    /// A memory or disk alarm of RabbitMQ, for a while.
    Alarm,
}

/// Faults of one service, by time since the start.
pub(super) type Lane = Vec<(Duration, Fault)>;

/// One lane for each service.
pub(super) struct Plan {
    pub(super) relay: Lane,
    pub(super) postgres: Lane,
    pub(super) broker: Lane,
}

impl Plan {
    /// Faults all over the time of the load.
    pub(super) fn draw(seed: u64, load: Duration, alarms: usize) -> Plan {
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
            relay: lane(&[(Fault::KillRelay, RELAY_KILLS), (Fault::Freeze, RELAY_FREEZES)]),
            postgres: lane(&[(Fault::Terminate, TERMINATIONS), (Fault::Crash, POSTGRES_CRASHES)]),
            broker: lane(&[(Fault::KillBroker, BROKER_KILLS), (Fault::Alarm, alarms)]),
        }
    }
}
