//! The small file in which the relay notes what the next process must know if this one dies: the
//! event in hand ([`crash`]) and which events the broker has confirmed ([`marks`]); and what it must
//! know however this one ends ([`memory`]).
//!
//! Without it nothing is lost. The file belongs to one process at a time, the one that holds the
//! slot: it is locked. What it holds of another slot, timeline or system is ignored.

mod crash;
mod header;
mod marks;
pub(super) mod memory;
mod reports;
#[cfg(test)]
mod testing;

use std::fs::{File, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use self::crash::CrashGuard;
use self::header::{BYTES, MAGIC, MAGIC_WORD, MARK_BYTES, VERSION_MASK, WHERE, WORDS, Words};
use self::marks::{MarkRing, Successor};
use crate::base::error::{Exit, Fault};
use crate::base::finding::Finding;
use crate::base::fingerprint::fingerprint;
use crate::base::lsn::Lsn;
use crate::base::os_ffi::SharedWords;
use crate::delivery::known::Mark;
use crate::delivery::prefix::ConfirmedPrefix;

/// Set by systemd for a service with `StateDirectory=`: absolute paths, separated by colons.
const DIRECTORY_VARIABLE: &str = "STATE_DIRECTORY";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// What a relay without the file does.
const WITHOUT: &str = "no state file: after a crash, what the broker confirmed last is published again, and an event that kills the process is not recognised; delivery.state_file names one";

#[derive(Debug, Default)]
pub(super) struct StateFile {
    /// Opened and not yet locked.
    file: Option<File>,
    words: Option<Words>,
    pub(super) crash: CrashGuard,
    pub(super) marks: MarkRing,
}

/// What the last process has left.
#[derive(Debug, Default)]
pub(super) struct LeftMarks {
    /// In the order in which they were made.
    marks: Vec<u8>,
    pub(super) prefix: Option<ConfirmedPrefix>,
}

impl LeftMarks {
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = Mark> + Clone {
        self.marks.as_chunks::<MARK_BYTES>().0.iter().map(marks::decode)
    }
}

impl StateFile {
    /// Opens the file. Only a file that was configured must be usable.
    pub(super) fn open(configured: Option<&Path>, slot: &str) -> Result<StateFile, Fault> {
        let Some(path) = path_of(configured, slot) else {
            tracing::info!("{WITHOUT}");
            return Ok(StateFile::default());
        };
        match open(&path) {
            Ok(file) => Ok(StateFile { file: Some(file), ..StateFile::default() }),
            Err(error) if configured.is_some() => Err(unusable(&path, &error)),
            Err(error) => {
                tracing::warn!(code = "state-file.unused", path = %path.display(), error = %error, "{WITHOUT}");
                Ok(StateFile::default())
            }
        }
    }

    /// This process holds the slot now, so the process that wrote the file before is dead. Called
    /// for each session. With the position up to which everything is `confirmed` by the slot, the
    /// first call returns the marks that the other process left.
    pub(super) fn takes_over(
        &mut self,
        system_id: &str,
        timeline: u32,
        slot: &str,
        confirmed: Option<Lsn>,
    ) -> LeftMarks {
        let place = fingerprint(&format!("{system_id}/{timeline}/{slot}"));
        let boot = std::fs::read_to_string(BOOT_ID).ok().map(|id| fingerprint(id.trim()));
        self.takes_over_at(place, boot, confirmed)
    }

    fn takes_over_at(
        &mut self,
        place: u64,
        boot: Option<u64>,
        confirmed: Option<Lsn>,
    ) -> LeftMarks {
        let mut left = LeftMarks::default();
        if let Some(file) = self.file.take() {
            match map(&file) {
                Ok(words) => {
                    let same_place = words.load(MAGIC) == MAGIC_WORD && words.load(WHERE) == place;
                    if let Some(confirmed) = confirmed {
                        let successor = Successor { same_place, boot, confirmed };
                        let words = Words::clone(&words);
                        let (marks, prefix) = self.marks.takes_over(file, words, successor);
                        left = LeftMarks { marks, prefix };
                    }
                    self.words = Some(words);
                }
                Err(error) => {
                    tracing::warn!(code = "state-file.unused", error = %error, "the state file is not used: is it another relay's?");
                }
            }
        } else if let Some(confirmed) = confirmed {
            self.marks.reported(confirmed);
        }
        if let Some(words) = &self.words {
            self.crash.takes_over(words, place);
        }
        left
    }
}

/// Whether [`StateFile::open`] would succeed. Creates and changes nothing.
pub(super) fn inspect(configured: Option<&Path>, slot: &str) -> Finding {
    const TOPIC: &str = "state-file";
    let Some(path) = path_of(configured, slot) else { return Finding::warn(TOPIC, WITHOUT) };
    let shown = path.display();
    match check(&path) {
        Ok(()) => Finding::ok(TOPIC, format!("state file {shown} can be used")),
        Err(error) if configured.is_some() => Finding::fail(unusable(&path, &error)),
        Err(error) => Finding::warn(TOPIC, format!("{WITHOUT} ({shown}: {error})")),
    }
}

fn unusable(path: &Path, error: &std::io::Error) -> Fault {
    Fault::new(
        Exit::Usage,
        "state-file.unusable",
        format!("the state file cannot be used: {error}"),
        format!("delivery.state_file = {path:?}"),
        "name a file that this user may write, of its own for each relay; or remove the key",
    )
}

pub(super) fn path_of(configured: Option<&Path>, slot: &str) -> Option<PathBuf> {
    let by_default = || {
        let folders = std::env::var_os(DIRECTORY_VARIABLE)?;
        let first = std::env::split_paths(&folders).next()?;
        first.is_absolute().then(|| first.join(format!("walrelay-{slot}.state")))
    };
    configured.map(Path::to_owned).or_else(by_default)
}

/// Creates or opens the file, which from then on only this user may write: kubelet gives the files
/// of a volume with an `fsGroup` to a group at each start. The directory may be writable by
/// everybody, so a symbolic link is not followed.
fn open(path: &Path) -> std::io::Result<File> {
    let file = options().create(true).truncate(false).mode(0o600).open(path)?;
    let found = length(&file)?;
    if file.metadata()?.mode() & 0o022 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    if let Some(missing) = BYTES.checked_sub(found as usize) {
        // Written, not only extended: so a full file system is reported here and not as SIGBUS.
        file.write_all_at(&vec![0; missing], found)?;
    }
    Ok(file)
}

/// Opens the file as it is.
fn look(path: &Path) -> std::io::Result<File> {
    let file = options().open(path)?;
    length(&file).map(|_| file)
}

/// Whether [`open`] would succeed, as far as that can be known without creating the file.
fn check(path: &Path) -> std::io::Result<()> {
    match look(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let may = Access::WRITE_OK | Access::EXEC_OK;
            Ok(accessat(CWD, folder.unwrap_or(Path::new(".")), may, AtFlags::EACCESS)?)
        }
        looked => looked.map(drop),
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options
}

/// The length of the file. Refuses what is no state file, and a file of another user, who could
/// truncate it while it is mapped.
fn length(file: &File) -> std::io::Result<u64> {
    let no = |text: &str| Err(std::io::Error::other(text));
    let found = file.metadata()?;
    if !found.is_file() {
        return no("it is not a file");
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return no("it belongs to another user");
    }
    if found.len() == 0 {
        return Ok(0);
    }
    let mut first = [0; 8];
    let read = file.read_exact_at(&mut first, 0);
    // That of another version is taken over, and begun anew.
    match u64::from_ne_bytes(first) {
        0 if read.is_ok() && found.len() <= BYTES as u64 => Ok(found.len()),
        word if word & !VERSION_MASK == MAGIC_WORD & !VERSION_MASK => Ok(found.len()),
        _ => no("it holds something else"),
    }
}

fn map(file: &File) -> std::io::Result<Words> {
    rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
    Ok(Words::new(SharedWords::map(file, WORDS)?))
}

#[cfg(test)]
#[path = "state_file_tests.rs"]
mod tests;
