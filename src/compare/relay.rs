//! The relay that is measured: the user's configuration with the scratch site in the place of
//! theirs, run in a process of its own, so that its CPU time and memory are the relay's alone.
//!
//! What it is to do comes over its standard input, because `--set` may hold secrets and a command
//! line can be read by everybody. When that input ends, whoever started it is gone, and it stops.

use std::collections::BTreeMap;
use std::io::{BufRead as _, Read as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cost::application_name;
use crate::base::error::{Exit, Fault};
use crate::config::{Config, Request};
use crate::delivery::settings::OnDeadLetter;
use crate::outbox::settings::{Columns, OutboxTable, Preset, Route};
use crate::outbox::template::Template;
use crate::polling::settings::{Cleanup, OnPublished, PollingSettings, Words, WorkColumns};

/// The hidden command.
pub const COMMAND: &str = "compare-relay";
/// After this a relay that does not stop is ended.
const STOPS_WITHIN: Duration = Duration::from_secs(30);

/// What a measured relay is told. No `Debug`: settings may hold secrets.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Order {
    /// As in [`Request`].
    pub file: Option<PathBuf>,
    /// The same.
    pub settings: Vec<String>,
    /// The same.
    pub slot: Option<String>,
    /// Schema, slot, publication, topic.
    pub name: String,
    /// Of polling; none for the slot.
    pub interval_ms: Option<u64>,
    /// Its own, and removed by who gave the order.
    pub crash_file: PathBuf,
}

impl Order {
    /// Reads it from standard input, and from then on ends the process with that input.
    pub fn receive() -> Result<Order, Fault> {
        let unusable = |reason: String| {
            let what = format!("this command is for `walrelay compare` alone: {reason}");
            Fault::new(Exit::Usage, "compare.no-order", what, "", "walrelay compare --help")
        };
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        read.map_err(|error| unusable(error.to_string()))?;
        let order =
            serde_json::from_str(&line).map_err(|_| unusable("no order came".to_owned()))?;
        let watcher = std::thread::Builder::new().name("parent".to_owned());
        let watching = watcher.spawn(|| {
            let mut rest = [0; 1];
            // It ends, or it fails: nobody is there in either case.
            while std::io::stdin().lock().read(&mut rest).is_ok_and(|count| count > 0) {}
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::TERM).ok();
            std::thread::sleep(STOPS_WITHIN);
            std::process::exit(Exit::Failed as i32);
        });
        watching.map_err(|error| unusable(error.to_string()))?;
        Ok(order)
    }

    /// Where its configuration is.
    #[must_use]
    pub fn request(&self, variables: BTreeMap<String, String>) -> Request {
        Request {
            file: self.file.clone(),
            settings: self.settings.clone(),
            slot: self.slot.clone(),
            listen: None,
            variables,
        }
    }
}

/// The configuration with the scratch site in it. Window, retries, `source.binary`, broker, logins
/// and properties stay what they are.
pub fn adapt(config: &Config, order: &Order) -> Result<Config, Fault> {
    let mut adapted = config.clone();
    adapted.sink = config.sink.toward_scratch(&order.name)?;
    adapted.source.connection.application_name = application_name(&order.name);
    adapted.source.slot.clone_from(&order.name);
    adapted.source.publication.clone_from(&order.name);
    adapted.source.messages = None;
    let exchange = config.source.outboxes.iter().map(|outbox| &outbox.route);
    let exchange = exchange.chain(config.source.messages.iter().map(|messages| &messages.route));
    let has_exchange = exchange.clone().any(|route| route.exchange.is_some());
    adapted.source.outboxes = vec![outbox(&order.name, has_exchange)?];
    adapted.polling =
        order.interval_ms.map(|ms| polling(config.polling.as_ref(), Duration::from_millis(ms)));
    // Nothing here can become a dead letter but by a fault, which is to be seen.
    adapted.delivery.on_dead_letter = OnDeadLetter::Halt;
    adapted.delivery.crash_file = Some(order.crash_file.clone());
    adapted.admin.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    adapted.admin.token = None;
    Ok(adapted)
}

fn outbox(name: &str, has_exchange: bool) -> Result<OutboxTable, Fault> {
    let constant = Template::parse(name).map_err(|error| super::broken(&error.to_string()))?;
    Ok(OutboxTable {
        schema: name.to_owned(),
        table: "outbox".to_owned(),
        columns: Columns {
            id: "id".to_owned(),
            key: "event_key".to_owned(),
            event_type: "type".to_owned(),
            payload: "payload".to_owned(),
            traceparent: "traceparent".to_owned(),
            headers: "headers".to_owned(),
        },
        route: Route {
            topic: constant.clone(),
            exchange: has_exchange.then_some(constant),
            key: Template::column("event_key"),
            headers: Vec::new(),
            // The scratch table has no column for a type.
            preset: Preset::Debezium,
            format: "raw".to_owned(),
            partition: None,
        },
    })
}

/// The user's own pace of polling, where there is one, on the shipped table.
fn polling(own: Option<&PollingSettings>, interval: Duration) -> PollingSettings {
    let text = str::to_owned;
    PollingSettings {
        interval,
        workers: own.map_or(4, |own| own.workers),
        batch_max: own.map_or(500, |own| own.batch_max),
        lease: own.map_or(Duration::from_secs(30), |own| own.lease),
        on_published: own.map_or(OnPublished::Update, |own| own.on_published),
        columns: WorkColumns {
            order: text("id"),
            status: text("status"),
            retry_count: text("retry_count"),
            next_retry_at: text("next_retry_at"),
            locked_at: text("locked_at"),
            locked_by: text("locked_by"),
            failure_reason: text("failure_reason"),
            failed_at: text("failed_at"),
            created_at: text("created_at"),
        },
        words: Words {
            pending: text("pending"),
            in_progress: text("in_progress"),
            published: text("published"),
            failed: text("failed"),
        },
        cleanup: own.map_or(
            Cleanup {
                enabled: true,
                older_than: Duration::from_secs(168 * 3600),
                batch_max: 1000,
                interval: Duration::from_secs(60),
            },
            |own| own.cleanup.clone(),
        ),
    }
}

#[cfg(test)]
#[path = "relay_tests.rs"]
mod tests;
