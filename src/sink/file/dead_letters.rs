//! Reads records out of a file while others append to it.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, ErrorKind, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::append::{is_at, whole_lines};
use super::{fault, record};
use crate::base::error::Fault;
use crate::dead_letter::record::LogEntry;
use crate::sink::log::{DeadLetterLog, LogRead, ReadFrom};

/// A file that does not exist is empty: it may be created later.
pub(super) struct FileLog {
    path: PathBuf,
    file: Option<BufReader<File>>,
    /// Where the next line begins: the offset of its record.
    next: u64,
    /// The length of the file when it was opened, until its end is reported.
    end: Option<u64>,
}

impl FileLog {
    /// A file of dead letters is read from the beginning
    /// where a time is asked for, which is allowed.
    pub(super) fn open(path: &Path, from: &ReadFrom) -> io::Result<FileLog> {
        let mut log = FileLog { path: path.to_owned(), file: None, next: 0, end: Some(0) };
        log.find_other()?;
        if let Some(file) = &log.file {
            let file = file.get_ref();
            let end = loop {
                match whole_lines(file, file.metadata()?.len()) {
                    // A write that failed was cut off in the meantime.
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => {}
                    end => break end?,
                }
            };
            log.end = Some(end);
            if *from == ReadFrom::End {
                log.next = end;
                log.rewind()?;
            }
        }
        Ok(log)
    }

    /// Opens the file that the path leads to by now; false if there is no other than the open one.
    fn find_other(&mut self) -> io::Result<bool> {
        if self.file.as_ref().is_some_and(|file| is_at(file.get_ref(), &self.path)) {
            return Ok(false);
        }
        match File::open(&self.path) {
            Ok(file) => (self.file, self.next) = (Some(BufReader::new(file)), 0),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Goes back to where the next line begins. What a crash left of a line may be removed, and
    /// another line written in its place.
    fn rewind(&mut self) -> io::Result<()> {
        let file = self.file.as_mut();
        file.map_or(Ok(()), |file| file.seek(SeekFrom::Start(self.next)).map(drop))
    }

    /// The next line, if it is there and whole.
    pub(super) fn read(&mut self) -> io::Result<Option<LogEntry>> {
        let mut line = Vec::new();
        loop {
            if let Some(file) = &mut self.file {
                file.read_until(b'\n', &mut line)?;
            }
            if line.pop() == Some(b'\n') {
                let entry = record::read(&line, self.next);
                self.next += line.len() as u64 + 1;
                return Ok(Some(entry));
            }
            line.clear();
            self.rewind()?;
            // Only a file that was read to its end is given up for another one.
            if !self.find_other()? {
                return Ok(None);
            }
        }
    }

    fn next_read(&mut self, patience: Duration) -> io::Result<LogRead> {
        if self.end.is_some_and(|end| self.next >= end) {
            self.end = None;
            return Ok(LogRead::End);
        }
        if let Some(entry) = self.read()? {
            return Ok(LogRead::Entry(entry));
        }
        // A file that has become shorter has reached its end, too.
        if self.end.take().is_some() {
            return Ok(LogRead::End);
        }
        std::thread::sleep(patience);
        Ok(LogRead::Nothing)
    }
}

impl DeadLetterLog for FileLog {
    fn next(&mut self, patience: Duration) -> Result<LogRead, Fault> {
        self.next_read(patience).map_err(|error| fault::unusable(&self.path, &error))
    }
}

#[cfg(test)]
#[path = "dead_letters_tests.rs"]
mod tests;
