//! The connection between a walsender and a relay: bytes in one direction, status updates in the
//! other, each with its own delays and faults.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What both ends share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connection(Arc<Mutex<State>>);

#[derive(Debug, Default)]
pub(crate) struct State {
    /// Sent by the walsender and not arrived.
    pub(crate) under_way: VecDeque<u8>,
    /// Arrived at the relay and not read.
    pub(crate) arrived: VecDeque<u8>,
    /// Status updates that have not arrived: position, and whether a reply is requested.
    pub(crate) updates: VecDeque<(u64, bool)>,
    /// The relay sends no more.
    pub(crate) copy_done: bool,
    /// The relay's end is closed: the walsender will find out.
    pub(crate) closed_by_relay: bool,
    /// The walsender's end is closed: the relay reads what has arrived, and then the end.
    pub(crate) closed_by_server: bool,
    /// The relay's end reports an error at once.
    pub(crate) is_reset: bool,
    /// Nothing gets through in this direction any more.
    pub(crate) down_is_cut: bool,
    pub(crate) up_is_cut: bool,
}

impl Connection {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.state().under_way.extend(bytes);
    }

    /// Bytes that the relay has not read.
    pub(crate) fn backlog(&self) -> usize {
        let state = self.state();
        state.under_way.len() + state.arrived.len()
    }

    /// The server has ended the session. The relay hears of it, also where nothing else gets through:
    /// one that does not knows only by its lease that another may have the slot, and a server that is
    /// started anew does not wait for that (docs/proof.md).
    pub(crate) fn end(&mut self) {
        let mut state = self.state();
        state.closed_by_server = true;
        if !state.down_is_cut {
            // What was sent arrives before the end.
            let State { under_way, arrived, .. } = &mut *state;
            arrived.append(under_way);
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
        let State { under_way, arrived, .. } = &mut *state;
        arrived.extend(under_way.drain(..bytes));
        bytes > 0
    }
}
