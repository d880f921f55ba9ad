//! What `run` needs of this machine and of the configuration as a whole, found without starting: for
//! `check`.
//!
//! The rest of what ends `run` at its start is found where it is needed: in Postgres
//! ([`crate::doctor::source`], [`crate::doctor::polled_table`]) and at the broker
//! ([`crate::sink::Broker::inspect`]).

use crate::admin::address;
use crate::base::finding::Finding;
use crate::config::Config;
use crate::relay;

/// What is as it should be here, and what is not.
#[must_use]
pub fn inspect(config: &Config) -> Vec<Finding> {
    let slot = config.polling.is_none().then_some(config.source.slot.as_str());
    let address = address::inspect(config.admin.listen, slot);
    let loops = relay::inspect(&config.source, &config.delivery);
    std::iter::once(address).chain(loops).collect()
}
