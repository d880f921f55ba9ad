//! Reading a log of letters.

use std::time::{Duration, Instant};

use walrelay::sink::log::{Entry, Log, Read};

use crate::hand::LIMIT;

const PATIENCE: Duration = Duration::from_millis(20);

/// Everything up to the end.
pub(crate) fn whole(log: &mut dyn Log) -> Vec<Entry> {
    let (mut entries, began) = (Vec::new(), Instant::now());
    loop {
        match log.next(PATIENCE).unwrap() {
            Read::Entry(entry) => entries.push(entry),
            Read::End => return entries,
            Read::Nothing => assert!(began.elapsed() < LIMIT, "no end within {LIMIT:?}"),
        }
    }
}

/// The next record of a log whose end was told.
pub(crate) fn next(log: &mut dyn Log) -> Entry {
    let began = Instant::now();
    loop {
        match log.next(PATIENCE).unwrap() {
            Read::Entry(entry) => return entry,
            Read::End => panic!("the end was told twice"),
            Read::Nothing => assert!(began.elapsed() < LIMIT, "no record within {LIMIT:?}"),
        }
    }
}
