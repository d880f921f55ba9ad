//! Surroundings of the loop in memory: for unit tests and for the simulator.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use super::ports::{FileBytes, Link, StateBytes, StateFileSource};
use super::state_file::StateFile;
use super::state_file::header::WORDS;

/// The other end of a [`Link`].
#[derive(Debug)]
pub struct LinkEnd<Q, A> {
    pub requests: Receiver<Q>,
    pub answers: Sender<A>,
}

struct MemoryLink<Q, A> {
    requests: SyncSender<Q>,
    answers: Receiver<A>,
}

/// Both ends. A request waits in the channel until the other end takes it.
#[must_use]
pub fn link<Q: Send + 'static, A: Send + 'static>() -> (Box<dyn Link<Q, A>>, LinkEnd<Q, A>) {
    let (request_sender, requests) = sync_channel(1);
    let (answer_sender, answers) = channel();
    let link = MemoryLink { requests: request_sender, answers };
    (Box::new(link), LinkEnd { requests, answers: answer_sender })
}

impl<Q: Send, A: Send> Link<Q, A> for MemoryLink<Q, A> {
    fn request(&self, request: Q) -> bool {
        self.requests.try_send(request).is_ok()
    }

    fn answer(&self) -> Option<A> {
        self.answers.try_recv().ok()
    }

    fn close(&mut self) {
        (self.requests, _) = sync_channel(1);
        (_, self.answers) = channel();
    }
}

/// A state file in memory: what outlives the processes that use it.
#[derive(Clone, Debug, Default)]
pub struct MemoryFile(Arc<Kept>);

#[derive(Debug)]
struct Kept {
    words: Box<[AtomicU64]>,
    bytes: Mutex<Vec<u8>>,
    is_held: AtomicBool,
    boot: AtomicU64,
}

impl Default for Kept {
    fn default() -> Kept {
        Kept {
            words: (0..WORDS).map(|_| AtomicU64::new(0)).collect(),
            bytes: Mutex::default(),
            is_held: AtomicBool::new(false),
            boot: AtomicU64::new(1),
        }
    }
}

impl MemoryFile {
    /// A process that has not held the slot yet.
    #[must_use]
    pub fn open(&self) -> StateFile {
        StateFile::new(Some(Box::new(self.clone())))
    }

    /// A process that has taken over the slot.
    #[must_use]
    pub fn process(&self, system_id: &str) -> StateFile {
        let mut process = self.open();
        process.takes_over(system_id, 1, "slot", None);
        process
    }

    /// The machine was started anew.
    pub fn set_boot(&self, boot: u64) {
        self.0.boot.store(boot, Ordering::Relaxed);
    }

    /// The words, whoever holds the file.
    #[must_use]
    pub fn words(&self) -> Arc<dyn StateBytes> {
        Arc::new(Held { kept: Arc::clone(&self.0), unlocks: false })
    }
}

impl StateFileSource for MemoryFile {
    fn hold(self: Box<Self>) -> io::Result<Arc<dyn StateBytes>> {
        if self.0.is_held.swap(true, Ordering::Relaxed) {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(Arc::new(Held { kept: Arc::clone(&self.0), unlocks: true }))
    }

    fn boot(&self) -> Option<u64> {
        Some(self.0.boot.load(Ordering::Relaxed))
    }
}

#[derive(Debug)]
struct Held {
    kept: Arc<Kept>,
    unlocks: bool,
}

/// The marks follow the words, as in a file.
impl FileBytes for Held {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        let kept = self.kept.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let at = at as usize;
        let found = kept.get(at..at + bytes.len()).ok_or(ErrorKind::UnexpectedEof)?;
        bytes.copy_from_slice(found);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let mut kept = self.kept.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, end) = (at as usize, at as usize + bytes.len());
        if kept.len() < end {
            kept.resize(end, 0);
        }
        kept[at..end].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl StateBytes for Held {
    fn load(&self, word: usize) -> u64 {
        self.kept.words[word].load(Ordering::Relaxed)
    }

    fn store(&self, word: usize, value: u64) {
        self.kept.words[word].store(value, Ordering::Relaxed);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.unlocks {
            self.kept.is_held.store(false, Ordering::Relaxed);
        }
    }
}
