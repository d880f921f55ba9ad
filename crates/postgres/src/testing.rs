//! A private Postgres for unit tests, which are ignored unless somebody asks for them. Each test gets a database, slots and roles of
//! its own; servers are shared by settings and end with the test process.

#![allow(clippy::unwrap_used, reason = "tests use it, and nothing else")]

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio_postgres::{Client, Error, NoTls};

use super::settings::{ConnInfo, PostgresHost, SourceSettings, SslMode};
use walrelay_core::outbox::settings::OutboxTable;

/// A running server; its socket is in `dir`.
pub struct Server {
    dir: PathBuf,
    // Its stdin is the leash: when this process ends, however it ends, the server does.
    _guard: Child,
}

/// With `wal_level = logical` and room for every test's slot.
pub fn logical() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::start("wal_level=logical max_replication_slots=60"))
}

/// With `wal_level = replica`, one slot and one WAL sender.
pub fn replica_level() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::start("wal_level=replica max_replication_slots=1"))
}

/// With a single slot.
pub fn one_slot() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::start("wal_level=logical max_replication_slots=1"))
}

/// Like [`logical`], with no other test's transactions in it.
pub fn quiet() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::start("wal_level=logical autovacuum=off"))
}

/// For one test, which opens transactions and prepares some.
pub fn alone() -> Server {
    Server::start("wal_level=logical autovacuum=off max_prepared_transactions=2")
}

const SCRIPT: &str = r#"
set -e
dir=$1; bin=$2; shift 2
"$bin/initdb" -D "$dir/data" -U postgres -A trust -E UTF8 --locale=C --no-sync >"$dir/log" 2>&1
for setting; do set -- "$@" -c "$setting"; shift; done
"$bin/postgres" -D "$dir/data" -k "$dir" -c listen_addresses= -c fsync=off \
    -c max_wal_senders=10 "$@" >>"$dir/log" 2>&1 </dev/null &
pid=$!
until "$bin/pg_isready" -q -h "$dir"; do kill -0 $pid; done
echo ready
cat >/dev/null || true
kill -QUIT $pid 2>/dev/null || true
wait $pid || true
rm -rf "$dir"
"#;

impl Server {
    fn start(settings: &str) -> Server {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("walrelay-pg-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let bin = std::env::var("WALRELAY_DEV_POSTGRES_BIN")
            .unwrap_or_else(|_| "/usr/lib/postgresql/15/bin".to_owned());
        let mut command = as_unprivileged(&dir);
        command.args(["sh", "-c", SCRIPT, "sh"]).arg(&dir).arg(bin);
        command.args(settings.split(' ')).current_dir(&dir);
        let mut guard =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("setpriv, sh");
        let mut line = String::new();
        BufReader::new(guard.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let log = || std::fs::read_to_string(dir.join("log")).unwrap_or_default();
        assert_eq!(line, "ready\n", "Postgres did not start: {}", log());
        Server { dir, _guard: guard }
    }

    pub fn signal(&self, name: &str) {
        let pid = self.pid().expect("it runs");
        let sent = Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap();
        assert!(sent.success());
    }

    pub fn is_running(&self) -> bool {
        self.pid().is_some()
    }

    fn pid(&self) -> Option<String> {
        let file = std::fs::read_to_string(self.dir.join("data/postmaster.pid")).ok()?;
        file.lines().next().map(str::to_owned)
    }

    pub async fn connect(&self, user: &str, database: &str) -> Client {
        self.try_connect(user, database).await.unwrap()
    }

    async fn try_connect(&self, user: &str, database: &str) -> Result<Client, Error> {
        let mut config = tokio_postgres::Config::new();
        config.host_path(&self.dir).user(user).dbname(database);
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// A connection to a server that crashes, once it has recovered. The crash ends `other`, whose server
    /// process is not the one that was killed.
    pub async fn connect_again(&self, user: &str, database: &str, other: Client) -> Client {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !other.is_closed() {
            assert!(Instant::now() < deadline, "the server has not crashed");
            tokio::task::yield_now().await;
        }
        loop {
            match self.try_connect(user, database).await {
                Ok(client) => return client,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            tokio::task::yield_now().await;
        }
    }

    /// An empty database named `name`, a superuser's connection to it, and settings whose slot and
    /// publication have the same name.
    pub async fn database(&self, name: &str) -> (Client, SourceSettings) {
        let admin = self.connect("postgres", "postgres").await;
        admin.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
        (self.connect("postgres", name).await, settings(&self.dir, name))
    }
}

/// Postgres refuses to run as root.
fn as_unprivileged(dir: &Path) -> Command {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        return Command::new("env");
    }
    let owned = Command::new("chown").arg("postgres:").arg(dir).status().unwrap();
    assert!(owned.success());
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
    command
}

pub fn outbox() -> OutboxTable {
    OutboxTable::default()
}

fn settings(socket: &Path, name: &str) -> SourceSettings {
    let host =
        PostgresHost { name: socket.to_str().unwrap().to_owned(), port: 5432, password: None };
    SourceSettings {
        connection: ConnInfo {
            hosts: vec![host],
            user: "postgres".into(),
            dbname: name.into(),
            sslmode: SslMode::Disable,
            ..ConnInfo::default()
        },
        slot: name.into(),
        publication: name.into(),
        outboxes: vec![outbox()],
        ..SourceSettings::default()
    }
}

/// The table that `init` would make, the publication and the slot.
pub async fn prepare(client: &Client, settings: &SourceSettings) {
    let table = super::init::table_sql(&settings.outboxes[0]).unwrap();
    client.batch_execute(&table).await.unwrap();
    client.batch_execute(&super::publication::create_sql(settings)).await.unwrap();
    super::slot::create(client, settings, false).await.unwrap();
}
