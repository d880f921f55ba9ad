//! Work of the thread that reads the dead-letter topic.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use walrelay_core::dead_letter::owner::LetterOwner;
use walrelay_core::dead_letter::tail_event::{ReadRequests, TailEvent, TailState};
use walrelay_core::dead_letter::writer::SystemId;

use crate::process::{SLOT, Site};
use walrelay_core::base::lock::locked;

/// So many events may wait for the loop.
const WAITING_MAX: usize = 64;

/// So many records of the topic are read at a time.
const READ_AT_ONCE: usize = 64;

/// Where they wait.
pub(crate) fn channel() -> (SyncSender<TailEvent>, Receiver<TailEvent>) {
    sync_channel(WAITING_MAX)
}

/// Reads the dead-letter topic for the loop.
pub(crate) struct Tail {
    system: SystemId,
    events: SyncSender<TailEvent>,
    requests: ReadRequests,
    met: u64,
    state: Option<TailState>,
    read: usize,
    /// The topic is read from its beginning, as at first, and behind a lost connection.
    is_broken: bool,
    waiting: Vec<TailEvent>,
    pub(crate) is_late: bool,
}

impl Tail {
    pub(crate) fn new(
        system: SystemId,
        events: SyncSender<TailEvent>,
        requests: ReadRequests,
        is_late: bool,
    ) -> Tail {
        Tail {
            system,
            events,
            requests,
            met: 0,
            state: None,
            read: 0,
            is_broken: true,
            waiting: Vec::new(),
            is_late,
        }
    }

    pub(crate) fn serve(&mut self, site: &Site<'_>) -> bool {
        // Reading begins once the stream is open: then the system is known.
        if self.state.is_none() && self.system.get().is_none() {
            return false;
        }
        let last = self.requests.last();
        {
            let broker = locked(site.broker);
            self.is_broken |= broker.is_away || self.read > broker.letters();
            let has_all = !self.is_broken && self.read == broker.letters() && self.met == last;
            let is_idle = has_all && self.state.as_ref().is_some_and(TailState::caught_up);
            if broker.is_away || is_idle && self.waiting.is_empty() {
                return false;
            }
        }
        let mut events = std::mem::take(&mut self.waiting);
        let now_unix_us = site.clock.unix_us();
        let state = self.state.get_or_insert_with(|| {
            let system = self.system.get();
            TailState::new(LetterOwner::new(SLOT, system.as_deref()), now_unix_us - 60_000_000)
        });
        if self.met != last {
            self.met = last;
            state.count_again(now_unix_us - 60_000_000);
            events.push(TailEvent::ReadsAgain(last));
            self.is_broken = true;
        }
        if std::mem::take(&mut self.is_broken) {
            state.begin();
            self.read = 0;
        }
        let mut broker = locked(site.broker);
        self.read += broker.read_letters(self.read, READ_AT_ONCE, |letter| {
            state.read(letter, now_unix_us, &mut events);
        });
        let is_at_end = self.read == broker.letters();
        drop(broker);
        self.is_broken |= is_at_end && state.end(&mut events);
        let has_read = !is_at_end || !events.is_empty();
        let mut rest = events.into_iter();
        for event in rest.by_ref() {
            if let Err(full) = self.events.try_send(event) {
                let event = match full {
                    std::sync::mpsc::TrySendError::Full(event) => event,
                    std::sync::mpsc::TrySendError::Disconnected(event) => event,
                };
                self.waiting.push(event);
                break;
            }
        }
        self.waiting.extend(rest);
        has_read
    }
}
