//! Starts the threads of a relay and waits for their end: the data thread with the loop, the admin
//! thread, which answers probes even when the loop is stuck, the reader of the dead-letter topic,
//! and the control runtime on the main thread with sessions, slot watch and signals. All but the admin
//! thread begin anew when a relay that was halted is resumed.

mod halting;
mod polling;
mod streaming;
mod threads;

use std::sync::Arc;

use self::threads::RunContext;
pub use self::threads::sink_requirements;
pub(crate) use self::threads::stops_config;
pub(crate) use self::threads::{reads_dead_letters, replay_destinations};
use crate::admin::address::{self, RelayName};
use crate::base::error::Fault;
use crate::base::finding::Finding;
use crate::base::service_manager::ServiceManager;
use crate::config::Config;
use crate::{relay, trace};

/// Relays until it is stopped. `on_hangup` is called for each SIGHUP.
pub fn run(config: &Config, on_hangup: &dyn Fn()) -> Result<(), Fault> {
    let manager = Arc::new(ServiceManager::of_process());
    let outcome = run_for(&manager, config, &|| manager.while_reloading(on_hangup));
    outcome.inspect_err(|fault| manager.ended(fault))
}

/// Says to the service manager why [`run`] was not reached.
pub fn not_started(faults: &[Fault]) {
    if let Some(fault) = faults.first() {
        ServiceManager::of_process().ended(fault);
    }
}

/// Relays for a service manager, which has heard the state for the last time when this returns.
fn run_for(
    manager: &Arc<ServiceManager>,
    config: &Config,
    on_hangup: &dyn Fn(),
) -> Result<(), Fault> {
    let context = RunContext::open(config, manager)?;
    halting::run_until_done(config, &context, on_hangup, || match &config.polling {
        Some(polling) => polling::run(config, polling, &context, on_hangup),
        None => streaming::run(config, &context, on_hangup),
    })
}

/// Checks, for `check`, what [`run`] needs of this machine and of the configuration as a whole.
/// Postgres is checked by [`crate::doctor`], the broker by [`crate::sink::Broker::inspect`].
pub fn inspect(config: &Config) -> Vec<Finding> {
    let polls = config.polling.is_some();
    let configured = RelayName { source_slot: config.source.slot.clone(), polls };
    let address = address::inspect(config.admin.listen, &configured);
    let loops = relay::inspect(&config.source, &config.delivery);
    let spans = trace::inspect(&config.tracing);
    std::iter::once(address).chain(loops).chain(spans).collect()
}
