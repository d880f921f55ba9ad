//! Debezium Server with the Outbox Event Router, started on the slot of a scene.

use std::path::PathBuf;
use std::time::Duration;

use walrelay_harness::program::{Launch, Program};
use walrelay_harness::{free_port, peers};

use crate::support::faults::{CliFixture, brokers};
use crate::support::until;

/// A JVM with 560 jars, beside all other tests on two cores.
const START_LIMIT: Duration = Duration::from_secs(300);
const STOP_LIMIT: Duration = Duration::from_secs(90);
const PROPERTIES: &str = include_str!("application.properties");
const ARGUMENTS: &str = include_str!("../../../benches/peers/debezium.args");

/// Payloads that are text.
pub(super) const TEXT: &str = "debezium.format.value=simplestring
debezium.sink.kafka.producer.value.serializer=org.apache.kafka.common.serialization.StringSerializer";
/// Payloads that are bytes.
pub(super) const BINARY: &str = "debezium.format.value=binary
debezium.sink.kafka.producer.value.serializer=org.apache.kafka.common.serialization.ByteArraySerializer";

pub(super) struct Server {
    program: Program,
    slot: String,
}

impl Server {
    /// Starts it with further properties, and waits until it streams from the slot. It makes the
    /// slot and the publication that are not there, and goes on at the position that it has stored.
    pub(super) fn start(scene: &CliFixture<'_>, slot: &str, more: &[&str]) -> Server {
        let installed = peers::debezium().unwrap();
        assert_eq!(installed.missing, None, "no Debezium Server: run scripts/peers debezium");
        let folder = scene.folder().join(slot);
        std::fs::create_dir_all(folder.join("config")).unwrap();
        let (place, database) = scene.url.split_once('@').unwrap().1.split_once('/').unwrap();
        let port = place.split_once(':').unwrap().1;
        let fill = |template: &str| {
            let pairs = [
                ("{port}", port.to_owned()),
                ("{database}", database.to_owned()),
                ("{slot}", slot.to_owned()),
                ("{brokers}", brokers()),
                ("{http_port}", free_port().unwrap().to_string()),
                ("{folder}", folder.display().to_string()),
                ("{home}", installed.home.display().to_string()),
            ];
            pairs.iter().fold(template.to_owned(), |text, (name, value)| text.replace(name, value))
        };
        let properties = fill(&format!("{PROPERTIES}{}\n", more.join("\n")));
        std::fs::write(folder.join("config/application.properties"), properties).unwrap();
        let arguments = fill(ARGUMENTS);
        let arguments = arguments.lines().filter(|line| !line.starts_with('#'));
        let launch = Launch {
            name: format!("debezium-{slot}"),
            program: PathBuf::from(&installed.program),
            arguments: arguments.map(Into::into).collect(),
            env: Vec::new(),
            folder,
        };
        let mut server = Server { program: Program::start(launch).unwrap(), slot: slot.to_owned() };
        server.wait_streaming(scene);
        server
    }

    /// Removes the position that it has stored.
    pub(super) fn forget_position(scene: &CliFixture<'_>, slot: &str) {
        // By default it is stored once a minute, so there may be none.
        std::fs::remove_file(scene.folder().join(slot).join("offsets.dat")).ok();
    }

    fn wait_streaming(&mut self, scene: &CliFixture<'_>) {
        let slot = &self.slot;
        // The session that makes a slot holds it, too, and gives it up before the one that streams.
        let asked = format!(
            "SELECT count(*) = 1 FROM pg_replication_slots JOIN pg_stat_replication ON pid = active_pid
             WHERE slot_name = '{slot}' AND state IN ('catchup', 'streaming')"
        );
        self.wait_until("Debezium to stream", || scene.sql(&asked) == "t");
    }

    /// Waits until `done`, as long as it runs.
    pub(super) fn wait_until(&mut self, what: &str, mut done: impl FnMut() -> bool) {
        until(what, START_LIMIT, || {
            assert!(self.program.is_running(), "Debezium has ended\n{}", self.program.tail(60));
            done().then_some(())
        });
    }

    /// Stops it as an operator would.
    pub(super) fn stop(&mut self) {
        self.program.sigterm().unwrap();
        self.program.wait_exit(STOP_LIMIT).unwrap();
    }

    pub(super) fn kill(&mut self) {
        self.program.kill9().unwrap();
    }
}
