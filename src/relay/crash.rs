//! Remembers, across crashes, which event was being processed.
//!
//! An event that kills the process would kill it again after every restart. So the position of the
//! event in hand stands in a small file that is mapped into memory: two stores for each event, no
//! system call, and the kernel keeps them when the process dies. The next process counts: an event
//! on which three processes in a row have died is not handed to the sink again.
//!
//! * An event is in hand while it is decoded, shaped and handed over. A process that dies while it
//!   waits has no event in hand, and blames none.
//! * Positions apply to one slot on one timeline of one system. What the file holds of another is
//!   ignored.
//! * The file belongs to one process at a time, the one that holds the slot: it is locked.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use sha2::{Digest as _, Sha256};

use crate::base::error::{Exit, Fault};
use crate::base::event::Position;
use crate::base::finding::Finding;
use crate::base::lsn::Lsn;
use crate::base::os_ffi::SharedWords;

/// An event is given up after this many deaths.
const DEATHS_MAX: u64 = 3;
/// Logged when the default file cannot be used.
const WITHOUT: &str = "no crash file: an event that kills the process will not be recognised; delivery.crash_file names another";
const WORDS: usize = 8;
const BYTES: usize = WORDS * 8;

/// Indexes of the file's words.
const MAGIC: usize = 0;
/// Fingerprint of slot, timeline and system.
const WHERE: usize = 1;
/// Of the transaction that is being read.
const COMMIT_LSN: usize = 2;
/// One more than the ordinal of the event in hand; 0 for none.
const IN_HAND: usize = 3;
/// The event that the last death is blamed on, and how many deaths in a row.
const BLAMED_LSN: usize = 4;
const BLAMED_ORDINAL: usize = 5;
const DEATHS: usize = 6;

/// "walrelay" and the version of the layout.
const MAGIC_WORD: u64 = 0x7761_6C72_656C_6101;

#[derive(Debug, Default)]
pub(super) struct CrashGuard {
    file: Option<File>,
    words: Option<SharedWords>,
    deadly: Option<(Position, u64)>,
    /// Ordinal of the deadly event, if it is in the transaction that is being read.
    deadly_here: Option<u64>,
}

impl CrashGuard {
    /// Opens the file. Only a file that was configured must be usable.
    pub(super) fn open(configured: Option<&Path>, slot: &str) -> Result<CrashGuard, Fault> {
        let path = configured.map_or_else(|| default_path(slot), Path::to_owned);
        match open(&path) {
            Ok(file) => Ok(CrashGuard { file: Some(file), ..CrashGuard::default() }),
            Err(error) if configured.is_some() => Err(unusable(&path, &error)),
            Err(error) => {
                tracing::warn!(path = %path.display(), error = %error, "{WITHOUT}");
                Ok(CrashGuard::default())
            }
        }
    }

    /// This process holds the slot now, so the process that wrote the file before is dead. Called
    /// for each session.
    pub(super) fn takes_over(&mut self, system_id: &str, timeline: u32, slot: &str) {
        let place = fingerprint(&format!("{system_id}/{timeline}/{slot}"));
        let first = self.file.is_some();
        if let Some(file) = self.file.take() {
            match map(&file) {
                Ok(words) => self.words = Some(words),
                Err(error) => {
                    tracing::warn!(error = %error, "the crash file is not used: is it another relay's?");
                }
            }
        }
        let Some(words) = &self.words else { return };
        let found: [u64; WORDS] = std::array::from_fn(|index| words.load(index));
        let verdict = Verdict::of(&found, place);
        // Cleared first, so that a death between two stores is not counted twice.
        words.store(IN_HAND, 0);
        words.store(MAGIC, MAGIC_WORD);
        words.store(WHERE, place);
        words.store(BLAMED_LSN, verdict.blamed.commit_lsn.to_wire());
        words.store(BLAMED_ORDINAL, verdict.blamed.ordinal);
        words.store(DEATHS, verdict.deaths);
        if first && verdict.deaths > 0 {
            let (lsn, deaths) = (verdict.blamed.commit_lsn, verdict.deaths);
            tracing::warn!(lsn = %lsn, deaths, "the process has died on an event of this transaction");
        }
        let deadly = verdict.deaths >= DEATHS_MAX;
        self.deadly = deadly.then_some((verdict.blamed, verdict.deaths));
    }

    /// The events that follow are of this transaction.
    #[inline]
    pub(super) fn begins(&mut self, commit_lsn: Lsn) {
        if let Some(words) = &self.words {
            words.store(COMMIT_LSN, commit_lsn.to_wire());
        }
        let here = self.deadly.filter(|(position, _)| position.commit_lsn == commit_lsn);
        self.deadly_here = here.map(|(position, _)| position.ordinal);
    }

    /// This event of the transaction is in hand. If it must not be handed over: how many processes
    /// have died on it.
    #[inline]
    pub(super) fn takes(&mut self, ordinal: u64) -> Option<u64> {
        if let Some(words) = &self.words {
            words.store(IN_HAND, ordinal + 1);
        }
        match self.deadly_here {
            Some(deadly) if deadly == ordinal => self.deadly.map(|(_, deaths)| deaths),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn lets_go(&mut self) {
        if let Some(words) = &self.words {
            words.store(IN_HAND, 0);
        }
    }
}

/// Whether [`CrashGuard::open`] would succeed. Creates and changes nothing.
pub(super) fn inspect(configured: Option<&Path>, slot: &str) -> Finding {
    const TOPIC: &str = "crash-file";
    let path = configured.map_or_else(|| default_path(slot), Path::to_owned);
    let shown = path.display();
    match look(&path) {
        Ok(()) => Finding::ok(TOPIC, format!("crash file {shown} can be used")),
        Err(error) if configured.is_some() => Finding::fail(unusable(&path, &error)),
        Err(error) => Finding::warn(TOPIC, format!("{WITHOUT} ({shown}: {error})")),
    }
}

fn unusable(path: &Path, error: &std::io::Error) -> Fault {
    Fault::new(
        Exit::Usage,
        "crash-file.unusable",
        format!("the crash file cannot be used: {error}"),
        format!("delivery.crash_file = {path:?}"),
        "name a file that this user may write, of its own for each relay; or remove the key",
    )
}

/// The event that is blamed for the deaths found in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Verdict {
    blamed: Position,
    deaths: u64,
}

impl Verdict {
    fn of(found: &[u64; WORDS], place: u64) -> Verdict {
        if found[MAGIC] != MAGIC_WORD || found[WHERE] != place {
            return Verdict::default();
        }
        let at = |lsn: usize, ordinal| Position { commit_lsn: Lsn::from_wire(found[lsn]), ordinal };
        let before =
            Verdict { blamed: at(BLAMED_LSN, found[BLAMED_ORDINAL]), deaths: found[DEATHS] };
        let Some(ordinal) = found[IN_HAND].checked_sub(1) else { return before };
        let blamed = at(COMMIT_LSN, ordinal);
        let again = before.deaths > 0 && before.blamed == blamed;
        Verdict { blamed, deaths: if again { before.deaths.saturating_add(1) } else { 1 } }
    }
}

fn default_path(slot: &str) -> PathBuf {
    std::env::temp_dir().join(format!("walrelay-{slot}.crash"))
}

/// A hash that fits into a word of the file.
pub(super) fn fingerprint(text: &str) -> u64 {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Creates or opens the file in its full size. The directory may be writable by everybody, so a
/// symbolic link is not followed.
fn open(path: &Path) -> std::io::Result<File> {
    let file = options().create(true).truncate(false).mode(0o600).open(path)?;
    if is_empty(&file)? {
        // Written, not only extended: so a full file system is reported here and not as SIGBUS.
        file.write_all_at(&[0; BYTES], 0)?;
    }
    Ok(file)
}

/// Whether [`open`] would succeed, as far as that can be known without creating the file.
fn look(path: &Path) -> std::io::Result<()> {
    match options().open(path) {
        Ok(file) => is_empty(&file).map(drop),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let may = Access::WRITE_OK | Access::EXEC_OK;
            Ok(accessat(CWD, folder.unwrap_or(Path::new(".")), may, AtFlags::EACCESS)?)
        }
        Err(error) => Err(error),
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options
}

/// Whether the file is still empty. Refuses what is no crash file, and a file that another user
/// could change or truncate while it is mapped.
fn is_empty(file: &File) -> std::io::Result<bool> {
    let no = |text: &str| Err(std::io::Error::other(text));
    let found = file.metadata()?;
    if !found.is_file() {
        return no("it is not a file");
    }
    if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o022 != 0 {
        return no("another user can write it");
    }
    if found.len() == 0 {
        return Ok(true);
    }
    let mut first = [0; 8];
    let whole = found.len() == BYTES as u64;
    if !whole || file.read_exact_at(&mut first, 0).is_err() {
        return no("it holds something else");
    }
    match u64::from_ne_bytes(first) {
        0 | MAGIC_WORD => Ok(false),
        _ => no("it holds something else"),
    }
}

fn map(file: &File) -> std::io::Result<SharedWords> {
    rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
    SharedWords::map(file, WORDS)
}

#[cfg(test)]
#[path = "crash_tests.rs"]
mod tests;
