//! The region of the state file that is read and written without its lock.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use walrelay_core::relay::ports::FileBytes;
use walrelay_core::relay::state_file::memory::{Memory, Remembered};

use crate::base::error::Fault;

#[derive(Debug)]
struct Region(File);

impl FileBytes for Region {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.0.read_exact_at(bytes, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

/// Opens the region, which is made if it is missing. Only a file that was configured must be
/// usable; [`super::open`] says why another one is not.
pub(in crate::relay) fn open(
    configured: Option<&Path>,
    slot: &str,
) -> Result<Option<(Memory, Remembered)>, Fault> {
    let Some(path) = super::path_of(configured, slot) else { return Ok(None) };
    with(super::create(&path), path, configured.is_some())
}

/// The same where the file exists. Nothing is made or changed.
pub(in crate::relay) fn look(
    configured: Option<&Path>,
    slot: &str,
) -> Result<Option<(Memory, Remembered)>, Fault> {
    let path = super::path_of(configured, slot).filter(|path| path.exists());
    let Some(path) = path else { return Ok(None) };
    with(super::look(&path), path, configured.is_some())
}

fn with(
    opened: io::Result<File>,
    path: PathBuf,
    is_configured: bool,
) -> Result<Option<(Memory, Remembered)>, Fault> {
    match opened {
        Ok(file) => Ok(Some(Memory::read(Arc::new(Region(file)), path))),
        Err(error) if is_configured => Err(super::unusable(&path, &error)),
        Err(_) => Ok(None),
    }
}
