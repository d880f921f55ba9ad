//! Makes the typed configuration of what the file declares.

use std::sync::Arc;

use super::sections::{
    AdminSettings, ConfigFile, LogSettings, SinkSection, SourceSection, path_of,
};
use super::{check, missing};
use crate::base::error::Exit;
use crate::base::secret::Secret;
use crate::base::settings::{Origin, Problem, Visit};
use crate::dead_letter::writer::DeadLetterSettings;
use crate::delivery::settings::DeliverySettings;
use crate::outbox::settings::OutboxTable;
use crate::polling::settings::PollingSettings;
use crate::sink::Broker;
use crate::sink::settings::{InvalidSetting, Surroundings};
use crate::source::conninfo::{self, ConnInfoError};
use crate::source::passfile::PassfileError;
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
pub(crate) fn broker(mut file: ConfigFile, visit: &mut Visit) -> Option<BrokerConfig> {
    let sink = sink(&mut file, visit)?;
    Some(BrokerConfig { sink, dead_letter: file.dead_letter, log: file.log })
}

/// Returns none when a part cannot be made. Values that could not be
/// read have been reported already and have arbitrary replacements
/// here; the caller drops the result if there is any problem.
pub(crate) fn build(mut file: ConfigFile, visit: &mut Visit) -> Option<Config> {
    check::check(&file, visit);
    let connection = connection(&file.source.url, visit);
    let sink = sink(&mut file, visit);
    let (connection, sink) = (connection?, sink?);
    let kind = sink.kind();
    let ConfigFile { source: SourceSection { own, outbox, mut messages, polling, .. }, .. } = file;
    let mut sections = outbox;
    let routes = sections.iter_mut().map(|outbox| &mut outbox.route);
    for route in routes.chain(messages.iter_mut().map(|messages| &mut messages.route)) {
        route.exchange = sink.exchange().cloned();
        route.exchange_key = format!("sink.{}.exchange", kind.name);
        route.binding = kind.binding;
    }
    let outboxes = sections.into_iter().map(OutboxTable::from).collect();
    Some(Config {
        source: SourceSettings { connection, outboxes, messages, ..own },
        polling,
        sink,
        delivery: file.delivery,
        dead_letter: file.dead_letter,
        admin: file.admin,
        tracing: file.tracing,
        log: file.log,
    })
}

pub(crate) fn connection(url: &Secret, visit: &mut Visit) -> Option<ConnInfo> {
    let path = path_of!(ConfigFile.source / SourceSection.url);
    if !visit.effective.settings.contains_key(&path) {
        return None;
    }
    // In a connection string of keywords, a line end is a blank.
    let is_url = url.expose().trim_start().starts_with("postgres");
    if is_url && url.expose().contains(['\n', '\r']) {
        let mend = "write it without a line end; only a file may have one behind it";
        visit.refuse(&path, "config.bad-value", "the URL has a line end in it or after it", mend);
        return None;
    }
    let env = |name: &str| visit.tree.variables.get(name).cloned();
    match conninfo::parse(url.expose(), &env) {
        Ok(mut info) => {
            info.login_files.url = Some(url.clone()).filter(Secret::is_of_file);
            Some(info)
        }
        Err(error) => {
            if let ConnInfoError::Variable(name, ..) = &error {
                let origin = Origin::Variable(name.clone());
                let mend = format!("unset {name}, or set it to what is supported");
                let problem = Problem::new(&origin, "config.bad-value", error.to_string(), mend);
                visit.tree.problems.push(problem);
                return None;
            }
            let mend = match &error {
                // Another process may have yet to write it.
                ConnInfoError::Passfile(PassfileError::Unreadable(file, _)) => {
                    let mend = format!("ls -l {}", file.display());
                    let (origin, what) = (visit.tree.origin(&path), error.to_string());
                    let code = "config.missing-secret";
                    let mut problem = Problem::at(&origin, &path, code, &what, mend);
                    problem.fault.exit = Exit::Failed;
                    visit.tree.problems.push(problem);
                    return None;
                }
                ConnInfoError::Passfile(_) => {
                    "name a file of your own in PGPASSFILE, or passfile= in source.url, and: chmod 0600 FILE"
                }
                _ => "write postgres://user@host:5432/database?sslmode=verify-full",
            };
            visit.refuse(&path, "config.bad-value", &error.to_string(), mend);
            None
        }
    }
}

fn sink(file: &mut ConfigFile, visit: &mut Visit) -> Option<Arc<dyn Broker>> {
    let SinkSection { kind, missing } = std::mem::take(&mut file.sink);
    if let Some(feature) = missing {
        missing::refuse(visit, &path_of!(ConfigFile.sink).child("kind"), feature);
    }
    let (kind, configure) = kind?;
    let surroundings = Surroundings {
        window_events_max: file.delivery.window_events_max,
        window_bytes_max: file.delivery.window_bytes_max,
        dead_letters: &file.dead_letter.address,
        state_file: file.delivery.state_file.as_deref(),
    };
    let invalid = match configure(&surroundings) {
        Ok(broker) => return Some(broker),
        Err(invalid) => invalid,
    };
    for InvalidSetting { key, name, code, what, mend } in invalid {
        let path = path_of!(ConfigFile.sink).child(kind.name).child(key);
        let path = name.map_or_else(|| path.clone(), |name| path.child(&name));
        // A value that cannot be read has been reported already.
        if !visit.broken.contains(&path) {
            visit.refuse(&path, code, &what, mend);
        }
    }
    None
}
