//! Reading the dead-letter log: twice, so that payloads are never gathered. The first reading folds
//! it, the second gets at the letters that are meant. With a time to begin at, both begin there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::filter::Filter;
use super::fold::{Fold, Known};
use super::record::{Letter, Record};
use crate::base::error::{Exit, Fault};
use crate::dead_letter::writer::Address;
use crate::sink::Broker;
use crate::sink::log::{From, Log, Read};

const PATIENCE: Duration = Duration::from_millis(200);
/// How long a log may say nothing before its end is reached.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// The dead-letter topic of a broker.
#[derive(Clone, Copy)]
pub struct Archive<'a> {
    /// The broker.
    pub broker: &'a dyn Broker,
    /// Where its dead letters are.
    pub address: &'a Address,
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

impl Archive<'_> {
    /// Opens the log.
    pub fn reader(&self, from: From) -> Result<Reader, Fault> {
        let log = self.broker.log(self.address, from)?;
        Ok(Reader { log, records: 0, foreign: 0, silent: Duration::ZERO, ended: false })
    }

    /// Opens the log where the letters that `filter` means begin.
    pub fn reader_for(&self, filter: &Filter) -> Result<Reader, Fault> {
        self.reader(filter.since_unix_us().map_or(From::Beginning, From::Time))
    }

    /// Folds the log, and marks what `filter` means.
    pub fn index(&self, filter: &Filter) -> Result<Index, Fault> {
        let mut reader = self.reader_for(filter)?;
        let mut fold = Fold::default();
        self.each(&mut reader, |record| {
            fold.apply(&record);
            if let Record::Letter(letter) = &record
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
        filter: &Filter,
        index: &Index,
        mut then: impl FnMut(&Letter, &Known) -> Result<bool, Fault>,
    ) -> Result<(), Fault> {
        if index.fold.marked(filter.states()) == 0 {
            return Ok(());
        }
        self.each(&mut self.reader_for(filter)?, |record| match record {
            Record::Letter(letter) => match meant(&index.fold, filter, &letter) {
                Some(known) => then(&letter, &known),
                None => Ok(true),
            },
            Record::Resolution(_) | Record::Foreign => Ok(true),
        })
    }

    /// Reads to the end, or until `then` has enough.
    pub(super) fn each(
        &self,
        reader: &mut Reader,
        mut then: impl FnMut(Record) -> Result<bool, Fault>,
    ) -> Result<(), Fault> {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(interrupted("nothing was changed"));
            }
            match reader.next(PATIENCE)? {
                Next::Record(record) => {
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
pub(super) fn meant(fold: &Fold, filter: &Filter, letter: &Letter) -> Option<Known> {
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
    Record(Record),
    /// Nothing new within the patience.
    Pause,
    /// All that was there when the log was opened has been read; told once.
    End,
}

/// A log, read as records.
pub struct Reader {
    log: Box<dyn Log>,
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
            Read::Entry(entry) => {
                let record = Record::read(entry);
                self.records += 1;
                self.foreign += u64::from(record == Record::Foreign);
                self.silent = Duration::ZERO;
                Ok(Next::Record(record))
            }
            Read::End => {
                self.ended = true;
                Ok(Next::End)
            }
            Read::Nothing => {
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
