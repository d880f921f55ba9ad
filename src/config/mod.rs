//! The configuration. Each part of the relay declares its section with `settings!`; [`sections`]
//! puts them together. File, environment and flags become [`layers`]; [`effective`] reads the
//! values and fills in defaults; [`check`] finds contradictions; [`build`] makes the typed
//! [`Config`]. No step stops at the first problem, so that all of them are reported at once.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path as FilePath, PathBuf};

use serde::{Deserialize, Serialize};

use crate::base::error::{Exit, Fault};
use crate::base::settings::Settings as _;
use crate::source::settings::{ConnInfo, SourceSettings};

mod build;
mod check;
mod effective;
mod file;
mod layers;
mod libraries;
mod opentelemetry;
mod overrides;
mod path;
mod reference;
mod removed;
mod schema;
mod sections;
mod show;

use layers::{Layers, Origin, Problem};
use sections::{ConfigFile, SourceSection, path_of};

pub use build::{BrokerConfig, Config};
pub use effective::Effective;
pub(crate) use libraries::signature as library_signature;
pub use reference::reference;
pub use schema::schema;
pub(crate) use sections::TOKEN_BYTES_MIN;
pub use sections::{AdminSettings, LogSettings};
pub use show::{show, show_json};

/// The configuration files if none is named; the first that exists is read.
pub const DEFAULT_FILES: [&str; 2] = ["walrelay.toml", "/etc/walrelay/walrelay.toml"];

/// Where to look for the configuration. No `Debug`: variables and settings may hold secrets.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Request {
    /// `--config` or `WALRELAY_CONFIG`; without it [`DEFAULT_FILES`], which may be absent.
    pub file: Option<PathBuf>,
    /// Every `--set KEY=VALUE`, in order.
    pub settings: Vec<String>,
    /// `--slot`.
    pub slot: Option<String>,
    /// `--listen`.
    #[serde(skip)]
    pub listen: Option<String>,
    /// The environment.
    #[serde(skip)]
    pub variables: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
pub struct Loaded {
    pub config: Config,
    /// Every value with its origin, for [`show`].
    pub effective: Effective,
}

/// Reads the configuration; the error is the list of all problems, sorted by place.
pub fn load(request: &Request) -> Result<Loaded, Vec<Fault>> {
    let (layers, place) = layers(request);
    // Without the values of the file, every required key would be reported as missing, too.
    if layers.lacks_file() {
        return Err(in_order(layers.problems, &place));
    }
    let env = |name: &str| request.variables.get(name).cloned();
    let (effective, mut problems) = effective::resolve(layers, &env);
    match build::build(&effective, &mut problems, &env) {
        Some(config) if problems.is_empty() => Ok(Loaded { config, effective }),
        Some(_) | None => Err(in_order(problems, &place)),
    }
}

/// The sections that a command needs which uses the broker alone. Whatever is wrong with the values of other
/// sections is not reported: where such a command runs, there may be no secret of the database.
pub(crate) fn load_broker(request: &Request) -> Result<BrokerConfig, Vec<Fault>> {
    let (layers, place) = layers(request);
    if layers.lacks_file() {
        return Err(in_order(layers.problems, &place));
    }
    let env = |name: &str| request.variables.get(name).cloned();
    let (effective, mut problems) = effective::resolve(layers, &env);
    let is_of_others = |key: &str| {
        let section = key.split(['.', '[']).next().unwrap_or_default();
        ["source", "route", "admin", "tracing"].contains(&section)
    };
    problems.retain(|problem| !is_of_others(&problem.key));
    match build::broker(&effective, &mut problems) {
        Some(config) if problems.is_empty() => Ok(config),
        Some(_) | None => Err(in_order(problems, &place)),
    }
}

/// Where the admin server listens, whatever is wrong with other keys, and with the file if it is not the
/// file that says so.
pub(crate) fn admin_listen(request: &Request) -> Result<SocketAddr, Vec<Fault>> {
    let (layers, place) = layers(request);
    let key = path_of!(ConfigFile.admin / AdminSettings.listen);
    if layers.lacks_file() && !layers.entries.contains_key(&key) {
        return Err(in_order(layers.problems, &place));
    }
    let env = |name: &str| request.variables.get(name).cloned();
    let (effective, problems) = effective::resolve(layers, &env);
    match effective.broken.contains(&key) {
        true => Err(in_order(problems, &place)),
        false => Ok(ConfigFile::read(&effective.values()).admin.listen),
    }
}

/// Where Postgres is, whatever is wrong with other keys.
pub(crate) fn source_connection(request: &Request) -> Result<ConnInfo, Vec<Fault>> {
    let (layers, place) = layers(request);
    let key = path_of!(ConfigFile.source / SourceSection.url);
    if layers.lacks_file() && !layers.entries.contains_key(&key) {
        return Err(in_order(layers.problems, &place));
    }
    let env = |name: &str| request.variables.get(name).cloned();
    let (effective, mut problems) = effective::resolve(layers, &env);
    let file = ConfigFile::read(&effective.values());
    match build::connection(&file.source.url, &effective, &mut problems, &env) {
        Some(connection) => Ok(connection),
        None => {
            let prefix = format!("{key}:");
            problems.retain(|problem| problem.fault.what.starts_with(&prefix));
            Err(in_order(problems, &place))
        }
    }
}

/// File, environment and flags, and the place of problems that have no other place.
fn layers(request: &Request) -> (Layers, String) {
    let mut layers = Layers::default();
    opentelemetry::environment(&mut layers, &request.variables);
    let place = read_file(&mut layers, request.file.as_deref(), &DEFAULT_FILES);
    overrides::environment(&mut layers, &request.variables);
    overrides::flags(&mut layers, &request.settings);
    if let Some(slot) = &request.slot {
        let path = path_of!(ConfigFile.source / SourceSettings.slot);
        overrides::shorthand(&mut layers, "--slot", path, slot);
    }
    if let Some(listen) = &request.listen {
        let path = path_of!(ConfigFile.admin / AdminSettings.listen);
        overrides::shorthand(&mut layers, "--listen", path, listen);
    }
    (layers, place)
}

/// Adds the file that is named, or the first default that exists, to the layers. Returns the place of
/// problems that have no other place.
fn read_file(layers: &mut Layers, named: Option<&FilePath>, defaults: &[&str]) -> String {
    let default = || defaults.iter().map(FilePath::new).find(|file| is_there(file));
    match named.or_else(default) {
        Some(file) => read_named(layers, file),
        // The environment may contain everything; what it does not is reported as missing.
        None => format!("{} (no such file) and the environment", defaults.join(", ")),
    }
}

/// Also where it may not be looked at, which is then reported.
fn is_there(file: &FilePath) -> bool {
    file.metadata().map_or_else(|error| may_be_there(file, error.kind()), |_| true)
}

/// A file that may not be read can be looked at, so where a relative name is refused, it is the working
/// folder that this user may not search: somebody else's, as with sudo.
fn may_be_there(file: &FilePath, refusal: ErrorKind) -> bool {
    match refusal {
        ErrorKind::NotFound => false,
        ErrorKind::PermissionDenied => file.is_absolute(),
        _ => true,
    }
}

fn read_named(layers: &mut Layers, path: &FilePath) -> String {
    let name = path.display().to_string();
    let error = match std::fs::read_to_string(path) {
        Ok(text) => {
            file::read(layers, &name, &text);
            return name;
        }
        Err(error) => error.kind(),
    };
    let mend = match error {
        ErrorKind::InvalidData => format!("save it as UTF-8: file {name}"),
        ErrorKind::PermissionDenied => format!(
            "run it as the user of the relay, as in: sudo -u walrelay walrelay check\n\
             or, if that user may not read it either: chgrp walrelay {name} && chmod 640 {name}\n\
             or name another file: walrelay --config FILE"
        ),
        _ => format!("ls -l {name}; or: walrelay --config FILE"),
    };
    let what = match error {
        ErrorKind::NotFound => "there is no such configuration file".to_owned(),
        _ => format!("cannot read the configuration: {error}"),
    };
    layers.problems.push(Problem::new(&Origin::Default, "config.unreadable", what, mend));
    name
}

/// The faults sorted by place; `place` is that of faults without one. A start that fails with one that may
/// pass by itself is tried again, but not if another fault needs a person.
fn in_order(mut problems: Vec<Problem>, place: &str) -> Vec<Fault> {
    problems.sort_by(|a, b| a.origin.cmp(&b.origin));
    if problems.iter().any(|problem| problem.fault.exit == Exit::Usage) {
        problems.iter_mut().for_each(|problem| problem.fault.exit = Exit::Usage);
    }
    let faults = problems.into_iter().map(|Problem { mut fault, .. }| {
        if fault.place.is_empty() {
            fault.place = place.to_owned();
        }
        fault
    });
    faults.collect()
}

#[cfg(test)]
#[cfg(feature = "kafka")]
mod tests;
