//! A private RabbitMQ.
//!
//! Each node has its own `epmd`, Erlang's name server, on its own port: a shared one outlives every
//! server and would tie runs to each other. After a kill the node answers before its quorum queues
//! have a leader, and a quorum queue declared in the seconds before a kill can be forgotten with
//! its messages: a kill test declares, waits 8 s, then begins.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::process::{self, Kind, Process};
use crate::{HarnessError, Result, install, ports};

const START_LIMIT: Duration = Duration::from_secs(90);
const END_LIMIT: Duration = Duration::from_secs(30);
const ANSWER_LIMIT: Duration = Duration::from_millis(1000);
const PORT_ATTEMPTS: u32 = 3;
const FRAME_END: u8 = 0xCE;
const FRAME_BYTES_MAX: usize = 128 * 1024;

/// A running RabbitMQ; user and password `guest`. Dropping it removes it.
pub struct RabbitMq {
    process: Process,
    bin: PathBuf,
    port: u16,
    dist_port: u16,
    epmd_port: u16,
}

impl RabbitMq {
    /// Starts a new node; returns when a client can work with it.
    pub fn start() -> Result<RabbitMq> {
        let mut attempt = 1;
        loop {
            match RabbitMq::start_once() {
                Err(error) if attempt < PORT_ATTEMPTS && error.is_port_clash() => attempt += 1,
                outcome => return outcome,
            }
        }
    }

    fn start_once() -> Result<RabbitMq> {
        let bin = install::rabbitmq_bin()?;
        let user = install::service_user(&["rabbitmq", "nobody"])?;
        let (port, dist_port, epmd_port) = (ports::free()?, ports::free()?, ports::free()?);
        let kind = Kind { name: "RabbitMQ", short: "rmq", end: "KILL" };
        let process = Process::new(kind, user, &format!("epmd -port {epmd_port} -kill"))?;
        let write = |name: &str, text: String| {
            let path = process.folder().join(name);
            std::fs::write(&path, text)
                .map_err(HarnessError::io(format!("writing {}", path.display())))
        };
        write("rabbitmq.conf", configuration(port))?;
        write("enabled_plugins", "[].\n".into())?;
        write("env", String::new())?;
        let mut rabbitmq = RabbitMq { process, bin, port, dist_port, epmd_port };
        rabbitmq.launch()?;
        Ok(rabbitmq)
    }

    fn launch(&mut self) -> Result<()> {
        let mut command = Command::new(self.bin.join("rabbitmq-server"));
        self.environment(&mut command);
        // Makes the script become the server instead of its parent: one process, one pid.
        command.env("RUNNING_UNDER_SYSTEMD", "true").env_remove("NOTIFY_SOCKET");
        self.process.spawn(&command)?;
        let port = self.port;
        self.process.wait_ready(START_LIMIT, |process| {
            // The log line is what `rabbitmqctl await_startup` waits for, without its own second.
            process.recent_log().contains("Server startup complete") && answers(port)
        })
    }

    /// All places and ports are the node's own; nothing in /etc or /var is read or written.
    fn environment(&self, command: &mut Command) {
        for (key, _) in std::env::vars_os() {
            let name = key.to_string_lossy();
            if name.starts_with("RABBITMQ_") || name.starts_with("ERL_") {
                command.env_remove(&key);
            }
        }
        let folder = self.process.folder();
        let places = [
            ("HOME", ""),
            ("RABBITMQ_MNESIA_BASE", "data"),
            ("RABBITMQ_LOG_BASE", "logs"),
            ("RABBITMQ_CONFIG_FILE", "rabbitmq.conf"),
            ("RABBITMQ_CONF_ENV_FILE", "env"),
            ("RABBITMQ_ADVANCED_CONFIG_FILE", "advanced.config"),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", "enabled_plugins"),
            ("RABBITMQ_GENERATED_CONFIG_DIR", "generated"),
            ("RABBITMQ_SCHEMA_DIR", "schema"),
            ("RABBITMQ_PID_FILE", "pid"),
        ];
        for (key, name) in places {
            command.env(key, folder.join(name));
        }
        command.env("RABBITMQ_NODENAME", self.node());
        command.env("RABBITMQ_NODE_PORT", self.port.to_string());
        command.env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1");
        command.env("RABBITMQ_DIST_PORT", self.dist_port.to_string());
        command.env("RABBITMQ_LOGS", "-");
        let loopback = "-kernel inet_dist_use_interface {127,0,0,1}";
        command.env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", loopback);
        command.env("ERL_EPMD_PORT", self.epmd_port.to_string());
        command.env("ERL_EPMD_ADDRESS", "127.0.0.1");
        // Else epmd refuses to end as long as it believes the killed node alive.
        command.env("ERL_EPMD_RELAXED_COMMAND_CHECK", "1");
        // A crash dump of a killed node is large and of no use.
        command.env("ERL_CRASH_DUMP_SECONDS", "0");
    }

    fn node(&self) -> String {
        format!("walrelay{}@localhost", self.port)
    }

    /// A URL with the default user and virtual host.
    pub fn amqp_url(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}/%2f", self.port)
    }

    /// The AMQP port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where the node's own `epmd` listens.
    pub fn epmd_port(&self) -> u16 {
        self.epmd_port
    }

    /// Everything of this node lies here; it is removed with it.
    pub fn folder(&self) -> &Path {
        self.process.folder()
    }

    /// What `rabbitmqctl` prints for `args`.
    pub fn ctl(&self, args: &[&str]) -> Result<String> {
        let mut command = self.process.command(self.bin.join("rabbitmqctl"));
        self.environment(&mut command);
        command.args(["--node", &self.node()]).args(args);
        process::run(&mut command)
    }

    /// Kills the node with SIGKILL.
    pub fn kill9(&mut self) -> Result<()> {
        self.process.signal_group("KILL")?;
        self.process.wait(END_LIMIT).map(drop)
    }

    /// Stops the node's clock: connections stay open, nothing answers.
    pub fn freeze(&self) -> Result<()> {
        self.process.freeze()
    }

    /// Ends a freeze.
    pub fn thaw(&self) -> Result<()> {
        self.process.thaw()
    }

    /// Orderly shutdown.
    pub fn stop(&mut self) -> Result<()> {
        self.process.signal("TERM")?;
        self.process.wait(END_LIMIT).map(drop)
    }

    /// Starts the stopped node on its port and data; returns when a client can work with it.
    pub fn start_again(&mut self) -> Result<()> {
        self.launch()
    }

    /// The Erlang VM's process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// A client can log in now.
    pub fn answers(&self) -> bool {
        answers(self.port)
    }
}

fn configuration(port: u16) -> String {
    format!(
        "listeners.tcp.1 = 127.0.0.1:{port}
log.file = false
log.console = true
log.console.level = info
"
    )
}

fn answers(port: u16) -> bool {
    log_in(port).is_ok()
}

/// Logs in and opens the virtual host, as a client does; each step must be answered in kind.
fn log_in(port: u16) -> std::io::Result<()> {
    const START: (u16, u16) = (10, 10);
    const START_OK: (u16, u16) = (10, 11);
    const TUNE: (u16, u16) = (10, 30);
    const TUNE_OK: (u16, u16) = (10, 31);
    const OPEN: (u16, u16) = (10, 40);
    const OPEN_OK: (u16, u16) = (10, 41);
    const CLOSE: (u16, u16) = (10, 50);
    const CLOSE_OK: (u16, u16) = (10, 51);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_LIMIT)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.set_write_timeout(Some(ANSWER_LIMIT))?;
    let end = Instant::now() + ANSWER_LIMIT * 3;
    stream.write_all(b"AMQP\x00\x00\x09\x01")?;
    expect(&mut stream, START, end)?;
    // No client properties; mechanism; user and password; locale.
    send(&mut stream, START_OK, b"\0\0\0\0\x05PLAIN\0\0\0\x0c\0guest\0guest\x05en_US")?;
    let tune = expect(&mut stream, TUNE, end)?;
    // Channels and frame size as offered, no heartbeat.
    let mut limits = tune.get(..6).ok_or(std::io::ErrorKind::InvalidData)?.to_vec();
    limits.extend([0, 0]);
    send(&mut stream, TUNE_OK, &limits)?;
    send(&mut stream, OPEN, b"\x01/\0\0")?;
    expect(&mut stream, OPEN_OK, end)?;
    send(&mut stream, CLOSE, b"\0\xc8\0\0\0\0\0")?;
    expect(&mut stream, CLOSE_OK, end).map(drop)
}

fn send(stream: &mut TcpStream, method: (u16, u16), arguments: &[u8]) -> std::io::Result<()> {
    let size = (arguments.len() + 4) as u32;
    // Method frame on channel 0.
    let mut frame = vec![1, 0, 0];
    frame.extend(size.to_be_bytes());
    frame.extend(method.0.to_be_bytes());
    frame.extend(method.1.to_be_bytes());
    frame.extend(arguments);
    frame.push(FRAME_END);
    stream.write_all(&frame)
}

fn expect(stream: &mut TcpStream, method: (u16, u16), end: Instant) -> std::io::Result<Vec<u8>> {
    let wrong = || std::io::Error::from(std::io::ErrorKind::InvalidData);
    if Instant::now() > end {
        return Err(std::io::ErrorKind::TimedOut.into());
    }
    let mut head = [0_u8; 7];
    stream.read_exact(&mut head)?;
    let size = u32::from_be_bytes([head[3], head[4], head[5], head[6]]) as usize;
    if head[0] != 1 || !(4..=FRAME_BYTES_MAX).contains(&size) {
        return Err(wrong());
    }
    let mut body = vec![0_u8; size + 1];
    stream.read_exact(&mut body)?;
    let found = (u16::from_be_bytes([body[0], body[1]]), u16::from_be_bytes([body[2], body[3]]));
    if found != method || body[size] != FRAME_END {
        return Err(wrong());
    }
    Ok(body[4..size].to_vec())
}
