//! Reading the dead-letter topic. Commands read it twice, so that payloads are never gathered: the
//! first reading makes an index, the second one reaches the dead letters that a filter matches.
//! Both begin a minute before the filter's start time, where it has one: clocks differ.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::filter::DeadLetterFilter;
use super::fold::{DeadLetterIndex, KnownDeadLetter};
use super::parse::parse;
use super::record::{CLOCK_SKEW_US, DeadLetter, LogRecord, NotReplayable};
use super::writer::DeadLetterAddress;
use crate::base::error::{Exit, Fault};
use crate::sink::Broker;
use crate::sink::log::{DeadLetterLog, LogRead, ReadFrom, SILENCE_MAX, SILENT};

const PATIENCE: Duration = Duration::from_millis(200);

/// The dead-letter topic of a broker.
#[derive(Clone, Copy)]
pub(crate) struct DeadLetterTopic<'a> {
    pub(crate) broker: &'a dyn Broker,
    pub(crate) address: &'a DeadLetterAddress,
    /// Where the relay's own dead letters are.
    pub(crate) relay_address: &'a DeadLetterAddress,
    /// Ends what is being read or written.
    pub(crate) stop: &'a AtomicBool,
    /// Dead letters that one reading may hold.
    pub(crate) letters_max: usize,
}

impl<'a> DeadLetterTopic<'a> {
    /// The relay's own.
    pub(crate) fn of_relay(
        broker: &'a dyn Broker,
        address: &'a DeadLetterAddress,
        stop: &'a AtomicBool,
    ) -> DeadLetterTopic<'a> {
        let letters_max = usize::MAX;
        DeadLetterTopic { broker, address, relay_address: address, stop, letters_max }
    }

    /// From a time on, also the dead letters that failed then by a clock that is ahead of the one that
    /// gave their records a time.
    pub(crate) fn reader(&self, from: ReadFrom) -> Result<LogReader, Fault> {
        let from = match from {
            ReadFrom::Time(unix_us) => ReadFrom::Time(unix_us.saturating_sub(CLOCK_SKEW_US)),
            from => from,
        };
        let log = self.broker.log(self.address, from)?;
        Ok(LogReader { log, silent: Duration::ZERO, ended: false })
    }

    /// Why the event of a dead letter in this topic cannot be published, as far as its record shows.
    pub(crate) fn not_replayable(&self, letter: &DeadLetter) -> Option<NotReplayable> {
        letter.not_replayable(&[self.address, self.relay_address])
    }

    /// Folds the log, and selects the dead letters that `filter` matches, in whatever state.
    pub(crate) fn index(&self, filter: &DeadLetterFilter) -> Result<DeadLetterIndex, Fault> {
        let mut index = DeadLetterIndex::default();
        self.each(filter.read_from(), |record| {
            index.apply(&record);
            if let LogRecord::DeadLetter(letter) = &record
                && index.known(letter).is_some()
            {
                index.select(letter.id(), filter.matches(letter));
            }
            if index.size() > self.letters_max {
                return Err(too_many(self.letters_max));
            }
            Ok(true)
        })?;
        Ok(index)
    }

    /// Passes every dead letter that `filter` matches to `then`, in the order of the log, until
    /// `then` returns false.
    pub(crate) fn letters(
        &self,
        filter: &DeadLetterFilter,
        index: &DeadLetterIndex,
        mut then: impl FnMut(&DeadLetter, &KnownDeadLetter) -> Result<bool, Fault>,
    ) -> Result<(), Fault> {
        let mut left = index.count_selected(filter.states());
        if left == 0 {
            return Ok(());
        }
        self.each(filter.read_from(), |record| {
            let LogRecord::DeadLetter(letter) = record else { return Ok(true) };
            let Some(known) = index.selected(filter.states(), &letter) else { return Ok(true) };
            left = left.saturating_sub(1);
            Ok(then(&letter, &known)? && left > 0)
        })
    }

    /// Reads to the end, or until `then` returns false.
    pub(super) fn each(
        &self,
        from: ReadFrom,
        mut then: impl FnMut(LogRecord) -> Result<bool, Fault>,
    ) -> Result<(), Fault> {
        let mut reader = self.reader(from)?;
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(interrupted("nothing was changed"));
            }
            match reader.next(PATIENCE)? {
                LogRead::Entry(record) => {
                    if !then(record)? {
                        return Ok(());
                    }
                }
                LogRead::Nothing => {}
                LogRead::End => return Ok(()),
            }
        }
    }
}

/// The code of a fault: a person has stopped the command.
pub(super) const INTERRUPTED: &str = "dead-letter.interrupted";

/// The fault of a command that a person has stopped.
pub(super) fn interrupted(what: &str) -> Fault {
    let mend = "run it again for the rest";
    Fault::new(Exit::Failed, INTERRUPTED, format!("stopped; {what}"), "", mend)
}

/// The code of a fault: a reading is larger than the relay may hold.
pub(super) const TOO_MANY: &str = "dead-letter.too-many";

fn too_many(letters_max: usize) -> Fault {
    Fault::new(
        Exit::Usage,
        TOO_MANY,
        format!("there are more than {letters_max} dead letters to read, more than a relay holds"),
        "since",
        "narrow by the time: since=2h; or use walrelay dlq, whose memory is not the relay's",
    )
}

/// The log, read as records.
pub(crate) struct LogReader {
    log: Box<dyn DeadLetterLog>,
    silent: Duration,
    ended: bool,
}

impl LogReader {
    pub(crate) fn next(&mut self, patience: Duration) -> Result<LogRead<LogRecord>, Fault> {
        match self.log.next(patience)? {
            LogRead::Entry(entry) => {
                self.silent = Duration::ZERO;
                return Ok(LogRead::Entry(parse(entry)));
            }
            LogRead::End => {
                self.ended = true;
                return Ok(LogRead::End);
            }
            LogRead::Nothing => self.silent += patience,
        }
        if self.ended || self.silent <= SILENCE_MAX {
            return Ok(LogRead::Nothing);
        }
        let seconds = SILENCE_MAX.as_secs();
        Err(Fault::new(
            Exit::Sink,
            SILENT,
            format!("the broker has sent nothing of the dead-letter topic for {seconds} s"),
            "the dead-letter topic",
            "walrelay check",
        )
        .passing())
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
