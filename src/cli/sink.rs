//! The broker's part of `walrelay check` and `walrelay init`.

use crate::app::wanted;
use crate::config::Config;
use crate::error::Fault;
use crate::source::preflight::Finding;

/// What is wrong, and what is right, with the sink.
pub(super) fn findings(config: &Config) -> Vec<Finding> {
    let found = config.sink.inspect(&wanted(config));
    let well = found.well.into_iter().map(|text| Finding::ok("sink", text));
    let doubtful = found.doubtful.into_iter().map(|text| Finding::warn("sink", text));
    well.chain(doubtful).chain(found.faults.into_iter().map(Finding::fail)).collect()
}

/// Makes what is missing at the broker.
pub(super) fn init(config: &Config) -> Result<(), Vec<Fault>> {
    for made in config.sink.prepare(&wanted(config))? {
        println!("+ make {made}");
    }
    Ok(())
}
