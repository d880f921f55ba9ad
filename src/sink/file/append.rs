//! Appends whole lines to a file so that they outlive a crash, and leaves no torn line behind.
//!
//! Several processes may append to one file (a relay, and `walrelay dlq replay` beside it): each write
//! is made under `flock`. The file may be renamed or removed by a log rotation: before each write the
//! path is compared with the open file, and opened again if it leads elsewhere.

use std::fs::{File, OpenOptions};
use std::io::{self, Error, ErrorKind, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::record::BEGINNING;
use super::settings::folder;

/// How long another process may hold the lock.
const LOCK_WITHIN: Duration = Duration::from_secs(5);
/// How much of the end of a file is searched for a write that a crash has torn; no less than what is
/// written at once.
pub(super) const TAIL_BYTES: u64 = 8 << 20;

/// A file that lines are appended to.
#[derive(Debug)]
pub(super) struct AppendFile {
    pub(super) path: PathBuf,
    file: Option<File>,
    /// The length up to which the lines are known to be whole.
    whole: u64,
}

impl AppendFile {
    pub(super) fn new(path: &Path) -> AppendFile {
        AppendFile { path: path.to_owned(), file: None, whole: 0 }
    }

    #[cfg(test)]
    pub(super) fn opened(path: &Path, options: &OpenOptions) -> AppendFile {
        AppendFile { file: options.open(path).ok(), ..AppendFile::new(path) }
    }

    /// Appends lines, and returns once they are on disk. After an error none of them counts as
    /// written: all must be appended again. A failed `fdatasync` is never repeated alone, because the
    /// kernel may have dropped the pages that it could not write.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        self.open()?;
        let AppendFile { file: Some(file), whole, .. } = self else {
            return Err(ErrorKind::NotFound.into());
        };
        let mut file: &File = file;
        let _locked = Locked::new(file)?;
        let end = remove_torn_line(file, *whole)?;
        let written = file.write_all(lines).and_then(|()| file.sync_data());
        match &written {
            Ok(()) => *whole = end + lines.len() as u64,
            // What was written may be incomplete. If it cannot be removed now, the next write will.
            Err(_) => *whole = if file.set_len(end).is_ok() { end } else { 0 },
        }
        written
    }

    /// Opens or creates the file, unless it is open and the path still leads to it.
    pub(super) fn open(&mut self) -> io::Result<()> {
        if self.file.as_ref().is_some_and(|file| is_at(file, &self.path)) {
            return Ok(());
        }
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o640);
        // Opening a FIFO must not wait for a reader.
        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32);
        let file = options.open(&self.path)?;
        if !file.metadata()?.is_file() {
            return Err(Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
        }
        // A new file is found after a crash only if its folder is on disk, too.
        File::open(folder(&self.path))?.sync_all()?;
        self.whole = {
            let _locked = Locked::new(&file)?;
            remove_torn_line(&file, 0)?
        };
        self.file = Some(file);
        Ok(())
    }
}

/// True if the path leads to this file.
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    let (open, there) = (file.metadata(), std::fs::metadata(path));
    let same = |open: std::fs::Metadata, there: std::fs::Metadata| {
        (open.dev(), open.ino()) == (there.dev(), there.ino())
    };
    open.is_ok_and(|open| there.is_ok_and(|there| same(open, there)))
}

/// The exclusive lock of a file, released when dropped.
struct Locked<'a>(&'a File);

impl Locked<'_> {
    fn new(file: &File) -> io::Result<Locked<'_>> {
        let deadline = Instant::now() + LOCK_WITHIN;
        loop {
            match flock(file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Locked(file)),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let seconds = LOCK_WITHIN.as_secs();
                    let what = format!("another process has locked it for {seconds} s");
                    return Err(Error::new(ErrorKind::WouldBlock, what));
                }
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // The lock ends with the file at the latest.
        let _unlocked = flock(self.0, FlockOperation::Unlock).is_ok();
    }
}

/// Removes what a crash has left of a write: it was never confirmed, and will be written again. Returns
/// the length of the file. A file whose last line somebody else left open is not touched.
fn remove_torn_line(file: &File, whole: u64) -> io::Result<u64> {
    let length = file.metadata()?.len();
    if length == whole {
        return Ok(length);
    }
    let end = whole_lines(file, length)?;
    if end == length {
        return Ok(length);
    }
    let mut torn = vec![0; BEGINNING.len().min((length - end) as usize)];
    file.read_exact_at(&mut torn, end)?;
    let written = torn.iter().position(|byte| *byte == 0).unwrap_or(torn.len());
    if !BEGINNING.starts_with(&torn[..written]) {
        let what = "its last line has no end, and walrelay did not write it";
        return Err(Error::new(ErrorKind::InvalidData, what));
    }
    tracing::warn!(
        bytes = length - end,
        offset = end,
        "removing a line that a crash left incomplete"
    );
    file.set_len(end)?;
    Ok(end)
}

/// Up to where a file of this length consists of whole lines. After a power failure the end of the last
/// write may be there and its middle be NUL bytes, which no line contains.
pub(super) fn whole_lines(file: &File, length: u64) -> io::Result<u64> {
    let mut size = TAIL_BYTES;
    loop {
        let from = length.saturating_sub(size);
        let mut tail = vec![0; (length - from) as usize];
        file.read_exact_at(&mut tail, from)?;
        let sound = tail.iter().position(|byte| *byte == 0).unwrap_or(tail.len());
        match tail[..sound].iter().rposition(|byte| *byte == b'\n') {
            Some(at) => return Ok(from + at as u64 + 1),
            None if from == 0 => return Ok(0),
            None => size *= 4,
        }
    }
}

#[cfg(test)]
#[path = "append_tests.rs"]
mod tests;
