//! The Postgres of these tests: see `cluster.sh`.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use walrelay::source::conninfo;
use walrelay::source::settings::ConnInfo;
use walrelay_harness::free_port;

pub(crate) struct Cluster {
    pub(crate) port: u16,
    pub(crate) standby_port: u16,
    folder: String,
    /// Its standard input ends with this process, and with that the cluster.
    _alive: Child,
}

pub(crate) fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        let (port, standby_port) = (free_port().unwrap(), free_port().unwrap());
        let folder = format!("/tmp/walrelay-connect-{}", std::process::id());
        let programs = std::env::var("PG_BIN").unwrap_or("/usr/lib/postgresql/15/bin".to_owned());
        // Postgres does not run as root.
        let root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
        let mut command = Command::new(if root { "setpriv" } else { "env" });
        if root {
            command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]);
        }
        let mut child = command
            .args(["sh", "-c", include_str!("cluster.sh"), "cluster.sh", &folder])
            .args([port.to_string(), standby_port.to_string(), programs])
            .current_dir("/tmp")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "Postgres did not start");
        Cluster { port, standby_port, folder, _alive: child }
    })
}

/// Connection settings for the primary; `@` stands for its folder.
pub(crate) fn info(parameters: &str) -> ConnInfo {
    let cluster = cluster();
    let parameters = parameters.replace('@', &cluster.folder);
    let text = format!("host=127.0.0.1 port={} dbname=app {parameters}", cluster.port);
    conninfo::parse(&text, &|_| None).unwrap()
}
