//! The configuration. Each part of the relay declares its section with `settings!`; [`sections`]
//! puts them together. File, environment and flags are merged into one tree, and [`implied`] adds what
//! follows from it; a visit reads the values and fills in defaults; [`check`] finds contradictions;
//! [`build`] makes the typed [`Config`]. No step stops at the first problem, so that all of them are
//! reported at once.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path as FilePath, PathBuf};

use serde::{Deserialize, Serialize};

use crate::base::error::{Exit, Fault};
use crate::base::settings::{Origin, Path, Problem, Tree, Visit};
use crate::source::settings::{ConnInfo, SourceSettings};

mod build;
mod check;
mod file;
mod implied;
mod libraries;
mod missing;
mod opentelemetry;
mod overrides;
mod reference;
mod removed;
mod schema;
mod sections;
mod show;

use sections::{ConfigFile, SourceSection, path_of};

pub use crate::base::settings::Effective;
pub use build::{BrokerConfig, Config};
pub(crate) use libraries::signature as library_signature;
pub use reference::reference;
pub use schema::schema;
pub use sections::{AdminSettings, LogSettings};
pub(crate) use sections::{LOG_FILTER, token_fault};
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
    let mut reading = Reading::of(request, None)?;
    let config = build::build(reading.file(), &mut reading.visit);
    let effective = reading.visit.effective.clone();
    reading.result(config.map(|config| Loaded { config, effective }))
}

/// The sections that a command needs which uses the broker alone. Whatever is wrong with the values of other
/// sections is not reported: where such a command runs, there may be no secret of the database.
pub(crate) fn load_broker(request: &Request) -> Result<BrokerConfig, Vec<Fault>> {
    let mut reading = Reading::of(request, None)?;
    let file = reading.file();
    let is_of_others = |problem: &Problem| {
        let section = problem.key.split(['.', '[']).next().unwrap_or_default();
        ["source", "route", "admin", "tracing"].contains(&section)
    };
    reading.visit.tree.problems.retain(|problem| !is_of_others(problem));
    let config = build::broker(file, &mut reading.visit);
    reading.result(config)
}

/// Where the admin server listens, whatever is wrong with other keys, and with the file if it is not the
/// file that says so.
pub(crate) fn admin_listen(request: &Request) -> Result<SocketAddr, Vec<Fault>> {
    let key = path_of!(ConfigFile.admin / AdminSettings.listen);
    let mut reading = Reading::of(request, Some(&key))?;
    let listen = reading.file().admin.listen;
    if reading.visit.broken.contains(&key) { Err(reading.faults()) } else { Ok(listen) }
}

/// Where Postgres is, whatever is wrong with other keys.
pub(crate) fn source_connection(request: &Request) -> Result<ConnInfo, Vec<Fault>> {
    let key = path_of!(ConfigFile.source / SourceSection.url);
    let mut reading = Reading::of(request, Some(&key))?;
    let url = reading.file().source.url;
    let connection = build::connection(&url, &mut reading.visit);
    connection.ok_or_else(|| {
        reading.visit.tree.problems.retain(|problem| problem.key == key.to_string());
        reading.faults()
    })
}

/// File, environment and flags as they are read.
struct Reading {
    visit: Visit,
    /// The place of problems that have no other place.
    place: String,
}

impl Reading {
    /// Merges the layers. Without the values of a file that cannot be read, every required key would be
    /// reported as missing, too: that is the only fault, unless the one key that is wanted is given elsewhere.
    fn of(request: &Request, wanted: Option<&Path>) -> Result<Reading, Vec<Fault>> {
        let mut tree = Tree { variables: request.variables.clone(), ..Tree::default() };
        opentelemetry::environment(&mut tree);
        let place = read_file(&mut tree, request.file.as_deref(), &DEFAULT_FILES);
        overrides::environment(&mut tree);
        overrides::flags(&mut tree, &request.settings);
        let slot = path_of!(ConfigFile.source / SourceSettings.slot);
        overrides::shorthand(&mut tree, "--slot", slot, request.slot.as_ref());
        let listen = path_of!(ConfigFile.admin / AdminSettings.listen);
        overrides::shorthand(&mut tree, "--listen", listen, request.listen.as_ref());
        opentelemetry::keep_headers_from_others(&mut tree);
        let lacks_file = tree
            .problems
            .iter()
            .any(|problem| ["config.syntax", "config.unreadable"].contains(&problem.fault.code));
        let is_given = wanted.is_some_and(|key| tree.given.contains_key(key));
        let reading = Reading { visit: Visit::of(tree), place };
        if lacks_file && !is_given { Err(reading.faults()) } else { Ok(reading) }
    }

    fn file(&mut self) -> ConfigFile {
        implied::add(&mut self.visit.tree);
        self.visit.read()
    }

    fn result<T>(self, value: Option<T>) -> Result<T, Vec<Fault>> {
        let is_sound = self.visit.tree.problems.is_empty();
        value.filter(|_| is_sound).ok_or_else(|| self.faults())
    }

    /// The faults sorted by place. A start that fails with one that may pass by itself is tried again, but not
    /// if another fault needs a person.
    fn faults(self) -> Vec<Fault> {
        let Reading { visit, place } = self;
        let mut problems = visit.tree.problems;
        problems.sort_by(|a, b| a.origin.cmp(&b.origin));
        let is_usage = problems.iter().any(|problem| problem.fault.exit == Exit::Usage);
        let faults = problems.into_iter().map(|Problem { mut fault, .. }| {
            if fault.place.is_empty() {
                fault.place.clone_from(&place);
            }
            fault.exit = if is_usage { Exit::Usage } else { fault.exit };
            fault
        });
        faults.collect()
    }
}

/// Adds the file that is named, or the first default that exists, to the tree. Returns the place of
/// problems that have no other place.
fn read_file(tree: &mut Tree, named: Option<&FilePath>, defaults: &[&str]) -> String {
    let default = || defaults.iter().map(FilePath::new).find(|file| is_there(file));
    match named.or_else(default) {
        Some(file) => read_named(tree, file),
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

fn read_named(tree: &mut Tree, path: &FilePath) -> String {
    let name = path.display().to_string();
    let error = match std::fs::read_to_string(path) {
        Ok(text) => {
            file::read(tree, &name, &text);
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
    tree.problems.push(Problem::new(&Origin::Default, "config.unreadable", what, mend));
    name
}

// Two attributes, because clippy takes what is behind `all(test, ..)` for no test.
#[cfg(test)]
#[cfg(feature = "kafka")]
mod tests;
