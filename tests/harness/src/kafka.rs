//! A private Apache Kafka: one KRaft node that is broker and controller.
//!
//! Topics are never made by accident: a typo in a route must be seen. The internal topics are
//! small, because fifty partitions of offsets cost seconds at the first consumer. The broker's
//! session is short: after a kill the controller refuses the new broker until the old one's session
//! has run out, nine seconds by default.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::install::KafkaInstall;
use crate::place::Place;
use crate::process::{self, Kind, Process};
use crate::{HarnessError, Result, consumer, install, ports};

const START_LIMIT: Duration = Duration::from_secs(60);
const ANSWER_LIMIT: Duration = Duration::from_millis(1000);
const PORT_ATTEMPTS: u32 = 3;
// Without performance data, which a JVM that is killed leaves in /tmp.
const JVM: [&str; 4] = ["-Xmx512m", "-XX:+UseSerialGC", "-Xshare:auto", "-XX:-UsePerfData"];
// What tests start lives for seconds: optimising it takes as long again as its start. Demo and
// benchmarks are built for release.
const JIT: &[&str] = if cfg!(debug_assertions) { &["-XX:TieredStopAtLevel=1"] } else { &[] };

const KIND: Kind = Kind { name: "Kafka", short: "kafka", end: "KILL" };
const USERS: [&str; 2] = ["postgres", "nobody"];
const DEAD_LETTERS: &str = "outbox.dlq";

/// What a broker is started with beyond the usual.
#[derive(Clone, Debug, Default)]
pub struct KafkaOptions {
    pub listener: Option<KafkaListener>,
    pub extra: String,
}

/// A listener beside that of [`Kafka::bootstrap`].
#[derive(Clone, Debug)]
pub struct KafkaListener {
    pub name: &'static str,
    /// `PLAINTEXT`, `SASL_PLAINTEXT`, …
    pub protocol: &'static str,
    pub port: u16,
    /// Where clients that came by this listener are sent to.
    pub advertised_port: u16,
}

/// A running Kafka. Dropping it removes it.
pub struct Kafka {
    process: Process,
    install: KafkaInstall,
    port: u16,
    controller_port: u16,
}

impl Kafka {
    /// Makes a data folder and starts the broker; returns when it answers.
    pub fn start() -> Result<Kafka> {
        Kafka::start_with(&KafkaOptions::default())
    }

    pub fn start_with(options: &KafkaOptions) -> Result<Kafka> {
        let mut attempt = 1;
        loop {
            match Kafka::start_once(options) {
                Err(error) if attempt < PORT_ATTEMPTS && error.is_port_clash() => attempt += 1,
                outcome => {
                    let kafka = outcome?;
                    // Where a relay that is told nothing else puts what it cannot publish.
                    let config = [("retention.ms", "-1")];
                    consumer::create_topic(&kafka.bootstrap(), DEAD_LETTERS, 4, &config)?;
                    return Ok(kafka);
                }
            }
        }
    }

    /// Starts a second broker in the cluster of this one, which stays its controller.
    pub fn start_second(&self) -> Result<Kafka> {
        let process = Process::new(KIND, Place::here(&USERS)?, "")?;
        let (port, controller_port) = (ports::free()?, self.controller_port);
        // Later lines win.
        let extra = format!(
            "process.roles=broker\nnode.id=2\nlisteners=PLAINTEXT://127.0.0.1:{port}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{port}"
        );
        let options = KafkaOptions { extra, ..KafkaOptions::default() };
        let mut second = Kafka { process, install: install::kafka()?, port, controller_port };
        second.prepare(&options)?;
        // The folder gets another identity at its first start.
        let identity = "s/^node.id=1$/node.id=2/;/^directory.id=/d";
        let mut change = second.process.command("sed");
        change.args(["-i", identity]).arg(second.process.folder().join("data/meta.properties"));
        process::run(&mut change)?;
        second.launch()?;
        Ok(second)
    }

    fn start_once(options: &KafkaOptions) -> Result<Kafka> {
        let install = install::kafka()?;
        let (port, controller_port) = (ports::free()?, ports::free()?);
        let process = Process::new(KIND, Place::here(&USERS)?, "")?;
        let mut kafka = Kafka { process, install, port, controller_port };
        kafka.prepare(options)?;
        kafka.launch()?;
        Ok(kafka)
    }

    /// Writes its configuration and its data folder.
    fn prepare(&self, options: &KafkaOptions) -> Result<()> {
        let (process, ports) = (&self.process, (self.port, self.controller_port));
        let path = process.folder().join("server.properties");
        std::fs::write(&path, properties(process.folder(), ports, options))
            .map_err(HarnessError::io(format!("writing {}", path.display())))?;
        // Every broker gets the same identity, since they never meet, but a cluster of its own.
        let (mut copy, data) = (process.command("cp"), process.folder().join("data"));
        process::run(copy.arg("-r").arg(&self.install.formatted).arg(&data))?;
        let cluster = format!("s/^cluster.id=.{{8}}/cluster.id={:08}/", self.controller_port);
        let mut named = process.command("sed");
        process::run(named.args(["-i", "-E", &cluster]).arg(data.join("meta.properties")))?;
        Ok(())
    }

    fn launch(&mut self) -> Result<()> {
        let mut command = Command::new(java());
        // What the caller's shell says of other JVMs is not for this one.
        command.env_remove("JAVA_TOOL_OPTIONS").env_remove("CLASSPATH").args(JVM).args(JIT);
        if self.install.classes.is_file() {
            // Halves the start; a JVM that it does not fit ignores it.
            let archive = format!("-XX:SharedArchiveFile={}", self.install.classes.display());
            command.arg(archive);
        }
        command.arg("-cp").arg(self.install.lib.join("*")).arg("kafka.Kafka");
        command.arg(self.process.folder().join("server.properties"));
        self.process.spawn(&command)?;
        let port = self.port;
        self.process.wait_ready(START_LIMIT, |_| answers(port))
    }

    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn start_again(&mut self) -> Result<()> {
        self.launch()
    }

    pub fn answers(&self) -> bool {
        answers(self.port)
    }
}

impl Deref for Kafka {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Kafka {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

fn java() -> PathBuf {
    let home = std::env::var_os("JAVA_HOME").map(|home| Path::new(&home).join("bin/java"));
    home.filter(|java| java.is_file()).unwrap_or_else(|| "java".into())
}

fn properties(
    folder: &Path,
    (port, controller_port): (u16, u16),
    KafkaOptions { listener, extra }: &KafkaOptions,
) -> String {
    let listener = listener.as_ref();
    let or_none = |text: Option<String>| text.unwrap_or_default();
    let more_listeners =
        or_none(listener.map(|it| format!(",{}://127.0.0.1:{}", it.name, it.port)));
    let more_advertised =
        or_none(listener.map(|it| format!(",{}://127.0.0.1:{}", it.name, it.advertised_port)));
    let more_protocols = or_none(listener.map(|it| format!(",{}:{}", it.name, it.protocol)));
    format!(
        "process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}{more_listeners}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}{more_advertised}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{more_protocols}
log.dirs={folder}/data
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
{extra}
",
        folder = folder.display()
    )
}

/// The broker says that it is part of a cluster with at least one broker: an open port alone may
/// belong to one that is still starting.
fn answers(port: u16) -> bool {
    brokers(port).is_ok_and(|count| count > 0)
}

/// Asks for metadata of no topic, version 1, and reads how many brokers the answer names.
fn brokers(port: u16) -> std::io::Result<i32> {
    const CLIENT: &[u8] = b"walrelay-harness";
    const METADATA: i16 = 3;
    const CORRELATION: i32 = 7;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_LIMIT)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.set_write_timeout(Some(ANSWER_LIMIT))?;
    let mut body = Vec::new();
    body.extend(METADATA.to_be_bytes());
    body.extend(1_i16.to_be_bytes());
    body.extend(CORRELATION.to_be_bytes());
    body.extend((CLIENT.len() as i16).to_be_bytes());
    body.extend(CLIENT);
    body.extend(0_i32.to_be_bytes());
    let mut request = (body.len() as i32).to_be_bytes().to_vec();
    request.extend(body);
    stream.write_all(&request)?;
    // Size, correlation id, number of brokers.
    let mut head = [[0_u8; 4]; 3];
    stream.read_exact(head.as_flattened_mut())?;
    if i32::from_be_bytes(head[1]) != CORRELATION {
        return Err(std::io::ErrorKind::InvalidData.into());
    }
    Ok(i32::from_be_bytes(head[2]))
}
