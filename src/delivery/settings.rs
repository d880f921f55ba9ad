//! What delivery obeys: `[delivery]` and `[dead_letter]`, typed.

use std::time::Duration;

/// The `[delivery]` section. Keys about retries and dead letters are read and checked from the
/// first version on, so that one configuration file serves every release.
#[derive(Clone, Debug)]
pub struct DeliverySettings {
    /// Most events between admission and confirmation. Default 16384.
    pub window_events_max: usize,
    /// Most bytes between admission and confirmation. Default 64MiB.
    pub window_bytes_max: usize,
    /// Attempts of one event before it is given up. Default 5.
    pub attempts_max: u32,
    /// First wait before a retry. Default 200ms.
    pub backoff_base: Duration,
    /// Longest wait before a retry. Default 30s.
    pub backoff_cap: Duration,
    /// What follows a dead letter. Default continue.
    pub on_dead_letter: OnDeadLetter,
    /// How long a stop may take to settle the window. Default 20s.
    pub drain_timeout: Duration,
}

/// `on_dead_letter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDeadLetter {
    /// Later events of the key go on.
    Continue,
    /// Later events of the key go to the dead-letter topic too.
    ParkKey,
    /// The relay stops.
    Halt,
}

/// The `[dead_letter]` section.
#[derive(Clone, Debug)]
pub struct DeadLetterSettings {
    /// Dead-letter topic. Default `outbox.dlq`.
    pub topic: String,
}
