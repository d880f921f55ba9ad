//! The file as a broker: what the configuration leads to.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use rustix::fs::{Access, access};

use super::append::{AppendFile, lock_within};
use super::bench_target::FileBenchTarget;
use super::dead_letters::FileLog;
use super::fault;
use super::publish::FileSink;
use super::settings::{FileSettings, RelayLock, folder, lock_path};
use crate::base::error::Fault;
use crate::base::event::{CloudEventsBinding, MessagingNames};
use crate::base::finding::Finding;
use crate::dead_letter::writer::DeadLetterAddress;
use crate::sink::bench_target::BenchTarget;
use crate::sink::broker::{Broker, Requirements, RouteRules, SinkKind, StartupCheck, read_section};
use crate::sink::log::{DeadLetterLog, ReadFrom};
use crate::sink::publish::Sink;

/// How long a lock is waited for: a relay that is ending holds it for some moments, and so does a
/// child process until it runs its own program.
const LOCK_WITHIN: Duration = Duration::from_secs(1);

pub(in crate::sink) const SINK: SinkKind = SinkKind {
    name: "file",
    serves_consumers: false,
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

    /// Keeps a second relay from writing the same file, until this process ends.
    fn lock_relay(&self) -> Result<(), Fault> {
        let path = lock_path(&self.path);
        let mut held = self.relay_lock.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_some() {
            return Ok(());
        }
        let options = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        let file = options.map_err(|error| fault::unusable(&path, &error))?;
        let locked = lock_within(&file, LOCK_WITHIN, &AtomicBool::new(false));
        if !locked.map_err(|error| fault::unusable(&path, &error))? {
            return Err(fault::locked(&self.path, &path));
        }
        *held = Some(file);
        Ok(())
    }
}

impl Broker for FileSettings {
    fn kind(&self) -> &'static SinkKind {
        &SINK
    }

    fn open(&self, check: Option<&StartupCheck<'_>>) -> Result<Box<dyn Sink>, Vec<Fault>> {
        let mut files = [&self.path, &self.dead_letters].map(|path| AppendFile::new(path));
        if let Some(StartupCheck { required, .. }) = check {
            let count = self.files(required).len();
            if required.dead_letters.is_some() && !self.dead_letters.exists() {
                let path = self.dead_letters.display();
                tracing::warn!(code = "sink.dead-letter-file-made", %path, "the file of dead letters does not exist and is created");
            }
            let faults: Vec<Fault> = files[..count].iter_mut().filter_map(open_fault).collect();
            if !faults.is_empty() {
                return Err(faults);
            }
            self.lock_relay()?;
        }
        let [events, dead_letters] = files;
        Ok(Box::new(FileSink::open(self, events, dead_letters)?))
    }

    fn inspect(&self, required: &Requirements) -> Vec<Finding> {
        let found = |path: &Path| match look(path) {
            Ok(true) => Finding::ok("sink", format!("{} can be written", path.display())),
            Ok(false) => Finding::ok(
                "sink",
                format!("{} does not exist yet and can be created", path.display()),
            ),
            Err(error) => Finding::fail(fault::unusable(path, &error)),
        };
        self.files(required).into_iter().map(found).collect()
    }

    fn prepare(&self, required: &Requirements, dry_run: bool) -> Result<Vec<String>, Vec<Fault>> {
        let missing = self.files(required).into_iter().filter(|path| !path.exists());
        if dry_run {
            let look = |path: &Path| match look(path) {
                Ok(_) => Ok(format!("file {}", path.display())),
                Err(error) => Err(vec![fault::unusable(path, &error)]),
            };
            return missing.map(look).collect();
        }
        let mut files: Vec<AppendFile> = missing.map(AppendFile::new).collect();
        let faults: Vec<Fault> = files.iter_mut().filter_map(open_fault).collect();
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(files.iter().map(|file| format!("file {}", file.path.display())).collect())
    }

    fn log(
        &self,
        _dead_letters: &DeadLetterAddress,
        from: ReadFrom,
    ) -> Result<Box<dyn DeadLetterLog>, Fault> {
        let log = FileLog::open(&self.dead_letters, &from);
        Ok(Box::new(log.map_err(|error| fault::unusable(&self.dead_letters, &error))?))
    }

    fn for_bench_target(&self, name: &str) -> Result<Arc<dyn Broker>, Fault> {
        // Another file, with a lock of its own.
        let (path, relay_lock) = (self.beside(name), RelayLock::default());
        Ok(Arc::new(FileSettings { path, relay_lock, ..self.clone() }))
    }

    fn create_bench_target(&self, name: &str) -> Result<Box<dyn BenchTarget>, Fault> {
        Ok(Box::new(FileBenchTarget::create(&self.beside(name))?))
    }

    fn bench_target_removal(&self, name: &str) -> String {
        let path = self.beside(name);
        format!("rm -f {} {}", path.display(), lock_path(&path).display())
    }

    fn remove_bench_target(&self, name: &str) -> Result<(), Fault> {
        let path = self.beside(name);
        for path in [lock_path(&path), path] {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(fault::unusable(&path, &error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn open_fault(file: &mut AppendFile) -> Option<Fault> {
    file.open().err().map(|error| fault::unusable(&file.path, &error))
}

/// Whether the file is there; an error if it could not be written or created. Changes nothing.
fn look(path: &Path) -> io::Result<bool> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() => {
            OpenOptions::new().read(true).append(true).open(path).map(|_: File| true)
        }
        Ok(_) => Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file")),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            access(folder(path), Access::WRITE_OK | Access::EXEC_OK)?;
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[path = "broker_tests.rs"]
mod tests;
