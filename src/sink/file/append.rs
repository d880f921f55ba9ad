//! Appends whole lines to a file so that they outlive a crash, and leaves no torn line behind.
//!
//! Several processes may append to one file (a relay, and `walrelay dlq replay` beside it): each
//! write is made under `flock`. The file may be renamed or removed by a log rotation: before each
//! write the path is compared with the open file, and opened again if it leads elsewhere.

use std::fs::{File, OpenOptions};
use std::io::{self, Error, ErrorKind, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::record::BEGINNING;
use super::settings::folder;

/// How long another process may hold the lock.
const LOCK_WITHIN: Duration = Duration::from_secs(5);
/// How much of the end of a file is searched for a write that a crash has torn. At most this is
/// written at once, unless a single line is longer.
pub(super) const TAIL_BYTES: u64 = 8 << 20;
const BLOCK_BYTES: u64 = 1 << 20;

/// A file that lines are appended to.
#[derive(Debug)]
pub(super) struct AppendFile {
    pub(super) path: PathBuf,
    file: Option<File>,
    /// The length up to which the lines are known to be whole.
    whole: u64,
    /// Set when nothing may be written any more.
    pub(super) closed: Arc<AtomicBool>,
}

impl AppendFile {
    pub(super) fn new(path: &Path) -> AppendFile {
        AppendFile { path: path.to_owned(), file: None, whole: 0, closed: Arc::default() }
    }

    #[cfg(test)]
    pub(super) fn opened(path: &Path, options: &OpenOptions) -> AppendFile {
        AppendFile { file: options.open(path).ok(), ..AppendFile::new(path) }
    }

    /// Appends lines, and returns once they are on disk. After an error none of them counts as
    /// written: all must be appended again. A failed `fdatasync` is never repeated alone, because
    /// the kernel may have dropped the pages that it could not write.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        self.open()?;
        let AppendFile { file: Some(file), whole, closed, .. } = self else {
            return Err(ErrorKind::NotFound.into());
        };
        let mut file: &File = file;
        let _locked = Locked::new(file, closed)?;
        let end = remove_torn_write(file, *whole)?;
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
            let _locked = Locked::new(&file, &self.closed)?;
            let length = remove_torn_write(&file, 0)?;
            rewrite_end(&file, length)?;
            length
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

/// Takes the exclusive lock of a file. False if another process holds it all the time.
pub(super) fn lock_within(file: &File, within: Duration, closed: &AtomicBool) -> io::Result<bool> {
    let deadline = Instant::now() + within;
    loop {
        let locked = flock(file, FlockOperation::NonBlockingLockExclusive);
        if closed.load(Ordering::SeqCst) {
            return Err(Error::other("the sink was closed"));
        }
        match locked {
            Ok(()) => return Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(false),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// The exclusive lock of a file, released when dropped.
struct Locked<'a>(&'a File);

impl Locked<'_> {
    fn new<'a>(file: &'a File, closed: &AtomicBool) -> io::Result<Locked<'a>> {
        if lock_within(file, LOCK_WITHIN, closed)? {
            return Ok(Locked(file));
        }
        let what = format!("another process has locked it for {} s", LOCK_WITHIN.as_secs());
        Err(Error::new(ErrorKind::WouldBlock, what))
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // The lock ends with the file at the latest.
        let _unlocked = flock(self.0, FlockOperation::Unlock).is_ok();
    }
}

/// Removes what a crash has left of a write: it was never confirmed, and will be written again.
/// Returns the length of the file. What walrelay did not write is not touched.
fn remove_torn_write(file: &File, whole: u64) -> io::Result<u64> {
    let length = file.metadata()?.len();
    if length == whole {
        return Ok(length);
    }
    let end = whole_lines(file, length)?;
    if end == length {
        return Ok(length);
    }
    if !is_our_line(file, end, length)? {
        let what = "its last line has no end or contains NUL bytes, and walrelay did not write it";
        return Err(Error::new(ErrorKind::InvalidData, what));
    }
    let bytes = length - end;
    tracing::warn!(
        code = "sink.file-cut",
        bytes,
        offset = end,
        "removing a write that a crash left incomplete"
    );
    file.set_len(end)?;
    Ok(end)
}

/// Whether the line at this offset begins as ours do, as far as it was written. If nothing of its
/// beginning was, the line before it decides.
fn is_our_line(file: &File, at: u64, length: u64) -> io::Result<bool> {
    let mut begin = vec![0; BEGINNING.len().min((length - at) as usize)];
    file.read_exact_at(&mut begin, at)?;
    match begin.iter().position(|byte| *byte == 0) {
        Some(0) if at > 0 => {
            let before = line_before(file, at - 1)?;
            is_our_line(file, before, at)
        }
        Some(0) => is_nul(file, length),
        written => Ok(BEGINNING.starts_with(&begin[..written.unwrap_or(begin.len())])),
    }
}

fn is_nul(file: &File, length: u64) -> io::Result<bool> {
    let mut found = true;
    for_blocks_backwards(file, length, |_, block| {
        found = block.iter().all(|byte| *byte == 0);
        found
    })?;
    Ok(found)
}

/// The offset behind the last newline before `end`.
fn line_before(file: &File, end: u64) -> io::Result<u64> {
    let mut begin = 0;
    for_blocks_backwards(file, end, |from, block| {
        let newline = block.iter().rposition(|byte| *byte == b'\n');
        begin = newline.map_or(0, |at| from + at as u64 + 1);
        newline.is_none()
    })?;
    Ok(begin)
}

/// The length up to which a file consists of whole lines. After a power failure the end of the last
/// write may be on disk while its middle is NUL bytes, which no line contains. So the end of the
/// file is searched for them, at least back to the beginning of the last line.
pub(super) fn whole_lines(file: &File, length: u64) -> io::Result<u64> {
    let (mut nul, mut whole, mut last_line) = (length, None, None);
    for_blocks_backwards(file, length, |from, block| {
        if let Some(at) = block.iter().position(|byte| *byte == 0) {
            (nul, whole) = (from + at as u64, None);
        }
        let newline_before = |end: u64| {
            let before = &block[..block.len().min(end.saturating_sub(from) as usize)];
            before.iter().rposition(|byte| *byte == b'\n').map(|at| from + at as u64 + 1)
        };
        whole = whole.or_else(|| newline_before(nul));
        last_line = last_line.or_else(|| newline_before(length - 1));
        let is_searched = length - from >= TAIL_BYTES && last_line.is_some();
        !(is_searched && whole.is_some())
    })?;
    Ok(whole.unwrap_or(0))
}

/// Reads the first `length` bytes in blocks, the last one first, as long as `next` returns true.
fn for_blocks_backwards(
    file: &File,
    length: u64,
    mut next: impl FnMut(u64, &[u8]) -> bool,
) -> io::Result<()> {
    let mut buffer = vec![0; length.min(BLOCK_BYTES) as usize];
    let mut end = length;
    while end > 0 {
        let from = end.saturating_sub(BLOCK_BYTES);
        let block = &mut buffer[..(end - from) as usize];
        file.read_exact_at(block, from)?;
        if !next(from, block) {
            break;
        }
        end = from;
    }
    Ok(())
}

/// Writes the end of the file again and syncs it. The kernel drops pages that it could not write,
/// after reporting that to the process that synced them. If that process was killed then, they can
/// still be read, and no later sync writes them.
fn rewrite_end(file: &File, length: u64) -> io::Result<()> {
    // Without O_APPEND, which would make Linux ignore the offset.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let again = OpenOptions::new().write(true).open(path)?;
    let mut outcome = Ok(());
    for_blocks_backwards(file, length, |from, block| {
        outcome = again.write_all_at(block, from);
        outcome.is_ok() && length - from < TAIL_BYTES
    })?;
    outcome.and_then(|()| again.sync_data())
}

#[cfg(test)]
#[path = "append_tests.rs"]
mod tests;
