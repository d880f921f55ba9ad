//! Checks, for `check`, what `run` needs of this machine and of the configuration as a whole. Postgres
//! is checked by [`crate::doctor`], the broker by [`crate::sink::Broker::inspect`].

use crate::admin::address;
use crate::base::finding::Finding;
use crate::config::Config;
use crate::relay;

pub fn inspect(config: &Config) -> Vec<Finding> {
    let slot = config.polling.is_none().then_some(config.source.slot.as_str());
    let address = address::inspect(config.admin.listen, slot);
    let loops = relay::inspect(&config.source, &config.delivery);
    std::iter::once(address).chain(loops).collect()
}
