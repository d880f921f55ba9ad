//! A log that nobody reads: standard error is a pipe, and it is full.

use std::io::{PipeReader, PipeWriter, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use walrelay_harness::BrokerKind;
use walrelay_harness::proc::{signal, spawn_tied, tied_command};
use walrelay_harness::proxy::Proxy;
use walrelay_harness::relay::{RelayConfig, get};

use crate::dead_letters::api::request;
use crate::support::{Fixture, LIMIT, shared_rabbitmq, until, wait_until};

/// The bytes with which a pipe is filled at once: as much as one of its pages.
const PAGE: [u8; 4096] = [b'\n'; 4096];
const TOKEN: &str = "a-token-for-a-full-log";
/// More lines than may wait for a reader.
const MORE_THAN_WAIT: usize = 1_200;
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// A relay whose log goes into a pipe.
struct PipedRelay {
    child: Child,
    admin: SocketAddr,
    log: PipeReader,
    pipe: PipeWriter,
}

impl PipedRelay {
    /// Starts it, and fills the pipe once it is ready.
    fn start(config: &RelayConfig) -> PipedRelay {
        let admin = SocketAddr::from(([127, 0, 0, 1], walrelay_harness::free_port().unwrap()));
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("relays").join(&config.slot);
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("walrelay.toml");
        std::fs::write(&file, config.toml(admin)).unwrap();
        let binary = std::env::var_os("WALRELAY_BIN");
        let binary = binary.unwrap_or_else(|| env!("CARGO_BIN_EXE_walrelay").into());
        let (log, pipe) = std::io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&log, true).unwrap();
        let mut command = tied_command(Path::new(&binary));
        command.arg("run").arg("--config").arg(file).current_dir(folder);
        // The relay refuses names that it does not know.
        command.env_remove("WALRELAY_BIN");
        command.stdin(Stdio::null()).stderr(pipe.try_clone().unwrap());
        let child = spawn_tied(command).unwrap();
        let mut relay = PipedRelay { child, admin, log, pipe };
        until("a relay that is ready", LIMIT, || {
            relay.read_log();
            relay.answer("/readyz").filter(|body| body.starts_with("ready"))
        });
        relay.fill_log();
        relay
    }

    fn fill_log(&mut self) {
        while has_room(&self.pipe) {
            self.pipe.write_all(&PAGE).unwrap();
        }
    }

    /// Reads the log that is in the pipe, which has room again then.
    fn read_log(&mut self) -> String {
        let (mut text, mut part) = (Vec::new(), [0; 4096]);
        while let Ok(bytes) = self.log.read(&mut part)
            && bytes > 0
        {
            text.extend(&part[..bytes]);
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Sends a request with the token; status and code of the answer.
    fn ask(&self, first: &str, body: &str) -> (u16, String) {
        let (status, body) = request(self.admin, first, Some(TOKEN), body);
        assert!(self.answer("/livez").is_some(), "/livez is silenced by {first}");
        (status, body["code"].as_str().unwrap_or_default().to_owned())
    }

    fn answer(&self, path: &str) -> Option<String> {
        get(self.admin, path, ANSWERED_WITHIN).ok().map(|answer| answer.body)
    }

    /// Waits for the state, and until all that tell of it have answered.
    #[track_caller]
    fn wait_state(&self, wanted: &str) {
        let up = format!("outbox_state{{state=\"{wanted}\"}} 1");
        wait_until(&format!("state {wanted}"), || {
            let metrics = self.answer("/metrics").expect("an answer");
            metrics.contains(&up)
        });
        for path in ["/livez", "/readyz", "/status", "/metrics"] {
            assert!(self.answer(path).is_some(), "{path} is not answered while {wanted}");
        }
    }
}

impl Drop for PipedRelay {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn has_room(pipe: &impl AsFd) -> bool {
    let mut asked = [PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::OUT)];
    poll(&mut asked, Some(&Timespec::default())).unwrap() > 0
}

#[test]
fn probes_are_answered_while_nobody_reads_the_log() {
    // GIVEN a relay that streams, and a log that takes no further line
    let site = Fixture::on(BrokerKind::RabbitMq, "unread_log");
    let port = shared_rabbitmq().port();
    let proxy = Proxy::start(port).unwrap();
    let mut config = site.config();
    let target = config.rabbitmq.as_mut().unwrap();
    target.url = target.url.replace(&port.to_string(), &proxy.port.to_string());
    let mut relay = PipedRelay::start(&config);
    // What it reads at its start must have come.
    site.insert_event("key", 0);
    until("the first event", LIMIT, || {
        let metrics = relay.answer("/metrics")?;
        metrics.contains("outbox_events_total{outcome=\"published\"} 1").then_some(())
    });
    // WHEN its state changes, twice THEN the admin server says so
    proxy.stall();
    site.insert_event("key", 1);
    relay.wait_state("blocked");
    proxy.go_on();
    relay.wait_state("streaming");
    // WHEN the log is read again THEN it has both changes, in their order
    let mut log = String::new();
    let line =
        |from: &str, to: &str| format!("\"code\":\"state\",\"from\":\"{from}\",\"to\":\"{to}\"");
    let [to, back] = [line("streaming", "blocked"), line("blocked", "streaming")];
    until("both lines", LIMIT, || {
        log.push_str(&relay.read_log());
        (log.find(&to)? < log.find(&back)?).then_some(())
    });
}

#[test]
fn requests_and_signals_are_obeyed_while_nobody_reads_the_log() {
    // GIVEN a relay that streams, and a log that takes no further line
    let site = Fixture::on(BrokerKind::RabbitMq, "unread_signal");
    let mut config = site.config();
    config.extra.insert_str(0, &format!("token = {TOKEN:?}\n"));
    let mut relay = PipedRelay::start(&config);
    // WHEN somebody looks for an event, and begins a job THEN both are done
    let nowhere = "GET /api/find?id=00000000-0000-0000-0000-000000000000";
    assert_eq!(relay.ask(nowhere, ""), (200, String::new()));
    let (status, _) = relay.ask("POST /api/dlq/discard", r#"{"key":"none"}"#);
    assert_eq!(status, 202);
    // WHEN so much is requested that lines are lost THEN it is done all the same
    for _ in 0..MORE_THAN_WAIT {
        let (status, _) = request(relay.admin, "DELETE /api/dlq/job", Some(TOKEN), "");
        assert_eq!(status, 202);
    }
    assert!(relay.answer("/livez").is_some());
    // WHEN the log is read again THEN it says how many
    let mut log = String::new();
    wait_until("the number of lost lines", || {
        log.push_str(&relay.read_log());
        log.contains("\"code\":\"log.lost\"")
    });
    let stops = log.matches("stop of the job requested").count();
    assert!((1..MORE_THAN_WAIT).contains(&stops), "{stops}");
    relay.fill_log();
    // WHEN the relay is asked to end THEN it ends
    signal(relay.child.id(), Signal::TERM).unwrap();
    let ended = until("the end of the relay", LIMIT, || relay.child.try_wait().unwrap());
    assert_eq!(ended.code(), Some(0));
}
