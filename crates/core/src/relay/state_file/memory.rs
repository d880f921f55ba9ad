//! Facts that the next process must know to find what happened while no relay ran, and the stop
//! that nobody has acknowledged yet: a region of its own behind the ring of marks.
//!
//! It is read and written without the lock of the file, because it is needed before the slot is
//! held, and by `walrelay resume` beside a relay that waits. Two copies are written in turn, each
//! with a number and a hash: a copy that was written half is none, and the other one counts.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::header::{BYTES, MAGIC, MAGIC_WORD, MARK_BYTES, MARKS};
use crate::base::lsn::Lsn;
use crate::base::stop::Stop;
use crate::relay::ports::FileBytes;

/// Where the region begins.
pub const REGION: u64 = (BYTES + MARKS as usize * MARK_BYTES) as u64;
/// Bytes before the copies; the first word is the position that was last seen.
const SEEN_BYTES: u64 = 4096;
const COPY_BYTES: u64 = 1 << 20;
/// Number, length and hash.
const HEAD_BYTES: usize = 48;

/// The facts about the slot that the relay that last held it has remembered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Remembered {
    pub slot: String,
    pub system_id: String,
    pub timeline: u32,
    /// The publication, in the form of [`crate::doctor::fingerprint`].
    pub publication: Option<Value>,
    pub stop: Option<Stop>,
    /// How often the database had gone back on its timeline, and somebody has acknowledged that.
    pub restores: u64,
}

#[derive(Debug)]
pub struct Memory {
    file: Arc<dyn FileBytes>,
    path: PathBuf,
    /// The number of the newest copy.
    number: u64,
}

impl Memory {
    /// Reads the memory that the file at `path` holds.
    pub fn read(file: Arc<dyn FileBytes>, path: PathBuf) -> (Memory, Remembered) {
        let mut memory = Memory { file, path, number: 0 };
        let remembered = memory.reload().unwrap_or_default();
        (memory, remembered)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The newest copy that is whole, if another process has written it since this one has read or written
    /// one. A file that cannot be read has none.
    pub fn reload(&mut self) -> Option<Remembered> {
        let (number, text) = self.newest().filter(|(number, _)| *number > self.number)?;
        self.number = number;
        serde_json::from_slice(&text).ok()
    }

    fn newest(&self) -> Option<(u64, Vec<u8>)> {
        let copies = [self.copy(0), self.copy(1)].into_iter().flatten();
        copies.max_by_key(|(number, _)| *number)
    }

    fn copy(&self, which: u64) -> Option<(u64, Vec<u8>)> {
        let mut head = [0; HEAD_BYTES];
        self.file.read_at(&mut head, place_of(which)).ok()?;
        let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|index| head[at + index]));
        let (number, length) = (word(0), word(8));
        if number == 0 || length > COPY_BYTES - HEAD_BYTES as u64 {
            return None;
        }
        let mut text = vec![0; length as usize];
        self.file.read_at(&mut text, place_of(which) + HEAD_BYTES as u64).ok()?;
        (hash(number, &text) == head[16..]).then_some((number, text))
    }

    /// Writes to disk: a stop must also outlive the machine.
    pub fn write(&mut self, remembered: &Remembered) -> io::Result<()> {
        let text = serde_json::to_vec(remembered)?;
        if text.len() as u64 > COPY_BYTES - HEAD_BYTES as u64 {
            return Err(io::Error::other("the publication has too many tables to be remembered"));
        }
        let newest = self.newest();
        let kept =
            newest.as_ref().and_then(|(_, text)| serde_json::from_slice::<Remembered>(text).ok());
        if kept.is_some_and(|kept| kept.stop.is_some() && kept.slot != remembered.slot) {
            return Err(io::Error::other(
                "it holds a stop of another slot that nobody has acknowledged",
            ));
        }
        self.claim()?;
        // Another process may have written one since, which must not be taken for this one.
        let number = newest.map_or(0, |(number, _)| number).max(self.number) + 1;
        let mut bytes = Vec::with_capacity(HEAD_BYTES + text.len());
        bytes.extend_from_slice(&number.to_ne_bytes());
        bytes.extend_from_slice(&(text.len() as u64).to_ne_bytes());
        bytes.extend_from_slice(&hash(number, &text));
        bytes.extend_from_slice(&text);
        self.file.write_at(&bytes, place_of(number % 2))?;
        if let Err(error) = self.file.sync() {
            // What is kept elsewhere then must not stand here, too.
            self.file.write_at(&[0; HEAD_BYTES], place_of(number % 2)).ok();
            return Err(error);
        }
        self.number = number;
        Ok(())
    }

    /// A new file says whose it is before more than the header is in it, or it would be refused.
    fn claim(&self) -> io::Result<()> {
        let mut first = [0; 8];
        self.file.read_at(&mut first, MAGIC as u64 * 8)?;
        match u64::from_ne_bytes(first) {
            0 => self.file.write_at(&MAGIC_WORD.to_ne_bytes(), MAGIC as u64 * 8),
            _ => Ok(()),
        }
    }

    /// Up to this position of the WAL nothing was wrong. One word, so it is never half.
    pub fn saw(&self, lsn: Lsn) -> io::Result<()> {
        self.claim()?;
        self.file.write_at(&lsn.to_wire().to_ne_bytes(), REGION)
    }

    pub fn seen(&self) -> Lsn {
        let mut word = [0; 8];
        let read = self.file.read_at(&mut word, REGION);
        Lsn::from_wire(read.map_or(0, |()| u64::from_ne_bytes(word)))
    }
}

fn place_of(copy: u64) -> u64 {
    REGION + SEEN_BYTES + copy * COPY_BYTES
}

fn hash(number: u64, text: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(number.to_ne_bytes()).chain_update(text).finalize().into()
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
