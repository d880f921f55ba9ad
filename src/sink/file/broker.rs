//! The file as a broker: what the configuration leads to.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::Path;

use rustix::fs::{Access, FlockOperation, access, flock};
use rustix::io::Errno;

use super::append::AppendFile;
use super::fault;
use super::publish::FileSink;
use super::settings::FileSettings;
use crate::base::error::Fault;
use crate::base::event::{CloudEventsBinding, MessagingNames};
use crate::base::finding::Finding;
use crate::base::path::folder;
use crate::dead_letter::writer::DeadLetterAddress;
use crate::sink::broker::{Broker, Requirements, RouteRules, SinkKind, StartupCheck, read_section};
use crate::sink::log::{DeadLetterLog, ReadFrom};
use crate::sink::publish::Sink;

pub(in crate::sink) const SINK: SinkKind = SinkKind {
    name: "file",
    serves_consumers: false,
    reads_dead_letters: false,
    title: "a file",
    read: read_section::<FileSettings>,
    example: Some(include_str!("../../../config/file.toml")),
    client: None,
    // Topics are only a field of each line, so Kafka's rules let the configuration move to Kafka.
    routes: RouteRules::KAFKA,
    binding: CloudEventsBinding::Kafka,
    messaging: MessagingNames::NONE,
    errors: fault::rows,
};

impl FileSettings {
    /// The files that must be there.
    fn files(&self, required: &Requirements) -> Vec<&Path> {
        let dead_letters = required.dead_letters.as_ref().map(|_| &*self.dead_letters);
        [&*self.path].into_iter().chain(dead_letters).collect()
    }
}

impl Broker for FileSettings {
    fn kind(&self) -> &'static SinkKind {
        &SINK
    }

    fn open(&self, check: Option<&StartupCheck<'_>>) -> Result<Box<dyn Sink>, Vec<Fault>> {
        let mut files = [AppendFile::new(&self.path), AppendFile::shared(&self.dead_letters)];
        if let Some(StartupCheck { required, .. }) = check {
            let count = self.files(required).len();
            let faults: Vec<Fault> = files[..count].iter_mut().filter_map(open_fault).collect();
            if !faults.is_empty() {
                return Err(faults);
            }
        }
        let [events, dead_letters] = files;
        Ok(Box::new(FileSink::open(self, events, dead_letters)?))
    }

    fn inspect(&self, required: &Requirements) -> Vec<Finding> {
        let found = |path: &Path| match look(path) {
            Ok(Some(file)) if path == self.path && is_locked(&file) => fault::locked(path),
            Ok(Some(_)) => Finding::ok("sink", format!("{} can be written", path.display())),
            Ok(None) => Finding::ok(
                "sink",
                format!("{} does not exist yet and can be created", path.display()),
            ),
            Err(error) => Finding::fail(fault::unusable(path, &error)),
        };
        self.files(required).into_iter().map(found).collect()
    }

    fn prepare(&self, required: &Requirements, dry_run: bool) -> Result<Vec<String>, Vec<Fault>> {
        let missing = self.files(required).into_iter().filter(|path| !path.exists());
        let make = |path: &Path| {
            let made = match dry_run {
                true => look(path).map(drop),
                false => AppendFile::new(path).check(),
            };
            made.map(|()| format!("file {}", path.display()))
                .map_err(|error| vec![fault::unusable(path, &error)])
        };
        missing.map(make).collect()
    }

    fn log(
        &self,
        _dead_letters: &DeadLetterAddress,
        _from: ReadFrom,
    ) -> Result<Box<dyn DeadLetterLog>, Fault> {
        Err(fault::not_read(&self.dead_letters))
    }
}

fn open_fault(file: &mut AppendFile) -> Option<Fault> {
    file.check().err().map(|error| fault::unusable(&file.path, &error))
}

/// The file, if it is there; an error if it could not be written or created. Changes nothing.
fn look(path: &Path) -> io::Result<Option<File>> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() => {
            OpenOptions::new().read(true).append(true).open(path).map(Some)
        }
        Ok(_) => Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file")),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            access(folder(path), Access::WRITE_OK | Access::EXEC_OK)?;
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Whether a relay writes the file. The shared lock, which ends with the file, excludes no other check.
fn is_locked(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
}

#[cfg(test)]
#[path = "broker_tests.rs"]
mod tests;
