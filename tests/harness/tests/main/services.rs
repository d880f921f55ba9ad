//! The `services` program, and that nothing survives the death of a starter.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Generous: only a failing test waits as long.
const LIMIT: Duration = Duration::from_secs(20);

/// A run folder of the test's own, removed at its end.
struct RunFolder(PathBuf);

impl RunFolder {
    fn new(name: &str) -> RunFolder {
        // Short, because of unix sockets' paths, and open to servers that run as other users.
        let path = std::env::temp_dir().join(format!("wd-{name}-{}", std::process::id()));
        RunFolder(path)
    }

    fn services(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_services"));
        command.args(arguments).env("WALRELAY_DEV_RUN", &self.0);
        command
    }

    fn call(&self, arguments: &[&str]) -> (Output, String) {
        let output = self.services(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        println!("$ services {}\n{text}", arguments.join(" "));
        (output, text)
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        self.services(&["down"]).output().ok();
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// Process id and folder from a line about a service.
fn parse(line: &str) -> (u32, PathBuf) {
    let mut words = line.split_whitespace().skip_while(|word| *word != "pid").skip(1);
    (words.next().unwrap().parse().unwrap(), words.next().unwrap().into())
}

fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

fn eventually(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("{what}: after {} ms", start.elapsed().as_millis());
}

fn start_in_foreground(run: &RunFolder, names: &[&str]) -> (Child, Vec<(u32, PathBuf)>) {
    let mut child = run
        .services(&[&["run"], names].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let found = lines.take(names.len()).map(|line| parse(&line.unwrap())).collect();
    (child, found)
}

fn assert_gone(pid: u32, folder: &Path) {
    eventually("the process ends", || !runs(pid));
    eventually("the folder vanishes", || !folder.exists());
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn services_end_when_their_starter_is_killed() {
    // GIVEN a starter with three guards, so that one could hold another's pipe open
    let run = RunFolder::new("k");
    let (mut starter, services) = start_in_foreground(&run, &["postgres", "kafka", "rabbitmq"]);
    assert!(services.iter().all(|(pid, folder)| runs(*pid) && folder.is_dir()));
    // WHEN it is killed THEN all of them end and their folders vanish
    starter.kill().unwrap();
    starter.wait().unwrap();
    for (pid, folder) in &services {
        assert_gone(*pid, folder);
    }
    // and nothing is mounted, since what is entered by chroot has its mounts to itself
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(run.0.to_str().unwrap()), "{mounts}");
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn a_frozen_service_ends_too_when_its_starter_is_killed() {
    let run = RunFolder::new("f");
    let (mut starter, services) = start_in_foreground(&run, &["postgres"]);
    let (pid, folder) = &services[0];
    let stopped = Command::new("/bin/sh").args(["-c", &format!("kill -s STOP {pid}")]).status();
    assert!(stopped.unwrap().success());
    starter.kill().unwrap();
    starter.wait().unwrap();
    assert_gone(*pid, folder);
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn up_status_down() {
    // GIVEN nothing
    let run = RunFolder::new("u");
    let (nothing, text) = run.call(&["status"]);
    assert_eq!(nothing.status.code(), Some(1));
    assert!(text.contains("services up"), "{text}");

    // WHEN a server is started THEN it answers, its URL is written down, and a second `up` keeps it
    let (up, text) = run.call(&["up", "postgres"]);
    assert!(up.status.success());
    let (pid, folder) = parse(text.lines().next().unwrap());
    let urls = std::fs::read_to_string(run.0.join("services/env")).unwrap();
    assert!(urls.starts_with("export WALRELAY_DEV_POSTGRES='postgres://"), "{urls}");
    let (again, text) = run.call(&["up", "postgres"]);
    assert!(again.status.success() && text.contains("up already"), "{text}");
    assert_eq!(parse(&text).0, pid);
    assert!(run.call(&["status"]).0.status.success());

    // WHEN it is taken down THEN nothing is left, and that is fine a second time
    assert!(run.call(&["down"]).0.status.success());
    assert!(!runs(pid) && !folder.exists());
    assert!(run.call(&["down"]).0.status.success());
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn bad_usage_is_told_apart() {
    let run = RunFolder::new("b");
    for arguments in [&["up", "mysql"][..], &["sideways"], &[]] {
        assert_eq!(run.call(arguments).0.status.code(), Some(2));
    }
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn a_missing_installation_says_what_to_run() {
    let run = RunFolder::new("m");
    let mut command = run.services(&["run", "kafka"]);
    let output = command.env("WALRELAY_DEV_CACHE", "/nonexistent").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("Kafka jars missing in /nonexistent"), "{said}");
    assert!(said.contains("run scripts/setup"), "{said}");
}
