//! Reading the dead-letter log: twice, so that payloads are never gathered. The first reading makes
//! an index, the second gets at the letters that a filter matches. With a time to begin at, both
//! begin there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::filter::DeadLetterFilter;
use super::fold::{DeadLetterIndex, KnownLetter};
use super::parse::parse;
use super::record::{DeadLetter, LogRecord};
use super::writer::DeadLetterAddress;
use crate::base::error::{Exit, Fault};
use crate::sink::Broker;
use crate::sink::log::{DeadLetterLog, LogRead, ReadFrom};

const PATIENCE: Duration = Duration::from_millis(200);
/// How long a log may bring nothing before its end is reached.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// The dead-letter topic of a broker.
#[derive(Clone, Copy)]
pub(crate) struct DeadLetterTopic<'a> {
    pub(crate) broker: &'a dyn Broker,
    pub(crate) address: &'a DeadLetterAddress,
    /// Ends whatever is under way.
    pub(crate) stop: &'a AtomicBool,
}

impl DeadLetterTopic<'_> {
    /// Opens the log.
    pub(crate) fn reader(&self, from: ReadFrom) -> Result<LogReader, Fault> {
        let log = self.broker.log(self.address, from)?;
        Ok(LogReader { log, silent: Duration::ZERO, ended: false })
    }

    /// Opens the log where the letters that `filter` matches begin.
    pub(crate) fn reader_for(&self, filter: &DeadLetterFilter) -> Result<LogReader, Fault> {
        self.reader(filter.since_unix_us().map_or(ReadFrom::Beginning, ReadFrom::Time))
    }

    /// Folds the log, and selects what `filter` matches, in whatever state.
    pub(crate) fn index(&self, filter: &DeadLetterFilter) -> Result<DeadLetterIndex, Fault> {
        let mut index = DeadLetterIndex::default();
        self.each(self.reader_for(filter)?, |record| {
            index.apply(&record);
            if let LogRecord::DeadLetter(letter) = &record
                && index.known(letter).is_some()
            {
                index.select(letter.id(), filter.matches(letter));
            }
            Ok(true)
        })?;
        Ok(index)
    }

    /// Passes every letter that `filter` matches to `then`, in the order of the log, until that
    /// returns false; how many there are is in the index.
    pub(crate) fn letters(
        &self,
        filter: &DeadLetterFilter,
        index: &DeadLetterIndex,
        mut then: impl FnMut(&DeadLetter, &KnownLetter) -> Result<bool, Fault>,
    ) -> Result<(), Fault> {
        if index.count_selected(filter.states()) == 0 {
            return Ok(());
        }
        self.each(self.reader_for(filter)?, |record| match record {
            LogRecord::DeadLetter(letter) => match index.selected(filter.states(), &letter) {
                Some(known) => then(&letter, &known),
                None => Ok(true),
            },
            LogRecord::Resolution(_) | LogRecord::Foreign => Ok(true),
        })
    }

    /// Reads to the end, or until `then` returns false.
    pub(super) fn each(
        &self,
        mut reader: LogReader,
        mut then: impl FnMut(LogRecord) -> Result<bool, Fault>,
    ) -> Result<(), Fault> {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(interrupted("nothing was changed"));
            }
            match reader.next(PATIENCE)? {
                NextRecord::Record(record) => {
                    if !then(record)? {
                        return Ok(());
                    }
                }
                NextRecord::Pause => {}
                NextRecord::End => return Ok(()),
            }
        }
    }
}

/// A person has stopped it.
pub(super) fn interrupted(what: &str) -> Fault {
    let mend = "run it again for the rest";
    Fault::new(Exit::Failed, "dead-letter.interrupted", format!("stopped; {what}"), "", mend)
}

pub(crate) enum NextRecord {
    Record(LogRecord),
    /// Nothing new within the patience.
    Pause,
    /// All that was there when the log was opened has been read; returned once.
    End,
}

/// A log, read as records.
pub(crate) struct LogReader {
    log: Box<dyn DeadLetterLog>,
    silent: Duration,
    ended: bool,
}

impl LogReader {
    pub(crate) fn next(&mut self, patience: Duration) -> Result<NextRecord, Fault> {
        match self.log.next(patience)? {
            LogRead::Entry(entry) => {
                self.silent = Duration::ZERO;
                Ok(NextRecord::Record(parse(entry)))
            }
            LogRead::End => {
                self.ended = true;
                Ok(NextRecord::End)
            }
            LogRead::Nothing => {
                self.silent += patience;
                if self.ended || self.silent <= SILENCE_MAX {
                    return Ok(NextRecord::Pause);
                }
                let seconds = SILENCE_MAX.as_secs();
                Err(Fault::new(
                    Exit::Sink,
                    "dead-letter.silent",
                    format!("the broker sends nothing of the dead-letter topic for {seconds} s"),
                    "the dead-letter topic",
                    "walrelay check",
                ))
            }
        }
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
