//! A private Apache Kafka: a KRaft node that is broker and controller, or a cluster of them.
//!
//! Topics are never made by accident: a typo in a route must be seen. The internal topics are
//! small, because fifty partitions of offsets cost seconds at the first consumer. The broker's
//! session is short: after a kill the controller refuses the new broker until the old one's session
//! has run out, nine seconds by default.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::install::KafkaInstall;
use crate::place::Place;
use crate::process::{self, Kind, Process};
use crate::{Result, consumer, install, ports};

const START_LIMIT: Duration = Duration::from_secs(60);
const ANSWER_LIMIT: Duration = Duration::from_millis(1000);
// Without performance data, which a JVM that is killed leaves in /tmp.
const JVM: [&str; 4] = ["-Xmx512m", "-XX:+UseSerialGC", "-Xshare:auto", "-XX:-UsePerfData"];
// What tests start lives for seconds: optimising it takes as long again as its start. Demo and
// benchmarks are built for release.
const JIT: &[&str] = if cfg!(debug_assertions) { &["-XX:TieredStopAtLevel=1"] } else { &[] };

const KIND: Kind = Kind { name: "Kafka", short: "kafka", end: "KILL" };
const USERS: [&str; 2] = ["postgres", "nobody"];
const DEAD_LETTERS: &str = "outbox.dlq";

/// The options of a broker beyond the usual.
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

/// The role of one node in its cluster.
#[derive(Clone, Debug)]
struct Node {
    id: usize,
    port: u16,
    /// Ports of the controllers, which are the nodes 1, 2, and so on; each is a broker too.
    controllers: Vec<u16>,
}

/// A running Kafka. Dropping it removes it.
pub struct Kafka {
    process: Process,
    install: KafkaInstall,
    node: Node,
}

impl Kafka {
    /// Makes a data folder and starts the broker; returns when it answers.
    pub fn start() -> Result<Kafka> {
        Kafka::start_with(&KafkaOptions::default())
    }

    pub fn start_with(options: &KafkaOptions) -> Result<Kafka> {
        let kafka = ports::retry(|| Kafka::start_once(options))?;
        create_dead_letters(&kafka)?;
        Ok(kafka)
    }

    /// Starts so many brokers, each of them a controller too. Their topics have three replicas, if there
    /// are as many brokers, and a record is confirmed when two have it; leaders move back soon after a
    /// broker has come back.
    pub fn start_cluster(count: usize) -> Result<Vec<Kafka>> {
        let cluster = ports::retry(|| Kafka::start_cluster_once(count))?;
        create_dead_letters(&cluster[0])?;
        Ok(cluster)
    }

    fn start_cluster_once(count: usize) -> Result<Vec<Kafka>> {
        let ports = || (0..count).map(|_| ports::free()).collect::<Result<Vec<u16>>>();
        let (brokers, controllers) = (ports()?, ports()?);
        let extra = format!(
            "default.replication.factor={replicas}\nmin.insync.replicas=2\n\
             leader.imbalance.check.interval.seconds=1\nleader.imbalance.per.broker.percentage=0\n",
            replicas = count.min(3)
        );
        let options = KafkaOptions { extra, ..KafkaOptions::default() };
        let mut cluster = Vec::new();
        for (id, port) in (1..).zip(brokers) {
            let node = Node { id, port, controllers: controllers.clone() };
            cluster.push(Kafka::prepare(node, &options)?);
        }
        // They elect a controller among themselves: none is ready alone.
        cluster.iter_mut().try_for_each(Kafka::spawn)?;
        let began = Instant::now();
        // Each is looked at in every round: without one that has ended the others may never be ready.
        let mut waiting = true;
        while waiting {
            std::thread::sleep(process::START_POLL);
            waiting = false;
            for kafka in &mut cluster {
                waiting |= !kafka.is_ready(began, count)?;
            }
        }
        Ok(cluster)
    }

    /// Starts a second broker in the cluster of this one, which stays its controller.
    pub fn start_second(&self) -> Result<Kafka> {
        let node = Node { id: 2, port: ports::free()?, controllers: self.node.controllers.clone() };
        let mut second = Kafka::prepare(node, &KafkaOptions::default())?;
        second.launch()?;
        Ok(second)
    }

    fn start_once(options: &KafkaOptions) -> Result<Kafka> {
        let node = Node { id: 1, port: ports::free()?, controllers: vec![ports::free()?] };
        let mut kafka = Kafka::prepare(node, options)?;
        kafka.launch()?;
        Ok(kafka)
    }

    /// Writes its configuration and its data folder.
    fn prepare(node: Node, options: &KafkaOptions) -> Result<Kafka> {
        let (install, place) = (install::kafka()?, Place::here(&USERS)?);
        let process = Process::new(KIND, place, "")?;
        process.write("server.properties", &properties(process.folder(), &node, options))?;
        let (mut copy, data) = (process.command("cp"), process.folder().join("data"));
        process::run(copy.arg("-r").arg(&install.formatted).arg(&data))?;
        // A cluster of its own. The folder of a further node gets another identity at its first start.
        let mut identity = format!("s/^cluster.id=.{{8}}/cluster.id={:08}/", node.controllers[0]);
        if node.id > 1 {
            identity += &format!(";s/^node.id=1$/node.id={}/;/^directory.id=/d", node.id);
        }
        let mut named = process.command("sed");
        process::run(named.args(["-i", "-E", &identity]).arg(data.join("meta.properties")))?;
        Ok(Kafka { process, install, node })
    }

    fn launch(&mut self) -> Result<()> {
        self.spawn()?;
        let port = self.node.port;
        self.process.wait_ready(START_LIMIT, |_| answers(port, 1))
    }

    fn spawn(&mut self) -> Result<()> {
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
        self.process.spawn(&command)
    }

    /// The broker, started at `began`, answers and knows so many. Its end is a failure.
    fn is_ready(&mut self, began: Instant, count: usize) -> Result<bool> {
        let port = self.node.port;
        self.process.is_ready(began, START_LIMIT, |_| answers(port, count))
    }

    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.node.port)
    }

    pub fn port(&self) -> u16 {
        self.node.port
    }

    pub fn version(&self) -> &str {
        &self.install.version
    }

    pub fn start_again(&mut self) -> Result<()> {
        self.launch()
    }

    pub fn answers(&self) -> bool {
        answers(self.node.port, 1)
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

/// Where a relay that is told nothing else puts what it cannot publish.
fn create_dead_letters(kafka: &Kafka) -> Result<()> {
    consumer::create_topic(&kafka.bootstrap(), DEAD_LETTERS, 4, &[("retention.ms", "-1")])
}

fn java() -> PathBuf {
    let home = std::env::var_os("JAVA_HOME").map(|home| Path::new(&home).join("bin/java"));
    home.filter(|java| java.is_file()).unwrap_or_else(|| "java".into())
}

/// Tests write records of 1970, which the broker would delete when it next looks for old ones.
fn properties(
    folder: &Path,
    Node { id, port, controllers }: &Node,
    KafkaOptions { listener, extra }: &KafkaOptions,
) -> String {
    let listener = listener.as_ref();
    let or_none = |text: Option<String>| text.unwrap_or_default();
    let more_listeners =
        or_none(listener.map(|it| format!(",{}://127.0.0.1:{}", it.name, it.port)));
    let more_advertised =
        or_none(listener.map(|it| format!(",{}://127.0.0.1:{}", it.name, it.advertised_port)));
    let more_protocols = or_none(listener.map(|it| format!(",{}:{}", it.name, it.protocol)));
    let own = controllers.get(id - 1);
    let controller = or_none(own.map(|port| format!(",CONTROLLER://127.0.0.1:{port}")));
    let roles = if own.is_some() { "broker,controller" } else { "broker" };
    let voters: Vec<String> =
        (1..).zip(controllers).map(|(id, port)| format!("{id}@127.0.0.1:{port}")).collect();
    let (voters, replicas) = (voters.join(","), voters.len().min(3));
    format!(
        "process.roles={roles}
node.id={id}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port}{controller}{more_listeners}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}{more_advertised}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{more_protocols}
log.dirs={folder}/data
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
auto.create.topics.enable=false
offsets.topic.replication.factor={replicas}
offsets.topic.num.partitions=4
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor={replicas}
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.retention.ms=-1
{extra}
",
        folder = folder.display()
    )
}

/// The broker says that it is part of a cluster with at least so many: an open port alone may belong to
/// one that is still starting.
fn answers(port: u16, count: usize) -> bool {
    brokers(port).is_ok_and(|known| usize::try_from(known).is_ok_and(|known| known >= count))
}

/// Asks for metadata of no topic, version 1, and reads how many brokers the answer names.
fn brokers(port: u16) -> std::io::Result<i32> {
    const METADATA: i16 = 3;
    let answer = ask(port, (METADATA, 1), &0_i32.to_be_bytes(), ANSWER_LIMIT)?;
    let count = answer.first_chunk().ok_or(ErrorKind::InvalidData)?;
    Ok(i32::from_be_bytes(*count))
}

/// Sends one request of the wire protocol, by its key and version; gives the answer behind its
/// correlation id.
pub(crate) fn ask(
    port: u16,
    (key, version): (i16, i16),
    body: &[u8],
    limit: Duration,
) -> std::io::Result<Vec<u8>> {
    const CLIENT: &[u8] = b"walrelay-harness";
    const CORRELATION: [u8; 4] = 7_i32.to_be_bytes();
    let mut stream = TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, port).into(), limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    let (key, version) = (key.to_be_bytes(), version.to_be_bytes());
    let length = (CLIENT.len() as i16).to_be_bytes();
    let request = [&key[..], &version, &CORRELATION, &length, CLIENT, body].concat();
    stream.write_all(&[&(request.len() as i32).to_be_bytes()[..], &request].concat())?;
    let mut size = [0; 4];
    stream.read_exact(&mut size)?;
    let mut answer = Vec::new();
    stream.take(u32::from_be_bytes(size).into()).read_to_end(&mut answer)?;
    let own = answer.strip_prefix(&CORRELATION).ok_or(ErrorKind::InvalidData)?;
    Ok(own.to_vec())
}
