//! A temporary file that `compare` measures through, read while it grows.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::append::AppendFile;
use super::dead_letters::FileLog;
use super::fault;
use crate::base::error::Fault;
use crate::sink::bench_target::{Arrival, BenchTarget};
use crate::sink::log::ReadFrom;

/// How often the end of the file is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(1);

pub(super) struct FileBenchTarget {
    path: PathBuf,
    log: FileLog,
}

impl FileBenchTarget {
    pub(super) fn create(path: &Path) -> Result<FileBenchTarget, Fault> {
        let created = AppendFile::new(path).open();
        let log = created.and_then(|()| FileLog::open(path, &ReadFrom::Beginning));
        let log = log.map_err(|error| fault::unusable(path, &error))?;
        Ok(FileBenchTarget { path: path.to_owned(), log })
    }
}

impl BenchTarget for FileBenchTarget {
    fn kind(&self) -> &'static str {
        "file"
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn consume(&mut self, patience: Duration) -> Result<Option<Arrival>, Fault> {
        let deadline = Instant::now() + patience;
        loop {
            let read = self.log.read().map_err(|error| fault::unusable(&self.path, &error))?;
            let at = Instant::now();
            if let Some(entry) = read {
                return Ok(Some(Arrival { at, value: entry.value.unwrap_or_default() }));
            }
            if at >= deadline {
                return Ok(None);
            }
            std::thread::sleep(LOOK_EVERY.min(deadline - at));
        }
    }
}
