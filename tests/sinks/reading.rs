//! Reading a log of letters.

use std::time::{Duration, Instant};

use walrelay::dead_letter::record::LogEntry;
use walrelay::sink::log::{DeadLetterLog, LogRead};

use crate::sinks::test_relay::LIMIT;

const PATIENCE: Duration = Duration::from_millis(20);

/// Everything up to the end.
pub(crate) fn whole(log: &mut dyn DeadLetterLog) -> Vec<LogEntry> {
    let (mut entries, began) = (Vec::new(), Instant::now());
    loop {
        match log.next(PATIENCE).unwrap() {
            LogRead::Entry(entry) => entries.push(entry),
            LogRead::End => return entries,
            LogRead::Nothing => assert!(began.elapsed() < LIMIT, "no end within {LIMIT:?}"),
        }
    }
}

/// The next record of a log whose end was told.
pub(crate) fn next(log: &mut dyn DeadLetterLog) -> LogEntry {
    let began = Instant::now();
    loop {
        match log.next(PATIENCE).unwrap() {
            LogRead::Entry(entry) => return entry,
            LogRead::End => panic!("the end was told twice"),
            LogRead::Nothing => assert!(began.elapsed() < LIMIT, "no record within {LIMIT:?}"),
        }
    }
}
