//! Threads and async runtimes, and the fault when the system refuses one.

use std::io;
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Runtime};

use crate::error::{Exit, Fault};

pub fn current_thread() -> Result<Runtime, Fault> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| refused("a runtime", &error))
}

pub fn multi_thread(threads: usize, name: &str) -> Result<Runtime, Fault> {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(threads).thread_name(name).enable_all().build();
    runtime.map_err(|error| refused("a runtime", &error))
}

/// Awaits a future on a thread without a runtime.
pub fn block_on<T>(answer: impl Future<Output = T>) -> Result<T, Fault> {
    let runtime = current_thread()?;
    let answer = runtime.block_on(answer);
    // Not dropped: that would wait for a name that is being resolved.
    runtime.shutdown_background();
    Ok(answer)
}

/// Like [`block_on`], for a future that may fail.
pub fn try_block_on<T>(answer: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    block_on(answer)?
}

pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Fault> {
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    spawned.map_err(|error| refused(&format!("the thread {name}"), &error))
}

pub fn refused(what: &str, error: &io::Error) -> Fault {
    Fault::new(
        Exit::Failed,
        "system.refused",
        format!("the system refused {what}: {error}"),
        "",
        "look at the limits of the process (ulimit -a, container limits)",
    )
}
