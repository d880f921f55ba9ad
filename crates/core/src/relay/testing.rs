//! Surroundings of the loop in memory: for unit tests and for the simulator.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};

use super::Relay;
use super::control::Walsender;
use super::feed::Downstream;
use super::feed::slot::SlotFeed;
use super::feed::slot::replication::Replication;
use super::ports::{FileBytes, Link, StateBytes, StateFileSource};
use super::state_file::StateFile;
use super::state_file::header::BYTES;
use super::state_file::memory::REGION;
use crate::base::lock::locked;
use crate::source::server::ServerStart;
use crate::source::settings::PostgresHost;

/// The inside of the loop, for tests that hand it single packets and reports.
impl Relay<SlotFeed> {
    pub fn inside(&mut self) -> (&mut SlotFeed, &mut Downstream) {
        (&mut self.feed, &mut self.down)
    }
}

impl SlotFeed {
    pub fn replication(&mut self) -> &mut Replication {
        &mut self.replication
    }
}

/// A walsender of a server, of which nothing but the process id counts.
#[must_use]
pub fn walsender(pid: i32) -> Walsender {
    let host = PostgresHost { name: "db".to_owned(), port: 5432, password: None };
    Walsender { host, server: ServerStart::default(), pid }
}

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
}

/// The broker of a process that opens a state file of a test.
pub const BROKER: u64 = 7;

/// A state file in memory: what outlives the processes that use it.
#[derive(Clone, Debug, Default)]
pub struct MemoryFile(Arc<Mutex<Content>>);

#[derive(Debug)]
struct Content {
    /// The header and the marks, as far as they were written.
    bytes: Vec<u8>,
    /// The bytes that were written behind the marks, by where they begin.
    behind: BTreeMap<u64, Vec<u8>>,
    boot: Option<u64>,
    is_held: bool,
    is_full: bool,
}

impl Default for Content {
    fn default() -> Content {
        Content {
            bytes: vec![0; BYTES],
            behind: BTreeMap::new(),
            boot: Some(1),
            is_held: false,
            is_full: false,
        }
    }
}

impl MemoryFile {
    /// A process that has not held the slot yet.
    #[must_use]
    pub fn open(&self) -> StateFile {
        self.open_at(BROKER)
    }

    /// The same, of a relay that publishes to this broker; 0 if it does not know which one.
    #[must_use]
    pub fn open_at(&self, broker: u64) -> StateFile {
        let mut process = StateFile::new(Some(Box::new(self.clone())));
        process.marks.broker(broker);
        process
    }

    /// A process that has taken over the slot.
    #[must_use]
    pub fn process(&self, system_id: &str) -> StateFile {
        let mut process = self.open();
        process.take_over((system_id, 1), "slot", 0, None);
        process
    }

    /// The start of the machine, if it is known.
    pub fn set_boot(&self, boot: Option<u64>) {
        self.content().boot = boot;
    }

    /// While it is full, what does not go through the mapped words fails.
    pub fn set_full(&self, is_full: bool) {
        self.content().is_full = is_full;
    }

    /// The bytes, whoever holds the file.
    #[must_use]
    pub fn bytes(&self) -> Arc<dyn StateBytes> {
        Arc::new(OpenFile { file: self.clone(), unlocks: false })
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        locked(&self.0)
    }
}

impl StateFileSource for MemoryFile {
    fn hold(self: Box<Self>) -> io::Result<Arc<dyn StateBytes>> {
        if std::mem::replace(&mut self.content().is_held, true) {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(Arc::new(OpenFile { file: *self, unlocks: true }))
    }

    fn note(&self, word: usize, value: u64) -> io::Result<()> {
        self.bytes().store(word, value);
        Ok(())
    }

    fn boot(&self) -> Option<u64> {
        self.content().boot
    }
}

#[derive(Debug)]
struct OpenFile {
    file: MemoryFile,
    unlocks: bool,
}

impl FileBytes for OpenFile {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        let content = self.file.content();
        let (begins, written) = match content.behind.range(..=at).next_back() {
            Some((begins, written)) => (*begins, written),
            None => (0, &content.bytes),
        };
        let at = (at - begins) as usize;
        let found = written.get(at..at + bytes.len()).ok_or(ErrorKind::UnexpectedEof)?;
        bytes.copy_from_slice(found);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let mut content = self.file.content();
        if content.is_full {
            return Err(ErrorKind::StorageFull.into());
        }
        if at >= REGION {
            let before = content.behind.range_mut(..=at).next_back();
            let within = before.and_then(|(begins, written)| {
                let at = (at - begins) as usize;
                written.get_mut(at..at + bytes.len())
            });
            match within {
                Some(within) => within.copy_from_slice(bytes),
                None => _ = content.behind.insert(at, bytes.to_vec()),
            }
            return Ok(());
        }
        let (at, end) = (at as usize, at as usize + bytes.len());
        if content.bytes.len() < end {
            content.bytes.resize(end, 0);
        }
        content.bytes[at..end].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl StateBytes for OpenFile {
    fn load(&self, word: usize) -> u64 {
        let content = self.file.content();
        u64::from_ne_bytes(std::array::from_fn(|index| content.bytes[word * 8 + index]))
    }

    fn store(&self, word: usize, value: u64) {
        let at = word * 8;
        self.file.content().bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if self.unlocks {
            self.file.content().is_held = false;
        }
    }
}
