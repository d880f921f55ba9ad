//! The `[delivery]` section.

use std::path::PathBuf;
use std::time::Duration;

use crate::base::backoff::Backoff;
use crate::base::settings::kind::FILLED;
use crate::base::settings::{
    Choice, HOUR_MS, MIB, SECOND_MS, bytes, choice, duration, integer, settings, text,
};

settings! {
    /// The `[delivery]` section.
    #[derive(Clone, Debug)]
    pub struct DeliverySettings {
        /// Maximum number of events in flight. The relay measures how many keep the broker busy;
        /// this is the upper limit.
        pub window_events_max: usize = integer(1, 10_000_000).default("16384"),
        /// Maximum size of the events in flight.
        pub window_bytes_max: usize = bytes(MIB / 16, MIB << 14).default("64MiB"),
        /// Number of attempts to publish an event before it is given up.
        pub attempts_max: u32 = integer(1, 1000).default("5"),
        /// First wait before a retry, with full jitter.
        pub backoff_base: Duration = duration(1, HOUR_MS).default("200ms"),
        /// Longest wait before a retry.
        pub backoff_cap: Duration = duration(1, HOUR_MS).default("30s"),
        /// Maximum number of retries per hundred first attempts. A few are always allowed; further
        /// retries wait.
        pub retry_budget_percent: u32 = integer(1, 1000).default("20"),
        /// The action after a dead letter. `continue` goes on. `park_key` writes later events of
        /// its key to the dead-letter topic as well, until the key is released; the breaker does
        /// not count these. `halt` writes no dead letter: the relay stops, and the slot does not
        /// pass the event.
        pub on_dead_letter: OnDeadLetter = choice().default("continue"),
        /// The action after a stop that needs a person (exit codes 3 and 6, and a gap in the
        /// publication). `exit` ends the process. `wait` keeps it alive and not ready until it is
        /// resumed, for supervisors that restart after any exit code. `walrelay resume`
        /// acknowledges the stop.
        pub when_halted: WhenHalted = choice().default("exit"),
        /// Maximum time that a stop takes to settle the events in flight.
        pub drain_timeout: Duration = duration(SECOND_MS / 10, HOUR_MS).default("20s"),
        /// File in which a process records what the next one must know: which events the broker has
        /// confirmed, so that they are not published again; which event is being handled, so that
        /// one that has killed the process three times becomes a dead letter; the state of the
        /// publication; a stop that nobody has acknowledged. Up to 9 MB. If it is deleted, the next
        /// process knows nothing of this.
        pub state_file: Option<PathBuf> = text(FILLED)
            .or_none("a file named after the slot in `$STATE_DIRECTORY`, which systemd sets; or none"),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenHalted {
    /// The process ends.
    Exit,
    /// It waits until it is resumed.
    Wait,
}

impl Choice for WhenHalted {
    const WORDS: &'static [(&'static str, WhenHalted)] =
        &[("exit", WhenHalted::Exit), ("wait", WhenHalted::Wait)];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDeadLetter {
    /// Later events of the key go on.
    Continue,
    /// Later events of the key go to the dead-letter topic too.
    ParkKey,
    /// The relay stops instead, and the slot is held before the event.
    Halt,
}

impl Choice for OnDeadLetter {
    const WORDS: &'static [(&'static str, OnDeadLetter)] = &[
        ("continue", OnDeadLetter::Continue),
        ("park_key", OnDeadLetter::ParkKey),
        ("halt", OnDeadLetter::Halt),
    ];
}

impl DeliverySettings {
    /// The waits between attempts, drawn with this seed.
    pub fn backoff(&self, seed: u64) -> Backoff {
        Backoff::seeded(self.backoff_base, self.backoff_cap, seed)
    }
}
