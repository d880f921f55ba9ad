//! A private PostgreSQL.
//!
//! `fsync` stays on: tests kill this server and count what it still has. Only `initdb` skips the
//! sync. Parallel-query memory lives in the data folder, because what lies in /dev/shm would stay
//! there after a kill.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::install::PostgresInstall;
use crate::kit::wait_for;
use crate::place::Place;
use crate::process::{self, Kind, Process, without_pg_variables};
use crate::{HarnessError, Result, cluster, install, load, ports};

const START_LIMIT: Duration = Duration::from_secs(30);
const END_LIMIT: Duration = Duration::from_secs(10);
const USERS: [&str; 2] = ["postgres", "nobody"];

const SETTINGS: &str = "
wal_level = logical
fsync = on
max_connections = 200
max_wal_senders = 20
max_replication_slots = 20
listen_addresses = '127.0.0.1'
dynamic_shared_memory_type = mmap
log_line_prefix = '%m [%p] '
";

#[derive(Clone, Debug, Default)]
pub struct PostgresOptions {
    /// Settings, appended to `postgresql.conf` and so stronger than the harness's own.
    pub settings: Vec<(String, String)>,
    /// Major version; when none, that of `WALRELAY_TEST_POSTGRES`, 17, or else the newest installed.
    pub version: Option<u32>,
    /// Lines of `pg_hba.conf` instead of trust for all. The unix socket always trusts.
    pub hba: Option<String>,
    /// A fixed TCP port; a free one when none.
    pub port: Option<u16>,
}

/// A running PostgreSQL; superuser `postgres`, no password. Dropping it removes it.
pub struct Postgres {
    process: Process,
    install: PostgresInstall,
    data: PathBuf,
    port: u16,
}

impl Postgres {
    /// Makes a cluster and starts it; returns when it answers.
    pub fn start(options: PostgresOptions) -> Result<Postgres> {
        if options.port.is_some() {
            return Postgres::start_once(&options);
        }
        ports::retry(|| Postgres::start_once(&options))
    }

    fn start_once(options: &PostgresOptions) -> Result<Postgres> {
        let install = install::postgres(options.version)?;
        let place = Place::of(install.root.as_deref(), &USERS)?;
        let port = options.port.map_or_else(ports::free, Ok)?;
        // QUIT is PostgreSQL's immediate shutdown: it ends the backends too, and frees what a
        // kill would leave in shared memory.
        let kind = Kind { name: "PostgreSQL", short: "pg", end: "QUIT" };
        let process = Process::new(kind, place, "")?;
        let data = process.folder().join("data");
        cluster::make(&process, &install, &data)?;
        write_configuration(&data, process.folder(), port, options)?;
        let mut postgres = Postgres { process, install, data, port };
        postgres.launch()?;
        Ok(postgres)
    }

    pub fn standby(primary: &Postgres) -> Result<Postgres> {
        // Not written by pg_basebackup -R: its libpq may be newer than that of the server.
        let folder = primary.folder().display();
        let conninfo = format!("host={folder} port={} user=postgres", primary.port);
        let settings = vec![
            ("primary_conninfo".to_owned(), conninfo),
            ("hot_standby_feedback".to_owned(), "on".to_owned()),
        ];
        Postgres::of_backup(primary, settings, true)
    }

    /// Lets this standby copy the failover slots of its primary, which it reads as the physical slot
    /// `standby` (PostgreSQL 17 and later).
    pub fn synchronize_slots(&self, primary: &Postgres) -> Result<()> {
        let folder = primary.folder().display();
        let conninfo = format!(
            "host={folder} port={} user=postgres dbname=postgres application_name=standby",
            primary.port
        );
        let settings = [
            ("primary_conninfo", conninfo.as_str()),
            ("primary_slot_name", "standby"),
            ("sync_replication_slots", "on"),
        ];
        for (name, value) in settings {
            self.sql("postgres", &format!("ALTER SYSTEM SET {name} = '{value}'"))?;
        }
        self.sql("postgres", "SELECT pg_reload_conf()")?;
        Ok(())
    }

    /// A second primary that goes on from a backup of this one, with the same system identifier and
    /// timeline, and without its slots.
    pub fn twin(original: &Postgres) -> Result<Postgres> {
        Postgres::of_backup(original, Vec::new(), false)
    }

    fn of_backup(
        original: &Postgres,
        settings: Vec<(String, String)>,
        is_standby: bool,
    ) -> Result<Postgres> {
        let (install, port) = (original.install.clone(), ports::free()?);
        let place = original.process.place().clone();
        let name = if is_standby { "PostgreSQL standby" } else { "PostgreSQL twin" };
        let process = Process::new(Kind { name, short: "pg", end: "QUIT" }, place, "")?;
        let data = process.folder().join("data");
        let mut copy = process.command(install.bin.join("pg_basebackup"));
        copy.args(["-c", "fast", "--no-sync", "-U", "postgres", "-h"]);
        copy.arg(original.folder()).args(["-p", &original.port.to_string(), "-D"]).arg(&data);
        process::run(without_pg_variables(&mut copy))?;
        if is_standby {
            process::run(process.command("touch").arg(data.join("standby.signal")))?;
        }
        let options = PostgresOptions { settings, ..PostgresOptions::default() };
        write_configuration(&data, process.folder(), port, &options)?;
        let mut postgres = Postgres { process, install, data, port };
        postgres.launch()?;
        Ok(postgres)
    }

    /// Copies the data folder of a server that is stopped.
    pub fn copy_data(&self) -> Result<()> {
        let mut copy = self.process.command("cp");
        process::run(copy.arg("-a").arg(&self.data).arg(self.data_copy())).map(drop)
    }

    /// Puts the copy in place of the data folder of a server that is stopped.
    pub fn put_copy_back(&mut self) -> Result<()> {
        fs::remove_dir_all(&self.data).map_err(HarnessError::io("removing the data folder"))?;
        fs::rename(self.data_copy(), &self.data).map_err(HarnessError::io("putting a copy back"))
    }

    fn data_copy(&self) -> PathBuf {
        self.data.with_extension("copy")
    }

    fn launch(&mut self) -> Result<()> {
        let mut command = Command::new(self.install.bin.join("postgres"));
        self.process.spawn(without_pg_variables(command.arg("-D").arg(&self.data)))?;
        // The file's last line says when connections are accepted.
        let pid_file = self.data.join("postmaster.pid");
        let socket = self.socket("postgres");
        self.process.wait_ready(START_LIMIT, |process| {
            let state = fs::read_to_string(&pid_file).unwrap_or_default();
            let own = state.lines().next() == Some(process.pid().to_string().as_str());
            let state = state.lines().nth(7).unwrap_or_default().trim();
            let open = matches!(state, "ready" | "standby");
            own && open && load::rows(&socket, "SELECT 1").is_ok()
        })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder of `psql`, `pgbench` and the like, of another version if this server's own can
    /// only run in its place.
    pub fn bin_dir(&self) -> Result<PathBuf> {
        match self.install.root {
            Some(_) => install::postgres_here(),
            None => Ok(self.install.bin.clone()),
        }
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Runs `sql` as the superuser; gives its rows as `psql -At` prints them.
    pub fn sql(&self, database: &str, sql: &str) -> Result<String> {
        load::rows(&self.socket(database), sql)
    }

    pub fn create_database(&self, name: &str) -> Result<()> {
        let quoted = name.replace('"', "\"\"");
        self.sql("postgres", &format!("CREATE DATABASE \"{quoted}\"")).map(drop)
    }

    /// Where the superuser connects whatever `pg_hba.conf` says of TCP.
    fn socket(&self, database: &str) -> String {
        let folder = self.folder().display();
        format!("host='{folder}' port={} user=postgres dbname='{database}'", self.port)
    }

    /// Fast shutdown, as `pg_ctl stop -m fast`; says how long it took. It goes on when the limit
    /// is passed: walsenders whose client does not answer hold it.
    pub fn stop_fast(&mut self, limit: Duration) -> Result<Duration> {
        self.process.signal("INT")?;
        self.process.wait(limit)
    }

    /// Begins a smart shutdown, as `pg_ctl stop -m smart`: it lasts as long as there is an SQL session.
    pub fn begin_stop_smart(&self) -> Result<()> {
        self.process.signal("TERM")
    }

    /// Waits for the end of a shutdown; says how long that took.
    pub fn wait_stopped(&mut self, limit: Duration) -> Result<Duration> {
        self.process.wait(limit)
    }

    pub fn crash(&mut self) -> Result<()> {
        self.process.signal("QUIT")?;
        self.process.wait(END_LIMIT).map(drop)
    }

    pub fn kill9(&mut self) -> Result<()> {
        // The leader first: it would take a killed backend for a crash and start recovery. Orphans
        // would end by themselves, but not at once, and a walsender could go on sending meanwhile.
        let backends = walrelay_measure::process::children(self.process.pid());
        self.process.signal("KILL")?;
        for pid in &backends {
            // Any of them may have ended already.
            process::kill("KILL", &pid.to_string()).ok();
        }
        self.process.wait(END_LIMIT)?;
        let ended = || !backends.iter().any(|pid| process::exists(*pid));
        let what = "the end of PostgreSQL's backends";
        wait_for(what, END_LIMIT, Duration::from_millis(2), || Ok(ended().then_some(())))
    }

    pub fn start_again(&mut self) -> Result<()> {
        self.launch()
    }

    pub fn answers(&self) -> bool {
        self.sql("postgres", "SELECT 1").is_ok()
    }
}

impl Deref for Postgres {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

fn write_configuration(
    data: &Path,
    folder: &Path,
    port: u16,
    options: &PostgresOptions,
) -> Result<()> {
    let mut text = String::from(SETTINGS);
    let mut set = |key: &str, value: &str| {
        text.push_str(&format!("{key} = '{}'\n", value.replace('\'', "''")));
    };
    set("port", &port.to_string());
    set("unix_socket_directories", &folder.to_string_lossy());
    for (key, value) in &options.settings {
        set(key, value);
    }
    append(&data.join("postgresql.conf"), &text)?;
    let Some(hba) = &options.hba else { return Ok(()) };
    // Socket access stays, or the harness could not look into its own server.
    let hba = format!("local all postgres trust\n{hba}\n");
    let path = data.join("pg_hba.conf");
    fs::write(&path, hba).map_err(HarnessError::io(format!("writing {}", path.display())))
}

/// Appends by rewriting what is there, which keeps the file's owner.
fn append(path: &Path, text: &str) -> Result<()> {
    let failed = || HarnessError::io(format!("writing {}", path.display()));
    let before = fs::read_to_string(path).map_err(failed())?;
    fs::write(path, before + text).map_err(failed())
}
