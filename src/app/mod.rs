//! Wiring and supervision: builds the parts, gives each its thread, waits for the first that ends.
//!
//! Four threads: the data thread (the loop), the admin thread (probes must answer when the loop is
//! stuck), the one that reads the dead-letter topic, and this one: the control runtime with the
//! connector, the slot watch and the signals.

mod polling;
pub mod startup;
mod streaming;
mod threads;

pub use self::threads::sink_requirements;
use crate::base::error::Fault;
use crate::base::os_ffi;
use crate::config::Config;

/// Relays until stopped.
pub fn run(config: &Config) -> Result<(), Fault> {
    os_ffi::return_large_pieces();
    if config.sink.kind().shares_malloc_arena {
        os_ffi::share_malloc_arena();
    }
    match &config.polling {
        Some(polling) => polling::run(config, polling),
        None => streaming::run(config),
    }
}
