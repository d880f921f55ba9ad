//! Reading the dead-letter log: twice, so that payloads are never gathered. The first reading folds
//! it, the second gets at the letters that are meant. With a time to begin at, both begin there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::filter::DeadLetterFilter;
use super::fold::{Fold, Known};
use super::record::{DeadLetter, LogRecord};
use crate::base::error::{Exit, Fault};
use crate::dead_letter::writer::DeadLetterAddress;
use crate::sink::Broker;
use crate::sink::log::{DeadLetterLog, LogRead, ReadFrom};

const PATIENCE: Duration = Duration::from_millis(200);
/// How long a log may say nothing before its end is reached.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// The dead-letter topic of a broker.
#[derive(Clone, Copy)]
pub struct DeadLetterTopic<'a> {
    /// The broker.
    pub broker: &'a dyn Broker,
    /// Where its dead letters are.
    pub address: &'a DeadLetterAddress,
    /// Ends whatever is under way.
    pub stop: &'a AtomicBool,
}

/// The log, folded, with the letters marked that a filter means.
#[derive(Debug, Default)]
pub struct Index {
    /// What is open.
    pub fold: Fold,
    /// How many records were read for it.
    pub records: u64,
    /// How many of them were neither letters nor resolutions.
    pub foreign: u64,
}

impl DeadLetterTopic<'_> {
    /// Opens the log.
    pub fn reader(&self, from: ReadFrom) -> Result<Reader, Fault> {
        let log = self.broker.log(self.address, from)?;
        Ok(Reader { log, records: 0, foreign: 0, silent: Duration::ZERO, ended: false })
    }

    /// Opens the log where the letters that `filter` means begin.
    pub fn reader_for(&self, filter: &DeadLetterFilter) -> Result<Reader, Fault> {
        self.reader(filter.since_unix_us().map_or(ReadFrom::Beginning, ReadFrom::Time))
    }

    /// Folds the log, and marks what `filter` means.
    pub fn index(&self, filter: &DeadLetterFilter) -> Result<Index, Fault> {
        let mut reader = self.reader_for(filter)?;
        let mut fold = Fold::default();
        self.each(&mut reader, |record| {
            fold.apply(&record);
            if let LogRecord::DeadLetter(letter) = &record
                && fold.known(letter).is_some()
            {
                fold.mark(letter.identity(), filter.matches(letter));
            }
            Ok(true)
        })?;
        Ok(Index { fold, records: reader.records, foreign: reader.foreign })
    }

    /// Hands every letter that `filter` means to `then`, in the order of the log, until that has
    /// enough; how many there are is in the index.
    pub fn letters(
        &self,
        filter: &DeadLetterFilter,
        index: &Index,
        mut then: impl FnMut(&DeadLetter, &Known) -> Result<bool, Fault>,
    ) -> Result<(), Fault> {
        if index.fold.marked(filter.states()) == 0 {
            return Ok(());
        }
        self.each(&mut self.reader_for(filter)?, |record| match record {
            LogRecord::DeadLetter(letter) => match meant(&index.fold, filter, &letter) {
                Some(known) => then(&letter, &known),
                None => Ok(true),
            },
            LogRecord::Resolution(_) | LogRecord::Foreign => Ok(true),
        })
    }

    /// Reads to the end, or until `then` has enough.
    pub(super) fn each(
        &self,
        reader: &mut Reader,
        mut then: impl FnMut(LogRecord) -> Result<bool, Fault>,
    ) -> Result<(), Fault> {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(interrupted("nothing was changed"));
            }
            match reader.next(PATIENCE)? {
                Next::LogRecord(record) => {
                    if !then(record)? {
                        return Ok(());
                    }
                }
                Next::Pause => {}
                Next::End => return Ok(()),
            }
        }
    }
}

/// What is known of a letter, if it is meant.
pub(super) fn meant(fold: &Fold, filter: &DeadLetterFilter, letter: &DeadLetter) -> Option<Known> {
    fold.known(letter).filter(|known| known.marked && filter.states().contains(&known.state))
}

/// The end of something that a person has ended.
pub(super) fn interrupted(what: &str) -> Fault {
    let mend = "run it again for the rest";
    Fault::new(Exit::Failed, "dead-letter.interrupted", format!("stopped; {what}"), "", mend)
}

/// What reading brings.
pub enum Next {
    /// The next record.
    LogRecord(LogRecord),
    /// Nothing new within the patience.
    Pause,
    /// All that was there when the log was opened has been read; told once.
    End,
}

/// A log, read as records.
pub struct Reader {
    log: Box<dyn DeadLetterLog>,
    /// How many records were read.
    pub records: u64,
    /// How many of them were neither letters nor resolutions.
    pub foreign: u64,
    silent: Duration,
    ended: bool,
}

impl Reader {
    /// The next record.
    pub fn next(&mut self, patience: Duration) -> Result<Next, Fault> {
        match self.log.next(patience)? {
            LogRead::Entry(entry) => {
                let record = LogRecord::read(entry);
                self.records += 1;
                self.foreign += u64::from(record == LogRecord::Foreign);
                self.silent = Duration::ZERO;
                Ok(Next::LogRecord(record))
            }
            LogRead::End => {
                self.ended = true;
                Ok(Next::End)
            }
            LogRead::Nothing => {
                self.silent += patience;
                if !self.ended && self.silent > SILENCE_MAX {
                    return Err(silent());
                }
                Ok(Next::Pause)
            }
        }
    }
}

fn silent() -> Fault {
    Fault::new(
        Exit::Sink,
        "dead-letter.silent",
        format!(
            "the broker sends nothing of the dead-letter topic for {} s",
            SILENCE_MAX.as_secs()
        ),
        "the dead-letter topic",
        "walrelay check",
    )
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
