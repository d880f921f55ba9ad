//! `services`: PostgreSQL, Kafka and RabbitMQ at hand while one develops.
//!
//! `up` leaves a daemon behind that owns the services; `status` and `down` talk to it over a unix
//! socket in the run folder. Nothing is inferred from files: a daemon that died took its services
//! with it, and its socket refuses. `run` does without a daemon.

mod daemon;
mod service;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use walrelay_harness::kit::wait_at_most;
use walrelay_harness::{HarnessError, Result};

use service::{ALL, Service};

const USAGE: &str = "\
Usage: services COMMAND

  up [SERVICE]...     start in the background; all three when none is named
  status              where they listen and whether they answer
  down                stop all and remove their data
  run [SERVICE]...    start in the foreground, until Ctrl-C or the end of standard input

SERVICE is postgres, kafka or rabbitmq. Data lies under $WALRELAY_DEV_RUN
(default: /tmp/walrelay-dev-UID) and lives as long as the services do.
`up` writes the URLs to services/env there, for `source` in a shell.

Exit codes: 0 done, 1 failed or not up, 2 bad usage.";

const DAEMON_LIMIT: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, names) = match arguments.split_first() {
        Some((command, names)) => (command.as_str(), names),
        None => ("", &[][..]),
    };
    if matches!(command, "help" | "--help" | "-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let names = match service_names(names) {
        Ok(names) => names,
        Err(problem) => return usage(&problem),
    };
    let outcome = match command {
        "up" => up(&names),
        "run" => run(&names),
        "daemon" => folder().and_then(|folder| daemon::serve(&folder)).map(|()| true),
        "status" => ask("status", "no services are up; start them with: services up", false),
        "down" => ask("down", "no services are up", true),
        "" => return usage("a command is needed"),
        other => return usage(&format!("unknown command {other}")),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("services: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage(problem: &str) -> ExitCode {
    eprintln!("services: {problem}\n\n{USAGE}");
    ExitCode::from(2)
}

fn service_names(given: &[String]) -> Result<Vec<&'static str>, String> {
    let unknown = given.iter().find(|name| !ALL.contains(&name.as_str()));
    if let Some(name) = unknown {
        return Err(format!("no service {name}: there are {}", ALL.join(", ")));
    }
    let wanted = |name: &&str| given.is_empty() || given.iter().any(|g| g == name);
    Ok(ALL.into_iter().filter(wanted).collect())
}

/// Where the daemon has its socket, log and the URLs.
fn folder() -> Result<PathBuf> {
    let folder = walrelay_harness::run_folder()?.join("services");
    std::fs::create_dir_all(&folder)
        .map_err(HarnessError::io(format!("making {}", folder.display())))?;
    Ok(folder)
}

fn up(names: &[&str]) -> Result<bool> {
    let folder = folder()?;
    let stream = match connect(&folder) {
        Some(stream) => stream,
        None => start_daemon(&folder)?,
    };
    talk(stream, &format!("up {}", names.join(" ")))
}

/// Asks the daemon; without one it says so, and `is_well` is the outcome.
fn ask(question: &str, without: &str, is_well: bool) -> Result<bool> {
    match connect(&folder()?) {
        Some(stream) => talk(stream, question),
        None => {
            println!("{without}");
            Ok(is_well)
        }
    }
}

fn connect(folder: &Path) -> Option<UnixStream> {
    UnixStream::connect(folder.join(daemon::SOCKET)).ok()
}

fn start_daemon(folder: &Path) -> Result<UnixStream> {
    let doing = || HarnessError::io("starting the services' daemon");
    let log = std::fs::File::create(folder.join("daemon.log")).map_err(doing())?;
    let own_path = std::env::current_exe().map_err(doing())?;
    let errors = log.try_clone().map_err(doing())?;
    // A process group of its own: the terminal's Ctrl-C is not meant for it. `/` as folder: it
    // must not hold somebody's directory.
    let mut child = Command::new(own_path)
        .arg("daemon")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .process_group(0)
        .spawn()
        .map_err(doing())?;
    let found = wait_at_most(DAEMON_LIMIT, Duration::from_millis(10), || {
        // One that lost the race for the socket ends at once; the winner answers.
        child.try_wait().map_err(doing())?;
        Ok(connect(folder))
    })?;
    found.ok_or_else(|| {
        let said = std::fs::read_to_string(folder.join("daemon.log")).unwrap_or_default();
        HarnessError::Other(format!("the services' daemon does not answer; it wrote: {said}"))
    })
}

/// Sends one line and shows the answer; its last line says whether all went well.
fn talk(mut stream: UnixStream, line: &str) -> Result<bool> {
    let lost = || HarnessError::io("talking to the services' daemon");
    writeln!(stream, "{line}").map_err(lost())?;
    for line in BufReader::new(stream).lines() {
        match line.map_err(lost())?.as_str() {
            daemon::WELL => return Ok(true),
            daemon::ILL => return Ok(false),
            line => println!("{line}"),
        }
    }
    Err(HarnessError::Other("the services' daemon ended; its services end with it".into()))
}

fn run(names: &[&str]) -> Result<bool> {
    let mut services = Vec::new();
    for name in names {
        let (service, line) = Service::start(name)?;
        println!("{line}");
        services.push(service);
    }
    println!("running; Ctrl-C or the end of standard input stops them");
    // Ctrl-C ends this process and the guards do the rest.
    std::io::stdin()
        .read_to_end(&mut Vec::new())
        .map_err(HarnessError::io("reading standard input"))?;
    Ok(true)
}
