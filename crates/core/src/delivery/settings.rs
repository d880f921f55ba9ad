//! The `[delivery]` section.

use std::path::PathBuf;
use std::time::Duration;

use crate::base::settings::kind::FILLED;
use crate::base::settings::{
    Choice, HOUR_MS, MIB, SECOND_MS, bytes, choice, duration, integer, settings, text,
};

settings! {
    /// The `[delivery]` section.
    #[derive(Clone, Debug)]
    pub struct DeliverySettings {
        /// Most events between admission and confirmation. As many as keep the broker busy are in
        /// flight, found by measuring; this is the bound.
        pub window_events_max: usize = integer(1, 10_000_000).default("16384"),
        /// Most bytes between admission and confirmation.
        pub window_bytes_max: usize = bytes(MIB / 16, MIB << 14).default("64MiB"),
        /// Attempts of one event before it is given up.
        pub attempts_max: u32 = integer(1, 1000).default("5"),
        /// First wait before a retry, with full jitter.
        pub backoff_base: Duration = duration(1, HOUR_MS).default("200ms"),
        /// Longest wait before a retry.
        pub backoff_cap: Duration = duration(1, HOUR_MS).default("30s"),
        /// Most retries in a hundred first attempts; a few are always allowed. More wait.
        pub retry_budget_percent: u32 = integer(1, 1000).default("20"),
        /// After a dead letter: go on (`continue`), or send later events of its key to the
        /// dead-letter topic too, until it is released (`park_key`; the breaker does not count
        /// those). `halt` writes none: the relay stops, and the slot is held before the event.
        pub on_dead_letter: OnDeadLetter = choice().default("continue"),
        /// After a stop that needs a person (exit codes 3 and 6, and a gap in the publication): end
        /// (`exit`), or stay alive and not ready, and go on when resumed (`wait`), for supervisors
        /// that restart whatever the code. `walrelay resume` acknowledges the stop.
        pub when_halted: WhenHalted = choice().default("exit"),
        /// How long a stop may take to settle the window.
        pub drain_timeout: Duration = duration(SECOND_MS / 10, HOUR_MS).default("20s"),
        /// The file for facts that the next process must know: which events the broker has confirmed,
        /// so that they are not published again; which event was in hand: one that killed the
        /// process three times becomes a dead letter; the publication as it was, and the stop that
        /// nobody has acknowledged. Up to 9 MB; if it is deleted, the facts are not known.
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
