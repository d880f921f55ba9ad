//! The state file: which file it is, who may use it, and its bytes.

mod memory;

use std::fs::{File, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    Access, AtFlags, CWD, FallocateFlags, IFlags, accessat, fallocate, ioctl_getflags,
    ioctl_setflags, statvfs,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use walrelay_core::relay::ports::{FileBytes, StateBytes, StateFileSource};
use walrelay_core::relay::state_file::StateFile;
use walrelay_core::relay::state_file::header::{BYTES, MAGIC_WORD, VERSION_MASK, WORDS};

use crate::base::error::{Exit, Fault};
use crate::base::fingerprint::fingerprint;
use crate::base::os_ffi::SharedWords;
use crate::base::path::folder;

/// Set by systemd for a service with `StateDirectory=`: absolute paths, separated by colons.
const DIRECTORY_VARIABLE: &str = "STATE_DIRECTORY";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// The file never has more bytes than this.
const ROOM: u64 = 9_000_000;
/// The consequence of a relay without the file; of one that polls only the first half.
const WITHOUT: &str = "no state file: an event that kills the process is not recognised, and after a crash a relay of a slot publishes again what the broker confirmed last; delivery.state_file names one";

/// Opens the file. Only a file that was configured must be usable.
pub(crate) fn open(configured: Option<&Path>, slot: &str) -> Result<StateFile, Fault> {
    let Some(path) = path_of(configured, slot) else {
        tracing::info!("{WITHOUT}");
        return Ok(StateFile::new(None));
    };
    match create(&path) {
        Ok(file) => Ok(StateFile::new(Some(Box::new(OpenFile(file))))),
        Err(error) if configured.is_some() => Err(unusable(&path, &error)),
        Err(error) => {
            tracing::warn!(code = "state-file.unused", path = %path.display(), error = %error, "{WITHOUT}");
            Ok(StateFile::new(None))
        }
    }
}

/// A file that is not locked yet.
#[derive(Debug)]
struct OpenFile(File);

impl StateFileSource for OpenFile {
    fn hold(self: Box<Self>) -> std::io::Result<Arc<dyn StateBytes>> {
        let OpenFile(file) = *self;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
        let words = SharedWords::map(&file, WORDS)?;
        Ok(Arc::new(LockedFile { file, words }))
    }

    fn note(&self, word: usize, value: u64) -> std::io::Result<()> {
        self.0.write_all_at(&value.to_ne_bytes(), word as u64 * 8)
    }

    fn boot(&self) -> Option<u64> {
        std::fs::read_to_string(BOOT_ID).ok().map(|id| fingerprint(id.trim()))
    }
}

/// The file of the process that holds the slot, locked.
#[derive(Debug)]
struct LockedFile {
    file: File,
    words: SharedWords,
}

impl FileBytes for LockedFile {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> std::io::Result<()> {
        self.file.read_exact_at(bytes, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> std::io::Result<()> {
        self.file.write_all_at(bytes, at)
    }

    fn sync(&self) -> std::io::Result<()> {
        self.file.sync_data()
    }
}

impl StateBytes for LockedFile {
    fn load(&self, word: usize) -> u64 {
        self.words.load(word)
    }

    fn store(&self, word: usize, value: u64) {
        self.words.store(word, value);
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // The close alone leaves the lock to a child that was forked a moment ago and has yet to exec.
        rustix::fs::flock(&self.file, rustix::fs::FlockOperation::Unlock).ok();
    }
}

fn unusable(path: &Path, error: &std::io::Error) -> Fault {
    let folder = folder(path);
    let (exit, why, mend) = match error.kind() {
        ErrorKind::NotFound if !folder.exists() => (
            Exit::Usage,
            format!("folder {} does not exist", folder.display()),
            format!(
                "as the user of the relay (or as root, with -o USER): install -d -m 700 {folder:?}; or name a file in another \
                 folder, or remove the key"
            ),
        ),
        // That may change by itself.
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => (
            Exit::Failed,
            error.to_string(),
            format!("make room, the file needs 9 MB: df -h {folder:?}"),
        ),
        _ => (
            Exit::Usage,
            error.to_string(),
            "name a file that this user may write, of its own for each relay; or remove the key"
                .to_owned(),
        ),
    };
    refusal(path, exit, &why, mend)
}

/// The fault of a relay that would overwrite the stop that a relay of `slot` has kept.
fn stop_of_other_slot(path: &Path, slot: &str) -> Fault {
    let why = format!("it holds a stop of slot {slot} that nobody has acknowledged");
    let mend = format!(
        "give this relay a file of its own; or acknowledge that stop, with the configuration of its \
         relay: walrelay --set source.slot={slot} resume"
    );
    refusal(path, Exit::Usage, &why, mend)
}

fn refusal(path: &Path, exit: Exit, why: &str, mend: String) -> Fault {
    Fault::new(
        exit,
        "state-file.unusable",
        format!("the state file cannot be used: {why}"),
        format!("delivery.state_file = {path:?}"),
        mend,
    )
}

pub(super) use self::memory::{inspect, look as look_at_memory, open as open_memory};

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
fn create(path: &Path) -> std::io::Result<File> {
    let file = options().create(true).truncate(false).mode(0o600).open(path)?;
    let found = length(&file)?;
    if file.metadata()?.mode() & 0o022 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    if found == 0 {
        if let Ok(flags) = ioctl_getflags(&file) {
            // On btrfs a full file system would end the process (SIGBUS) when a page is copied to be written.
            ioctl_setflags(&file, flags | IFlags::NOCOW).ok();
        }
        check_room(folder(path), ROOM)?;
        reserve(&file)?;
    }
    if let Some(missing) = BYTES.checked_sub(found as usize) {
        // Written, not only extended: so a full file system is reported here and not as SIGBUS.
        file.write_all_at(&vec![0; missing], found)?;
    }
    Ok(file)
}

/// Reserves the room of a new file, where the file system can: on one that is full, a block that is
/// missing in the mapped page ends the process (SIGBUS), and a stop could not be written.
fn reserve(file: &File) -> std::io::Result<()> {
    match fallocate(file, FallocateFlags::KEEP_SIZE, 0, ROOM) {
        Err(full @ (Errno::NOSPC | Errno::DQUOT)) => Err(full.into()),
        _ => Ok(()),
    }
}

/// Opens the file as it is.
fn look(path: &Path) -> std::io::Result<File> {
    let file = options().open(path)?;
    length(&file).map(|_| file)
}

/// Whether [`create`] would succeed, as far as that can be known without creating the file.
fn check(path: &Path) -> std::io::Result<()> {
    match look(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let (folder, may) = (folder(path), Access::WRITE_OK | Access::EXEC_OK);
            accessat(CWD, folder, may, AtFlags::EACCESS)?;
            check_room(folder, ROOM)
        }
        looked => match looked?.metadata()?.len() {
            // A start on a full file system has left it empty.
            0 => check_room(folder(path), ROOM),
            _ => Ok(()),
        },
    }
}

/// Whether the file system has room for so many bytes, as far as it says how many it has.
fn check_room(folder: &Path, bytes: u64) -> std::io::Result<()> {
    let found = statvfs(folder)?;
    let free = if geteuid().is_root() { found.f_bfree } else { found.f_bavail };
    let is_full = found.f_blocks > 0 && free.saturating_mul(found.f_frsize) < bytes;
    if is_full { Err(Errno::NOSPC.into()) } else { Ok(()) }
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
    if found.uid() != geteuid().as_raw() {
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

#[cfg(test)]
#[path = "state_file_tests.rs"]
mod tests;
