//! The configuration of the relay that `walrelay compare` measures: the user's configuration, but on
//! the scratch source and target.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use walrelay_compare::relay_process::{RelayOrder, application_name, no_order};

use crate::base::error::Fault;
use crate::base::runtime;
use crate::base::template::Template;
use crate::config::{Config, Request};
use crate::delivery::settings::{OnDeadLetter, WhenHalted};
use crate::outbox::settings::{Columns, OutboxTable, Preset, Route};
use crate::polling::settings::{PollingSettings, StatusValues, WorkColumns};
use crate::sink::Broker;
use crate::trace::TracingSettings;

/// Where the user's configuration is, for the order of a measured relay.
pub(super) fn to_order(request: &Request) -> Result<serde_json::Value, Fault> {
    serde_json::to_value(request).map_err(|error| broken(error.into()))
}

/// Where the user's configuration is, with the environment of this process.
pub(super) fn request(order: &RelayOrder, own: &Request) -> Result<Request, Fault> {
    let ordered: Request = serde_json::from_value(order.config.clone())
        .map_err(|_| no_order("its order is not complete"))?;
    Ok(Request { variables: own.variables.clone(), ..ordered })
}

/// The configuration with the scratch source and target in it. Window, retries, `source.binary`,
/// broker, logins and client properties stay those of the user.
pub(super) fn adapt(order: &RelayOrder, config: &Config) -> Result<Config, Fault> {
    let mut adapted = config.clone();
    adapted.sink = config.sink.for_bench_target(&order.name)?;
    adapted.source.connection.application_name = application_name(&order.name);
    adapted.source.slot.clone_from(&order.name);
    adapted.source.publication.clone_from(&order.name);
    adapted.source.messages = None;
    adapted.source.outboxes = vec![outbox(&order.name, &*config.sink)?];
    let interval = order.interval_ms.map(Duration::from_millis);
    adapted.polling = interval.map(|interval| polling(config, interval));
    // Every event of the load can be published: a dead letter would hide a fault.
    adapted.delivery.on_dead_letter = OnDeadLetter::Halt;
    adapted.delivery.when_halted = WhenHalted::Exit;
    adapted.delivery.state_file.clone_from(&order.state_file);
    adapted.admin.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    adapted.admin.token = None;
    adapted.tracing = TracingSettings::default();
    Ok(adapted)
}

fn outbox(name: &str, sink: &dyn Broker) -> Result<OutboxTable, Fault> {
    let constant = Template::parse(name).map_err(|error| broken(io::Error::other(error)))?;
    Ok(OutboxTable {
        schema: name.to_owned(),
        columns: Columns { key: "event_key".to_owned(), ..Columns::default() },
        route: Route {
            topic: constant.clone(),
            exchange: sink.exchange().is_some().then_some(constant),
            binding: sink.kind().binding,
            // The other preset needs a column for the event type, which the scratch table lacks.
            preset: Preset::Debezium,
            ..Route::default()
        },
        ..OutboxTable::default()
    })
}

/// The user's own settings of polling, for the table of `sql/polling.sql`; or those by default, as far as
/// the window lets one claim be made while others are published.
fn polling(config: &Config, interval: Duration) -> PollingSettings {
    let by_default = PollingSettings::default();
    let claimed_max = config.delivery.window_events_max / (2 * by_default.workers);
    let by_default =
        PollingSettings { batch_max: by_default.batch_max.min(claimed_max).max(1), ..by_default };
    PollingSettings {
        interval,
        columns: WorkColumns::default(),
        status_values: StatusValues::default(),
        ..config.polling.clone().unwrap_or(by_default)
    }
}

fn broken(error: io::Error) -> Fault {
    runtime::refused("the relay under test", &error)
}

#[cfg(test)]
#[path = "measured_relay_tests.rs"]
mod tests;
