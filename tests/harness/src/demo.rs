//! The relay shown at work: a steady load, two faults, a burst, an exact count, and the same load
//! through polling.
//!
//! The demo stages nothing: the services are real, the relay is the release binary set up by its own
//! `init` and `check`, and the verdict is the [`oracle`](crate::oracle)'s, from the table itself.
//! Everything lies in folders that the services' guards remove, so that Ctrl-C leaves nothing.

mod comparison;
mod screen;
mod summary;
#[cfg(feature = "system")]
mod system;
mod target;
mod watcher;
#[cfg(feature = "system")]
mod waterfall;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use self::screen::Screen;
use self::summary::{Burst, Faulted, Slot, Summary};
use self::watcher::Watcher;
use crate::kit::{now_us, wait_at_most};
use crate::load::{Backlog, SteadyLoad};
use crate::oracle::{check, read_truth};
use crate::process::without_variables;
use crate::relay::{RelayConfig, RelayProcess, default_binary};
use crate::{Broker, BrokerKind, HarnessError, Postgres, PostgresOptions, Result, proc};
use walrelay_measure::numbers;

/// The topics of the steady load and of the burst: order is judged per topic and key, and both
/// loads count their rows from 0.
const TOPICS: [&str; 2] = ["outbox.event.order", "outbox.event.invoice"];
const DATABASE: &str = "app";
const TABLE: &str = "public.outbox";
/// The roles of a real installation: the relay can do nothing but replicate.
const ROLES: &str = include_str!("../../../sql/roles.sql");
const ROLE: &str = "walrelay";
const RATE_PER_SECOND: f64 = 200.0;
const BURST_ROWS: u64 = 20_000;
/// How long the numbers are watched after a fault.
const AFTERMATH: Duration = Duration::from_millis(1_500);
/// Not counted as steady: connections, metadata and caches are new.
const WARM_UP: Duration = Duration::from_secs(1);
const FIRST_LIMIT: Duration = Duration::from_secs(5);
const ARRIVAL_LIMIT: Duration = Duration::from_secs(60);
const READY_LIMIT: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub steady: Duration,
    pub broker: BrokerKind,
    /// Show a whole system of services instead.
    #[cfg(feature = "system")]
    pub system: bool,
}

impl Settings {
    /// From `DEMO_SECONDS`, `SINK` and `SYSTEM`; 15 seconds and Kafka without them.
    pub fn from_environment() -> Result<Settings, String> {
        let variable = |name: &str| std::env::var(name).ok();
        let sink = variable("SINK");
        let settings = Settings::parse(variable("DEMO_SECONDS").as_deref(), sink.as_deref())?;
        let system = variable("SYSTEM").is_some_and(|text| !text.is_empty() && text != "0");
        #[cfg(feature = "system")]
        let settings = Settings { system, ..settings };
        #[cfg(not(feature = "system"))]
        if system {
            return Err("SYSTEM=1: build the demo with --features system".to_owned());
        }
        Ok(settings)
    }

    fn parse(seconds: Option<&str>, sink: Option<&str>) -> Result<Settings, String> {
        let text = seconds.filter(|text| !text.is_empty()).unwrap_or("15");
        let steady = match text.parse::<u64>() {
            Ok(seconds @ 6..=3_600) => Duration::from_secs(seconds),
            Ok(_) | Err(_) => {
                return Err(format!("DEMO_SECONDS={text}: give whole seconds, 6 to 3600"));
            }
        };
        let sink = sink.filter(|text| !text.is_empty()).unwrap_or("kafka");
        let broker = sink.parse::<BrokerKind>().map_err(|error| format!("SINK={sink}: {error}"))?;
        Ok(Settings {
            steady,
            broker,
            #[cfg(feature = "system")]
            system: false,
        })
    }
}

/// Runs the demo; true when every committed event arrived, in order and unaltered.
pub fn run(settings: &Settings) -> Result<bool> {
    #[cfg(feature = "system")]
    let outcome = if settings.system { system::run(settings.broker) } else { show(settings) };
    #[cfg(not(feature = "system"))]
    let outcome = show(settings);
    // Not empty, and so not removed, while somebody else's services run.
    std::fs::remove_dir(crate::run_folder()?).ok();
    outcome
}

fn show(settings: &Settings) -> Result<bool> {
    let screen = Screen::new();
    let seconds = settings.steady.as_secs();
    screen.head(&format!("walrelay demo: {seconds} s of steady load, two faults, a burst"));
    let binary = default_binary()?;
    let began = Instant::now();
    let postgres = Postgres::start(PostgresOptions::default())?;
    postgres.create_database(DATABASE)?;
    let broker = Broker::start(settings.broker)?;
    screen.say(&format!(
        "PostgreSQL on port {}, {} on port {}: ready in {}",
        postgres.port(),
        broker.kind().name(),
        broker.port(),
        numbers::duration(began.elapsed())
    ));
    postgres.sql(DATABASE, ROLES)?;
    // Removed by the broker's guard, whatever ends the demo.
    let folder = broker.folder().join("relay");
    let mut owner = target::config(&broker, &postgres.url(DATABASE), &TOPICS);
    owner.extra = format!("[delivery]\nstate_file = {:?}", folder.join("state"));
    let login = |url: &str| url.replace("//postgres@", &format!("//{ROLE}@"));
    let config = RelayConfig { url: login(&owner.url), ..owner.clone() };
    command(&screen, &binary, &folder, &owner, &format!("init --role {ROLE}"))?;
    command(&screen, &binary, &folder, &config, "check")?;

    screen.command("walrelay run");
    let mut relay = RelayProcess::start(&binary, &folder, config)?;
    relay.wait_ready(READY_LIMIT)?;
    let ready = numbers::duration(relay.spawned_at().elapsed());
    screen.say(&format!("ready after {ready}, http://{}/ while it runs", relay.admin()));
    let watcher = Watcher::start(&broker, &TOPICS, &screen)?;
    let show = Show { screen: &screen, postgres: &postgres, relay, watcher, cpu_seconds: 0.0 };
    let exact = show.play(settings.steady)?;
    comparison::run(&screen, &binary, &folder, &owner, settings.steady)?;
    Ok(exact)
}

/// Runs a command of the relay with this configuration, as a user would.
fn command(
    screen: &Screen,
    binary: &Path,
    folder: &Path,
    config: &RelayConfig,
    words: &str,
) -> Result<()> {
    let file = config.write(folder, ([127, 0, 0, 1], 0).into())?;
    screen.command(&format!("walrelay {words}"));
    let mut command = Command::new(binary);
    command.args(words.split(' ')).arg("--config").arg(&file);
    // Whoever runs the demo may have a relay of their own.
    let status = without_variables(&mut command, "WALRELAY_").status();
    match status.map_err(HarnessError::io(format!("run walrelay {words}")))? {
        status if status.success() => Ok(()),
        status => Err(HarnessError::Other(format!("walrelay {words} ended with {status}"))),
    }
}

struct Show<'a> {
    screen: &'a Screen,
    postgres: &'a Postgres,
    relay: RelayProcess,
    watcher: Watcher<'a>,
    cpu_seconds: f64,
}

impl Show<'_> {
    fn play(mut self, length: Duration) -> Result<bool> {
        let url = self.postgres.url(DATABASE);
        let rate = RATE_PER_SECOND;
        self.screen
            .head(&format!("steady load: {rate} transactions a second for {} s", length.as_secs()));
        let load = SteadyLoad::new(&url, rate, length + WARM_UP);
        let loading = std::thread::spawn(move || load.run());
        let third = length / 3;
        self.watcher.wait_distinct(1, FIRST_LIMIT)?;
        self.watcher.live(WARM_UP)?;
        self.watcher.take_seen();
        self.watcher.live(third)?;
        let cut = self.fault("walsender terminated", Show::cut)?;
        self.watcher.live(third.saturating_sub(AFTERMATH))?;
        let killed = self.fault("relay killed (kill -9) and started again", Show::kill)?;
        self.watcher.live_until(|| loading.is_finished())?;
        let steady = joined(loading)?;
        self.watcher.wait_distinct(steady.events, ARRIVAL_LIMIT)?;
        let quiet = self.watcher.take_latencies();

        let burst = self.burst(&url)?;
        self.watcher.wait_distinct(steady.events + BURST_ROWS, ARRIVAL_LIMIT)?;
        let burst = Burst { arrival: self.watcher.take_seen(), ..burst };
        let slot = self.slot()?;
        let before_stop = self.watcher.repeated();
        let memory = proc::memory(self.relay.pid())?;
        self.cpu_seconds += proc::cpu_seconds(self.relay.pid())?;
        let stopped = self.stop()?;

        let repeated_by_stop = self.watcher.repeated() - before_stop;
        let truth = read_truth(&url, TABLE)?;
        let verdict = check(&truth, &self.watcher.finish(), &Default::default());
        let summary = Summary {
            faults: vec![cut, killed],
            repeated_by_stop,
            stopped,
            quiet,
            burst,
            slot,
            memory,
            cpu_seconds: self.cpu_seconds,
            steady,
        };
        self.screen.head("summary");
        print!("{}", summary.text(&verdict, self.screen));
        Ok(verdict.is_exact(u64::MAX))
    }

    /// Does harm under load and watches what comes of it.
    fn fault(&mut self, name: &'static str, harm: fn(&mut Self) -> Result<()>) -> Result<Faulted> {
        self.watcher.settle_phase();
        self.watcher.settle_line();
        self.screen.event(name);
        let (before, from_us) = (self.watcher.repeated(), now_us());
        harm(self)?;
        self.watcher.live(AFTERMATH)?;
        self.watcher.settle_line();
        let repeated = self.watcher.repeated() - before;
        let pause = self.watcher.longest_pause_since(from_us);
        let told = numbers::duration(pause);
        self.screen.event(&format!("{name}: {repeated} repeated, longest pause {told}"));
        let latencies = self.watcher.take_phase();
        Ok(Faulted { name, repeated, latencies })
    }

    fn cut(&mut self) -> Result<()> {
        let sql = "select count(pg_terminate_backend(pid)) from pg_stat_replication";
        match self.postgres.sql(DATABASE, sql)?.as_str() {
            "1" => Ok(()),
            count => Err(HarnessError::Other(format!("{count} walsenders, one was expected"))),
        }
    }

    fn kill(&mut self) -> Result<()> {
        self.cpu_seconds += proc::cpu_seconds(self.relay.pid())?;
        // What may be repeated is what Postgres has not been told, so tell how much that was.
        let metrics = self.relay.metrics()?;
        let in_flight = metrics.get("outbox_in_flight_events").copied().unwrap_or(f64::NAN);
        let lag = "select pg_current_wal_lsn() - confirmed_flush_lsn from pg_replication_slots";
        let lag = self.postgres.sql(DATABASE, lag)?;
        self.screen
            .event(&format!("before the kill: {in_flight} in flight, slot {lag} bytes behind"));
        self.relay.restart()
    }

    fn burst(&mut self, url: &str) -> Result<Burst> {
        self.screen.head(&format!("burst: {} rows at once", numbers::count(BURST_ROWS)));
        let rows = BURST_ROWS;
        let backlog =
            Backlog { aggregatetype: "invoice".into(), seed: 2, ..Backlog::new(url, rows) };
        let filling = std::thread::spawn(move || backlog.fill());
        self.watcher.live_until(|| filling.is_finished())?;
        Ok(Burst { rows, written: joined(filling)?, arrival: Default::default() })
    }

    /// The slot once everything is confirmed; what it says after five seconds otherwise.
    fn slot(&self) -> Result<Slot> {
        let sql = "select pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint || ' ' \
                   || pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint \
                   from pg_replication_slots where slot_name = 'walrelay'";
        let mut text = String::new();
        wait_at_most(Duration::from_secs(5), Duration::from_millis(50), || {
            text = self.postgres.sql(DATABASE, sql)?;
            Ok(text.starts_with("0 ").then_some(()))
        })?;
        let mut numbers = text.split(' ').map(|number| number.parse::<u64>().unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        Ok(Slot { lag_bytes: next(), retained_bytes: next() })
    }

    fn stop(&mut self) -> Result<Duration> {
        let began = Instant::now();
        self.relay.stop(Duration::from_secs(30))?;
        Ok(began.elapsed())
    }
}

fn joined<T>(thread: std::thread::JoinHandle<Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| Err(HarnessError::Other("a load thread panicked".into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_whole_and_bounded() {
        let seconds = |text| Settings::parse(text, None).map(|settings| settings.steady.as_secs());
        assert_eq!(seconds(None), Ok(15));
        assert_eq!(seconds(Some("")), Ok(15));
        assert_eq!(seconds(Some("6")), Ok(6));
        for bad in ["0", "5", "x", "1.5", "-3", "3601"] {
            assert!(seconds(Some(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_sink_is_one_of_two() {
        let sink = |text| Settings::parse(None, text).map(|settings| settings.broker);
        assert_eq!(sink(None), Ok(BrokerKind::Kafka));
        assert_eq!(sink(Some("rabbitmq")), Ok(BrokerKind::RabbitMq));
        assert!(sink(Some("nats")).is_err());
    }
}
