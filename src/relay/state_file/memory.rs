//! The region of the state file that is read and written without its lock.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use walrelay_core::relay::ports::FileBytes;
use walrelay_core::relay::state_file::memory::{Memory, Remembered};

use crate::base::error::Fault;
use crate::base::finding::Finding;

#[derive(Debug)]
struct Region {
    file: File,
    path: PathBuf,
}

impl Region {
    /// Whether the next process would open this file. A stop that is written to a removed file is kept
    /// nowhere.
    fn is_at_path(&self) -> io::Result<bool> {
        let (own, found) = (self.file.metadata()?, std::fs::symlink_metadata(&self.path)?);
        Ok((own.dev(), own.ino()) == (found.dev(), found.ino()))
    }
}

impl FileBytes for Region {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        if !self.is_at_path()? {
            return Err(io::Error::other("another file is in its place"));
        }
        self.file.write_all_at(bytes, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Opens the region, which is made if it is missing. Only a file that was configured must be
/// usable; [`super::open`] says why another one is not. A file with a stop of another slot is
/// refused: this relay would overwrite the stop.
pub(in crate::relay) fn open(
    configured: Option<&Path>,
    slot: &str,
) -> Result<Option<(Memory, Remembered)>, Fault> {
    let Some(path) = super::path_of(configured, slot) else { return Ok(None) };
    with(super::create(&path), path, configured.is_some(), slot)
}

/// The same where the file exists. Nothing is made or changed.
pub(in crate::relay) fn look(
    configured: Option<&Path>,
    slot: &str,
) -> Result<Option<(Memory, Remembered)>, Fault> {
    let path = super::path_of(configured, slot).filter(|path| path.exists());
    let Some(path) = path else { return Ok(None) };
    with(super::look(&path), path, configured.is_some(), slot)
}

/// Whether [`super::open`] and [`open`] would succeed. Creates, changes and locks nothing: a relay
/// that starts at this moment tries the lock only once.
pub(in crate::relay) fn inspect(configured: Option<&Path>, slot: &str) -> Finding {
    const TOPIC: &str = "state-file";
    let Some(path) = super::path_of(configured, slot) else {
        return Finding::warn(TOPIC, super::WITHOUT);
    };
    let shown = path.display();
    let looked = match super::check(&path) {
        Ok(()) => look(configured, slot),
        Err(error) if configured.is_some() => Err(super::unusable(&path, &error)),
        Err(error) => {
            return Finding::warn(TOPIC, format!("{} ({shown}: {error})", super::WITHOUT));
        }
    };
    match looked {
        Err(fault) => Finding::fail(fault),
        Ok(Some((_, found))) if !found.slot.is_empty() && found.slot != slot => Finding::warn(
            TOPIC,
            format!(
                "a relay of slot {} has written the state file {shown}: unless that relay is not used any more, give this one a delivery.state_file of its own, or one of the two runs without the file",
                found.slot
            ),
        ),
        Ok(_) => Finding::ok(TOPIC, format!("state file {shown} can be used")),
    }
}

fn with(
    opened: io::Result<File>,
    path: PathBuf,
    is_configured: bool,
    slot: &str,
) -> Result<Option<(Memory, Remembered)>, Fault> {
    match opened {
        Ok(file) => {
            let region = Region { file, path: path.clone() };
            let (memory, remembered) = Memory::read(Arc::new(region), path);
            if remembered.stop.is_some() && remembered.slot != slot {
                return Err(super::stop_of_other_slot(memory.path(), &remembered.slot));
            }
            Ok(Some((memory, remembered)))
        }
        Err(error) if is_configured => Err(super::unusable(&path, &error)),
        Err(_) => Ok(None),
    }
}
