//! The connection between a walsender and a relay: bytes in one direction, status updates in the
//! other, each with its own delays and faults.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard};

use walrelay_core::base::lock::locked;

/// Bytes in their order, of which those in front are taken away.
#[derive(Debug, Default)]
pub(crate) struct Bytes {
    bytes: Vec<u8>,
    taken: usize,
}

impl Bytes {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.taken
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.taken = 0;
    }

    /// Appends what `encode` adds to the bytes that it is given.
    pub(crate) fn append(&mut self, encode: impl FnOnce(Vec<u8>) -> Vec<u8>) {
        self.bytes = encode(mem::take(&mut self.bytes));
    }

    /// The first bytes, at most so many, are taken away.
    fn take(&mut self, length: usize, then: impl FnOnce(&[u8])) {
        let end = self.bytes.len().min(self.taken + length);
        then(&self.bytes[self.taken..end]);
        self.taken = end;
        if self.is_empty() {
            self.clear();
        }
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> usize {
        let length = buffer.len().min(self.len());
        self.take(length, |bytes| buffer[..length].copy_from_slice(bytes));
        length
    }
}

/// The state that both ends share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connection(Arc<Mutex<State>>);

#[derive(Debug, Default)]
pub(crate) struct State {
    /// Sent by the walsender and not arrived.
    pub(crate) under_way: Bytes,
    /// Arrived at the relay and not read.
    pub(crate) arrived: Bytes,
    /// Status updates that have not arrived: position, and whether a reply is requested.
    pub(crate) updates: VecDeque<(u64, bool)>,
    /// How many were sent, and how many have arrived: none behind one that is lost.
    pub(crate) updates_sent: u64,
    pub(crate) updates_arrived: u64,
    /// The relay sends no more.
    pub(crate) copy_done: bool,
    /// The relay's end is closed: the walsender will find out.
    pub(crate) closed_by_relay: bool,
    /// The walsender's end is closed: the relay reads what has arrived, and then the end.
    pub(crate) closed_by_server: bool,
    /// The relay's end reports an error at once.
    pub(crate) is_reset: bool,
    /// Whether no byte gets through in this direction any more.
    pub(crate) down_is_cut: bool,
    pub(crate) up_is_cut: bool,
    /// A proxy acknowledges what the relay sends. Where it cannot pass that on, nothing else gets through
    /// it, either.
    pub(crate) has_proxy: bool,
    /// It is cut once the relay has left its trace, behind this position.
    pub(crate) up_ends_behind: Option<u64>,
    pub(crate) ends_up: bool,
}

impl State {
    /// Bytes that the relay has not read.
    pub(crate) fn backlog(&self) -> usize {
        self.under_way.len() + self.arrived.len()
    }

    /// How many status updates are acknowledged.
    pub(crate) fn updates_acknowledged(&self) -> u64 {
        let arrives = self.has_proxy && !self.ends_up;
        if arrives { self.updates_sent } else { self.updates_arrived }
    }

    /// Lets no byte through any more, in one direction or in both.
    pub(crate) fn cut(&mut self, down: bool, up: bool) {
        self.down_is_cut |= down || self.has_proxy;
        self.up_is_cut |= up || self.has_proxy;
    }

    fn deliver(&mut self, bytes: usize) {
        let State { under_way, arrived, .. } = self;
        under_way.take(bytes, |bytes| arrived.bytes.extend_from_slice(bytes));
    }
}

impl Connection {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.0)
    }

    /// The newest position that has not arrived.
    pub(crate) fn last_report(&self) -> Option<u64> {
        self.state().updates.iter().map(|(position, _)| *position).max()
    }

    /// The server has ended the session. The relay hears of it, also where nothing else gets through:
    /// one that does not knows only by its lease that another may have the slot, and a server that is
    /// started anew does not wait for that (docs/proof.md).
    pub(crate) fn end(&mut self) {
        let mut state = self.state();
        state.closed_by_server = true;
        if !state.down_is_cut {
            // What was sent arrives before the end.
            let length = state.under_way.len();
            state.deliver(length);
        }
    }

    /// The server has waited too long for the relay. It does not hear of that where nothing gets through.
    pub(crate) fn time_out(&mut self) {
        if !self.state().down_is_cut {
            self.end();
        }
    }

    /// So many bytes arrive.
    pub(crate) fn deliver(&self, bytes: usize) -> bool {
        let mut state = self.state();
        if state.down_is_cut {
            return false;
        }
        let bytes = bytes.min(state.under_way.len());
        state.deliver(bytes);
        bytes > 0
    }
}
