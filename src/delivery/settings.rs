//! What delivery obeys: `[delivery]`, typed.

use std::path::PathBuf;
use std::time::Duration;

/// The `[delivery]` section.
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
    /// Most retries in a hundred first attempts. Default 20.
    pub retry_budget_percent: u32,
    /// What follows a dead letter. Default continue.
    pub on_dead_letter: OnDeadLetter,
    /// How long a stop may take to settle the window. Default 20s.
    pub drain_timeout: Duration,
    /// Which event is in hand, remembered across crashes. Default: a file named after the slot in
    /// the directory for temporary files.
    pub crash_file: Option<PathBuf>,
}

/// `on_dead_letter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDeadLetter {
    /// Later events of the key go on.
    Continue,
    /// Later events of the key go to the dead-letter topic too.
    ParkKey,
    /// The relay stops instead, and the slot is held before the event.
    Halt,
}
