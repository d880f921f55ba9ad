//! Makes the typed configuration of the effective values.

use std::sync::Arc;

use super::check;
use super::effective::Effective;
use super::layers::Problem;
use super::sections::{AdminSettings, ConfigFile, LogSettings, SourceSection, path_of};
use crate::base::secret::Secret;
use crate::base::settings::kind::Lookup;
use crate::base::settings::{SettingType as _, Settings as _};
use crate::base::template::Template;
use crate::dead_letter::writer::DeadLetterSettings;
use crate::delivery::settings::DeliverySettings;
use crate::outbox::settings::OutboxTable;
use crate::polling::settings::PollingSettings;
use crate::sink::Broker;
use crate::sink::settings::{InvalidSetting, Surroundings};
use crate::source::conninfo::{self, ConnInfoError};
use crate::source::settings::{ConnInfo, SourceSettings};
use crate::trace::TracingSettings;

#[derive(Clone, Debug)]
pub struct Config {
    /// With `[route]` in each outbox.
    pub source: SourceSettings,
    /// If `source.mode` is `polling`.
    pub polling: Option<PollingSettings>,
    /// `[sink]` with the section of its kind.
    pub sink: Arc<dyn Broker>,
    pub delivery: DeliverySettings,
    pub dead_letter: DeadLetterSettings,
    pub admin: AdminSettings,
    pub tracing: TracingSettings,
    pub log: LogSettings,
}

/// The part of the configuration that says how the broker is reached.
#[derive(Clone, Debug)]
pub struct BrokerConfig {
    pub sink: Arc<dyn Broker>,
    pub dead_letter: DeadLetterSettings,
    pub log: LogSettings,
}

/// Makes the configuration of a command that uses the broker alone.
pub(crate) fn broker(effective: &Effective, problems: &mut Vec<Problem>) -> Option<BrokerConfig> {
    let file = ConfigFile::read(&effective.values());
    let sink = sink(&file, effective, problems)?;
    Some(BrokerConfig { sink, dead_letter: file.dead_letter, log: file.log })
}

/// Returns none when a part cannot be made. Values that could not be
/// read have been reported already and have arbitrary replacements
/// here; the caller drops the result if there is any problem.
pub(crate) fn build(
    effective: &Effective,
    problems: &mut Vec<Problem>,
    env: Lookup<'_>,
) -> Option<Config> {
    let file = ConfigFile::read(&effective.values());
    check::check(&file, effective, problems);
    let connection = connection(&file.source.url, effective, problems, env);
    let sink = sink(&file, effective, problems);
    let kind = file.sink.kind()?;
    let exchange = kind.routes.exchange_key.and_then(|key| file.sink.own.get(key));
    let exchange = exchange.map(|value| Template::read(Some(value)));
    let exchange_key =
        format!("sink.{}.{}", kind.name, kind.routes.exchange_key.unwrap_or_default());
    let ConfigFile { source: SourceSection { own, outbox, mut messages, polling, .. }, .. } = file;
    let mut sections = outbox;
    let routes = sections.iter_mut().map(|outbox| &mut outbox.route);
    for route in routes.chain(messages.iter_mut().map(|messages| &mut messages.route)) {
        route.exchange.clone_from(&exchange);
        route.exchange_key.clone_from(&exchange_key);
        route.binding = kind.binding;
    }
    let outboxes = sections.into_iter().map(OutboxTable::from).collect();
    Some(Config {
        source: SourceSettings { connection: connection?, outboxes, messages, ..own },
        polling,
        sink: sink?,
        delivery: file.delivery,
        dead_letter: file.dead_letter,
        admin: file.admin,
        tracing: file.tracing,
        log: file.log,
    })
}

pub(crate) fn connection(
    url: &Secret,
    effective: &Effective,
    problems: &mut Vec<Problem>,
    env: Lookup<'_>,
) -> Option<ConnInfo> {
    let path = path_of!(ConfigFile.source / SourceSection.url);
    if !effective.settings.contains_key(&path) {
        return None;
    }
    let refused = |error: ConnInfoError| {
        let mend = match error {
            ConnInfoError::Passfile(_) => {
                "name a file of your own in PGPASSFILE, or passfile= in source.url, and: chmod 0600 FILE"
            }
            _ => "write postgres://user@host:5432/database?sslmode=verify-full",
        };
        problems.push(effective.problem(&path, "config.bad-value", &error.to_string(), mend));
    };
    let mut info = conninfo::parse(url.expose(), env).map_err(refused).ok()?;
    info.login_files.url = Some(url.clone()).filter(Secret::is_of_file);
    Some(info)
}

fn sink(
    file: &ConfigFile,
    effective: &Effective,
    problems: &mut Vec<Problem>,
) -> Option<Arc<dyn Broker>> {
    if let Some(missing) = file.sink.missing() {
        let path = path_of!(ConfigFile.sink).child("kind");
        let origin = effective.origin(&path);
        problems.push(Problem::missing_feature(&origin, path, missing));
    }
    let sink = file.sink.kind()?;
    let surroundings = Surroundings {
        window_events_max: file.delivery.window_events_max,
        window_bytes_max: file.delivery.window_bytes_max,
        dead_letters: &file.dead_letter.address,
    };
    let invalid = match (sink.configure)(&file.sink.own, &surroundings) {
        Ok(broker) => return Some(broker),
        Err(invalid) => invalid,
    };
    for InvalidSetting { key, name, code, what, mend } in invalid {
        let mut path = path_of!(ConfigFile.sink).child(sink.name).child(key);
        if let Some(name) = &name {
            path = path.child(name);
        }
        // A value that cannot be read has been reported already.
        if !effective.broken.contains(&path) {
            problems.push(effective.problem(&path, code, &what, &mend));
        }
    }
    None
}
