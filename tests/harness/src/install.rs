//! Where `scripts/setup` put things, where data goes, and as whom services run.
//!
//! The paths here and in `scripts/setup` are one contract. Servers refuse to run as root
//! (PostgreSQL) or need not (Kafka, RabbitMQ): under root each gets an unprivileged user.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::{HarnessError, Result, place};

const KAFKA_VERSION: &str = "4.1.0";
const SYSTEM_POSTGRES: &str = "/usr/lib/postgresql";
const ERLANG_LIB: &str = "/usr/lib/erlang/lib";
const RABBITMQ_LIB: &str = "/usr/lib/rabbitmq/lib";

#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// The folder that `scripts/setup` fills.
pub fn cache_folder() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("WALRELAY_DEV_CACHE") {
        return Ok(folder.into());
    }
    if own_uid()? == 0 {
        return Ok("/var/cache/walrelay-dev".into());
    }
    let home = std::env::var_os("HOME")
        .ok_or_else(|| HarnessError::Other("HOME is not set; set WALRELAY_DEV_CACHE".into()))?;
    Ok(Path::new(&home).join(".cache/walrelay-dev"))
}

/// The folder under which every service has its own; made when it is not there.
pub fn run_folder() -> Result<PathBuf> {
    let uid = own_uid()?;
    let folder = match std::env::var_os("WALRELAY_DEV_RUN") {
        Some(folder) => PathBuf::from(folder),
        None => std::env::temp_dir().join(format!("walrelay-dev-{uid}")),
    };
    make_folder(&folder, true)?;
    // The name is predictable and /tmp is everyone's: somebody else's folder is not ours to use.
    let found = fs::symlink_metadata(&folder)
        .map_err(HarnessError::io(format!("looking at {}", folder.display())))?;
    if !found.is_dir() || found.uid() != uid {
        let place = folder.display();
        return Err(HarnessError::Other(format!(
            "{place} is not a folder of this user: remove it or set WALRELAY_DEV_RUN"
        )));
    }
    Ok(folder)
}

pub(crate) fn service_folder(name: &str, user: Option<User>) -> Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.subsec_nanos());
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    // Short, because a unix socket's path may have 107 bytes at most.
    let name = format!("{name}-{}-{count}-{:x}", std::process::id(), nanos & 0xfffff);
    let folder = run_folder()?.join(name);
    make_folder(&folder, false)?;
    if let Some(user) = user {
        std::os::unix::fs::chown(&folder, Some(user.uid), Some(user.gid))
            .map_err(HarnessError::io(format!("giving away {}", folder.display())))?;
    }
    Ok(folder)
}

fn make_folder(folder: &Path, may_exist: bool) -> Result<()> {
    let failed = || HarnessError::io(format!("making {}", folder.display()));
    fs::DirBuilder::new().recursive(may_exist).mode(0o755).create(folder).map_err(failed())?;
    if !may_exist {
        // The umask may have taken away what a service of another user needs.
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).map_err(failed())?;
    }
    Ok(())
}

/// The first of `names` that exists on this machine, when we are root; else nobody but ourselves.
pub(crate) fn service_user(names: &[&str]) -> Result<Option<User>> {
    if own_uid()? != 0 {
        return Ok(None);
    }
    for name in names {
        if let (Some(uid), Some(gid)) = (id("-u", name), id("-g", name)) {
            return Ok(Some(User { uid, gid }));
        }
    }
    Err(HarnessError::Other(format!("none of the users {} exists", names.join(", "))))
}

fn id(what: &str, name: &str) -> Option<u32> {
    let output = Command::new("id").args([what, name]).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

pub(crate) fn own_uid() -> Result<u32> {
    Ok(fs::metadata("/proc/self").map_err(HarnessError::io("looking at /proc/self"))?.uid())
}

/// The version of a service that the caller's environment chooses.
fn chosen(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|version| !version.is_empty())
}

const POSTGRES_MAJOR: u32 = 17;

/// Where `postgres`, `initdb` and `psql` are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PostgresInstall {
    /// A folder with a Debian of its own that has them.
    pub(crate) root: Option<PathBuf>,
    pub(crate) bin: PathBuf,
}

/// When no major version is named, that of `WALRELAY_TEST_POSTGRES`, the usual one, or else the
/// newest of this machine.
pub(crate) fn postgres(version: Option<u32>) -> Result<PostgresInstall> {
    let chosen = chosen("WALRELAY_TEST_POSTGRES").map(|version| version.parse());
    let chosen = chosen.transpose().map_err(|_| {
        HarnessError::Other("WALRELAY_TEST_POSTGRES is no major version, such as 17".into())
    })?;
    let Some(major) = version.or(chosen) else {
        return Ok(PostgresInstall { root: None, bin: postgres_here()? });
    };
    let root = cache_folder()?.join(format!("postgresql-{major}"));
    let bin = Path::new(SYSTEM_POSTGRES).join(major.to_string()).join("bin");
    if outside(&root, &bin).join("postgres").is_file() {
        return Ok(PostgresInstall { root: Some(root), bin });
    }
    let bin = postgres_bin(Some(major))?;
    Ok(PostgresInstall { root: None, bin })
}

/// The folder with the programs of this machine: of the usual version, or else the newest.
pub(crate) fn postgres_here() -> Result<PathBuf> {
    postgres_bin(None)
}

fn postgres_bin(version: Option<u32>) -> Result<PathBuf> {
    let cache = cache_folder()?;
    let mut found: Vec<(u32, PathBuf)> = Vec::new();
    for (parent, prefix) in [(cache.as_path(), "postgresql-"), (Path::new(SYSTEM_POSTGRES), "")] {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let major = name.to_str().and_then(|n| n.strip_prefix(prefix)?.parse().ok());
            let bin = entry.path().join("bin");
            if let (Some(major), true) = (major, bin.join("postgres").is_file()) {
                found.push((major, bin));
            }
        }
    }
    let wanted = found.into_iter().filter(|(major, _)| version.is_none_or(|v| v == *major));
    let best = wanted.max_by_key(|(major, _)| (*major == POSTGRES_MAJOR, *major));
    best.map(|(_, bin)| bin).ok_or_else(|| match version {
        Some(major) => HarnessError::Other(format!(
            "PostgreSQL {major} missing in {} and {SYSTEM_POSTGRES}: run scripts/setup --postgres {major}",
            cache.display()
        )),
        None => HarnessError::Missing { what: "PostgreSQL".into(), place: cache },
    })
}

pub(crate) struct KafkaInstall {
    pub(crate) version: String,
    pub(crate) lib: PathBuf,
    /// A new broker's data folder as Kafka's StorageTool leaves it.
    pub(crate) formatted: PathBuf,
    /// The JVM's archive of the classes that a broker loads.
    pub(crate) classes: PathBuf,
}

/// Kafka as `scripts/setup` leaves it: of the version in `WALRELAY_TEST_KAFKA`, or the usual one.
pub(crate) fn kafka() -> Result<KafkaInstall> {
    let version = chosen("WALRELAY_TEST_KAFKA").unwrap_or_else(|| KAFKA_VERSION.into());
    let home = cache_folder()?.join(format!("kafka-{version}"));
    let install = KafkaInstall {
        version,
        lib: home.join("lib"),
        formatted: home.join("formatted"),
        classes: home.join("classes.jsa"),
    };
    for (what, place) in
        [("Kafka jars", &install.lib), ("Kafka's formatted folder", &install.formatted)]
    {
        if !place.is_dir() {
            return Err(HarnessError::Missing { what: what.into(), place: place.clone() });
        }
    }
    Ok(install)
}

/// RabbitMQ with its Erlang, as Debian's packages leave them.
pub(crate) struct RabbitInstall {
    /// A folder with a Debian of its own that has them.
    pub(crate) root: Option<PathBuf>,
}

/// A `rabbitmq-server` that does not switch user by itself.
pub(crate) const RABBITMQ_SERVER: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";

const RABBITMQ_VERSION: &str = "4.0";

/// RabbitMQ of the version in `WALRELAY_TEST_RABBITMQ`, such as 4.3, or the usual one. Where the folder of
/// the usual one is missing or cannot be entered, it is that of this machine.
pub(crate) fn rabbitmq() -> Result<RabbitInstall> {
    let chosen = chosen("WALRELAY_TEST_RABBITMQ");
    let root = rabbitmq_root(&cache_folder()?, chosen.as_deref(), place::can_enter);
    if root.is_some() {
        Ok(RabbitInstall { root })
    } else {
        rabbitmq_here(&chosen.unwrap_or_default())
    }
}

/// One that is asked for is not replaced: that it cannot be entered is said when it is started.
fn rabbitmq_root(
    cache: &Path,
    chosen: Option<&str>,
    can_enter: impl FnOnce() -> bool,
) -> Option<PathBuf> {
    let root = cache.join(format!("rabbitmq-{}", chosen.unwrap_or(RABBITMQ_VERSION)));
    (root.is_dir() && (chosen.is_some() || can_enter())).then_some(root)
}

fn rabbitmq_here(version: &str) -> Result<RabbitInstall> {
    let install = RabbitInstall { root: None };
    let named = format!("rabbitmq_server-{version}");
    let servers = entries(Path::new(RABBITMQ_LIB)).unwrap_or_default();
    let mut names = servers.iter().filter_map(|path| path.file_name()?.to_str());
    if Path::new(RABBITMQ_SERVER).is_file() && names.any(|name| name.starts_with(&named)) {
        return Ok(install);
    }
    if version.is_empty() {
        return Err(HarnessError::Missing { what: "RabbitMQ".into(), place: RABBITMQ_LIB.into() });
    }
    Err(HarnessError::Other(format!(
        "RabbitMQ {version} missing in {} and {RABBITMQ_LIB}: run scripts/setup --rabbitmq {version}",
        cache_folder()?.display()
    )))
}

impl RabbitInstall {
    /// Which one it is, for people.
    pub(crate) fn origin(&self) -> String {
        let lib = self.root.as_ref().map(|root| outside(root, Path::new(RABBITMQ_LIB)));
        let servers =
            entries(lib.as_deref().unwrap_or(Path::new(RABBITMQ_LIB))).unwrap_or_default();
        let named = |path: &PathBuf| {
            Some(path.file_name()?.to_str()?.strip_prefix("rabbitmq_server-")?.to_owned())
        };
        let version = servers.iter().find_map(named).unwrap_or_default();
        match &self.root {
            Some(root) => format!("RabbitMQ {version} in {}", root.display()),
            None => format!("RabbitMQ {version} of this machine"),
        }
    }

    /// The applications of Erlang, and those of RabbitMQ that are no plugins.
    pub(crate) fn applications(&self) -> Result<Vec<PathBuf>> {
        let place = |path: &str| match &self.root {
            Some(root) => outside(root, Path::new(path)),
            None => path.into(),
        };
        let mut found = entries(&place(ERLANG_LIB))?;
        for server in entries(&place(RABBITMQ_LIB))? {
            found.extend(entries(&server.join("plugins"))?.into_iter().filter(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                !name.starts_with("rabbitmq_") || name.starts_with("rabbitmq_prelaunch")
            }));
        }
        Ok(found)
    }

    /// A path as the server sees it.
    pub(crate) fn inside(&self, path: &Path) -> PathBuf {
        let inside = self.root.as_ref().and_then(|root| path.strip_prefix(root).ok());
        inside.map_or_else(|| path.to_owned(), |path| Path::new("/").join(path))
    }
}

/// Where a path of the Debian in `root` is on this machine.
fn outside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let read = fs::read_dir(folder);
    let read = read.map_err(HarnessError::io(format!("reading {}", folder.display())))?;
    Ok(read.flatten().map(|entry| entry.path()).collect())
}

/// `prometheus` or `promtool`, wherever the path has it.
pub(crate) fn prometheus_program(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name));
    found.into_iter().find(|program| program.is_file()).ok_or_else(|| HarnessError::Missing {
        what: format!("{name} (Debian package prometheus)"),
        place: PathBuf::from(path),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_rabbitmq_gives_way_to_that_of_this_machine_and_one_asked_for_does_not() {
        // GIVEN a cache without RabbitMQ THEN it is this machine's
        let cache = service_folder("install", None).unwrap();
        assert_eq!(rabbitmq_root(&cache, None, || true), None);
        // WHEN the usual one is there THEN it is that one, where its folder can be entered
        let usual = cache.join("rabbitmq-4.0");
        fs::create_dir(&usual).unwrap();
        assert_eq!(rabbitmq_root(&cache, None, || false), None);
        assert_eq!(rabbitmq_root(&cache, None, || true), Some(usual.clone()));
        // WHEN a version is asked for THEN it is that one or none
        assert_eq!(rabbitmq_root(&cache, Some("4.0"), || false), Some(usual));
        assert_eq!(rabbitmq_root(&cache, Some("4.3"), || true), None);
        fs::remove_dir_all(cache).unwrap();
    }
}
