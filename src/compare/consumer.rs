//! The consumer: a thread that takes events as they come and notes when.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Deserialize;

use super::tally::Tally;
use crate::base::error::Fault;
use crate::base::runtime;
use crate::sink::bench_target::Scratch;

const PATIENCE: Duration = Duration::from_millis(100);

/// What an event says of itself.
#[derive(Deserialize)]
struct Mark {
    n: u64,
    run: u32,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Whose events are counted: a run's number, and its tally. Others came too late.
    current: Mutex<Option<(u32, Arc<Tally>)>>,
    fault: Mutex<Option<Fault>>,
}

/// A consumer that runs; it ends when dropped.
pub(super) struct Consumer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Consumer {
    pub(super) fn start(scratch: Box<dyn Scratch>) -> Result<Consumer, Fault> {
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let thread = runtime::spawn("consumer", move || consume(scratch, &own))?;
        Ok(Consumer { shared, thread: Some(thread) })
    }

    /// From here on the events of this run are counted.
    pub(super) fn attend(&self, run: u32, tally: &Arc<Tally>) {
        *held(&self.shared.current) = Some((run, Arc::clone(tally)));
    }

    /// Why it has ended, if it has.
    pub(super) fn fault(&self) -> Result<(), Fault> {
        held(&self.shared.fault).clone().map_or(Ok(()), Err)
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        // A thread that panicked has said so.
        self.thread.take().map(JoinHandle::join);
    }
}

fn consume(mut scratch: Box<dyn Scratch>, shared: &Shared) {
    while !shared.stop.load(Relaxed) {
        let arrival = match scratch.consume(PATIENCE) {
            Ok(Some(arrival)) => arrival,
            Ok(None) => continue,
            Err(fault) => {
                *held(&shared.fault) = Some(fault);
                return;
            }
        };
        let Ok(mark) = serde_json::from_slice::<Mark>(&arrival.value) else { continue };
        let current = held(&shared.current).clone();
        if let Some((run, tally)) = current
            && run == mark.run
        {
            tally.arrives(mark.n, arrival.at);
        }
    }
}

#[cfg(test)]
#[path = "consumer_tests.rs"]
mod tests;
