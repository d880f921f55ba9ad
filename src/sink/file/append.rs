//! Appends whole lines to a file so that they outlive a crash.
//!
//! A file is locked (`flock`) as long as it is open, so the lines of two relays never mix. A file
//! that relays share is open only while lines are appended to it. If a crash has left an incomplete
//! line, the next append ends that line with a newline: a reader sees that the line is no JSON, and
//! a reader that follows the file never finds another line at its place.

use std::fs::{File, OpenOptions};
use std::io::{self, Error, ErrorKind, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::base::path::folder;

/// How long another process may hold the lock: a relay that is ending holds it for some moments, and
/// so does a child process until it runs its own program.
const LOCK_WITHIN: Duration = Duration::from_millis(500);

/// A file that lines are appended to.
#[derive(Debug)]
pub(super) struct AppendFile {
    pub(super) path: PathBuf,
    file: Option<File>,
    /// Whether other relays append to the file, too.
    is_shared: bool,
}

impl AppendFile {
    pub(super) fn new(path: &Path) -> AppendFile {
        AppendFile { path: path.to_owned(), file: None, is_shared: false }
    }

    /// A file to which other relays append, too, each in its turn.
    pub(super) fn shared(path: &Path) -> AppendFile {
        AppendFile { is_shared: true, ..AppendFile::new(path) }
    }

    #[cfg(test)]
    pub(super) fn opened(path: &Path, options: &OpenOptions) -> AppendFile {
        AppendFile { path: path.to_owned(), file: options.open(path).ok(), is_shared: false }
    }

    /// Appends lines, and returns once they are on disk. After an error none of them counts as
    /// written: all must be appended again. A failed `fdatasync` is never repeated alone, because
    /// the kernel may have dropped the pages that it could not write.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let mut appended = self.append_open(lines);
        if appended.as_ref().is_err_and(|error| error.kind() == ErrorKind::Interrupted) {
            appended = self.append_open(lines);
        }
        self.release();
        appended
    }

    /// Takes the lock of the file, which the next append has then.
    pub(super) fn lock(&mut self) -> io::Result<()> {
        self.open().map(drop)
    }

    /// Closes a file that other relays append to, too, and so unlocks it.
    fn release(&mut self) {
        if self.is_shared {
            self.file = None;
        }
    }

    fn append_open(&mut self, lines: &[u8]) -> io::Result<()> {
        self.open()?;
        let Some(mut file) = self.file.as_ref() else { return Err(renamed()) };
        let end = file.metadata()?.len();
        let written = end_last_line(file, end)
            .and_then(|()| file.write_all(lines))
            .and_then(|()| file.sync_data());
        if written.is_err() {
            // The same lines are written there again. If this fails, too, what is left of the last
            // one is ended then.
            let _removed = file.set_len(end).is_ok();
        } else if !is_at(file, &self.path) {
            // Whoever has renamed it may have read it to its end before the lines were there.
            return Err(renamed());
        }
        written
    }

    /// Checks that lines can be appended, and creates the file if it is missing.
    pub(super) fn check(&mut self) -> io::Result<()> {
        let opened = self.lock();
        self.release();
        opened
    }

    /// Opens or creates the file and locks it, unless it is open and the path still leads to it: no
    /// line goes to a file that was removed.
    fn open(&mut self) -> io::Result<&File> {
        if let Some(file) = self.file.take().filter(|file| is_at(file, &self.path)) {
            return Ok(self.file.insert(file));
        }
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o640);
        // Opening a FIFO must not wait for a reader.
        options.custom_flags(OFlags::NONBLOCK.bits() as i32);
        let file = options.open(&self.path)?;
        if !file.metadata()?.is_file() {
            return Err(Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
        }
        lock(&file)?;
        if !is_at(&file, &self.path) {
            return Err(renamed());
        }
        // A new file is found after a crash only if its folder is on disk, too.
        File::open(folder(&self.path))?.sync_all()?;
        Ok(self.file.insert(file))
    }
}

fn renamed() -> Error {
    Error::new(ErrorKind::Interrupted, "it was renamed meanwhile")
}

fn is_at(file: &File, path: &Path) -> bool {
    let open = file.metadata().map(|it| (it.dev(), it.ino()));
    let there = std::fs::metadata(path).map(|it| (it.dev(), it.ino()));
    open.is_ok_and(|open| there.is_ok_and(|there| there == open))
}

/// Takes the exclusive lock, which ends with the file.
fn lock(file: &File) -> io::Result<()> {
    let deadline = Instant::now() + LOCK_WITHIN;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(Errno::WOULDBLOCK) => {
                return Err(Error::new(ErrorKind::ResourceBusy, "another relay writes it"));
            }
            locked => return Ok(locked?),
        }
    }
}

/// Ends an incomplete line that a crash has left. Its event was never confirmed, and is written again.
fn end_last_line(mut file: &File, end: u64) -> io::Result<()> {
    let mut last = *b"\n";
    if end > 0 {
        file.read_exact_at(&mut last, end - 1)?;
    }
    if last == *b"\n" {
        return Ok(());
    }
    tracing::warn!(code = "sink.file-torn", offset = end, "ending a line that is incomplete");
    file.write_all(b"\n")
}

#[cfg(test)]
#[path = "append_tests.rs"]
mod tests;
