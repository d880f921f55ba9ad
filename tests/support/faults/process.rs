//! The binary, run once; what it says goes to files, so that no pipe can fill.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use walrelay_harness::proc::{signal, spawn_tied, tied_command};

use super::LIMIT;

const BINARY: &str = env!("CARGO_BIN_EXE_walrelay");

pub(crate) struct Relay {
    child: Child,
    words: String,
    out: PathBuf,
    err: PathBuf,
}

pub(crate) struct Ended {
    words: String,
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Relay {
    pub(crate) fn spawn(
        folder: &Path,
        config: &Path,
        words: &[&str],
        env: &[(String, String)],
    ) -> Relay {
        Relay::spawn_with(tied_command(Path::new(BINARY)), folder, config, words, env)
    }

    /// The same with no more than so much address space.
    pub(crate) fn spawn_within(
        bytes: u64,
        folder: &Path,
        config: &Path,
        words: &[&str],
        env: &[(String, String)],
    ) -> Relay {
        let mut command = tied_command(Path::new("/bin/sh"));
        let script = format!("ulimit -v {}; exec \"$@\"", bytes / 1024);
        command.args(["-c", &script, "sh", BINARY]);
        Relay::spawn_with(command, folder, config, words, env)
    }

    fn spawn_with(
        mut command: Command,
        folder: &Path,
        config: &Path,
        words: &[&str],
        env: &[(String, String)],
    ) -> Relay {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let (out, err) = (folder.join(format!("{count}.out")), folder.join(format!("{count}.err")));
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            // The developer's own settings are not part of the test.
            if ["WALRELAY_", "PG", "OTEL_", "RUST_LOG"]
                .iter()
                .any(|prefix| name.starts_with(prefix))
            {
                command.env_remove(name);
            }
        }
        command.args(words).arg("--config").arg(config).current_dir(folder);
        // Where its state file is made.
        command.env("STATE_DIRECTORY", folder);
        command.envs(env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null());
        command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
        let child = spawn_tied(command).unwrap();
        Relay { child, words: words.join(" "), out, err }
    }

    /// The most address space it has had.
    pub(crate) fn peak_address_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    #[track_caller]
    pub(crate) fn wait(self) -> Ended {
        self.wait_within(LIMIT)
    }

    /// The same for something that takes its time.
    #[track_caller]
    pub(crate) fn wait_within(mut self, limit: Duration) -> Ended {
        self.end_within(limit, |_| {})
    }

    /// Waits for its end, and does this as long as it has not ended.
    #[track_caller]
    fn end_within(&mut self, limit: Duration, act: impl Fn(&Relay)) -> Ended {
        let began = Instant::now();
        let code = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status.code().unwrap_or(-1);
            }
            assert!(began.elapsed() < limit, "`{}` does not end\n{}", self.words, self.said());
            act(self);
            std::thread::sleep(Duration::from_millis(2));
        };
        self.ended(code)
    }

    /// Sends the signal until it has ended: one that follows another at once counts as the same.
    #[track_caller]
    pub(crate) fn signal_until_end(mut self, which: Signal) -> Ended {
        self.end_within(LIMIT, |it| it.signal(which))
    }

    fn ended(&self, code: i32) -> Ended {
        let read = |path: &Path| {
            String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
        };
        Ended { words: self.words.clone(), code, out: read(&self.out), err: read(&self.err) }
    }

    /// The file of what it logs.
    pub(crate) fn log(&self) -> PathBuf {
        self.err.clone()
    }

    /// The output of the process so far.
    pub(crate) fn said(&self) -> String {
        self.ended(0).all()
    }

    /// Waits until it has said this on standard error.
    #[track_caller]
    pub(crate) fn wait_to_say(&mut self, words: &str) {
        let log = self.log();
        self.wait_until(words, || std::fs::read_to_string(&log).is_ok_and(|it| it.contains(words)));
    }

    /// Waits until `done`, as long as it runs.
    #[track_caller]
    pub(crate) fn wait_until(&mut self, what: &str, mut done: impl FnMut() -> bool) {
        let began = Instant::now();
        while !done() {
            let status = self.child.try_wait().unwrap();
            assert!(
                status.is_none(),
                "ended while waiting for {what}: {status:?}\n{}",
                self.said()
            );
            assert!(began.elapsed() < LIMIT, "waited for {what}\n{}", self.said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until it has done this much of a long work, or has ended. Each part of the work has the limit
    /// of a whole one elsewhere.
    #[track_caller]
    pub(crate) fn wait_for_count(&mut self, what: &str, wanted: u64, count: impl Fn() -> u64) {
        let (mut done, mut moved) = (count(), Instant::now());
        while done < wanted && self.child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(5));
            let now = count();
            if now > done {
                (done, moved) = (now, Instant::now());
            }
            assert!(
                moved.elapsed() < LIMIT,
                "waited for {what}, {done} of {wanted}\n{}",
                self.said()
            );
        }
    }

    pub(crate) fn signal(&self, which: Signal) {
        signal(self.child.id(), which).unwrap();
    }

    /// Stops it as an operator would; it must settle and exit 0.
    #[track_caller]
    pub(crate) fn stop(self) -> Ended {
        signal(self.child.id(), Signal::TERM).unwrap();
        let ended = self.wait();
        assert_eq!(ended.code, 0, "{ended}");
        ended
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // It has ended already, or its test has failed.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Ended {
    /// Both streams. A fault that is a line of JSON stands there once more as people read it.
    pub(crate) fn all(&self) -> String {
        let faults = self.err.lines().filter_map(|line| {
            let line: Value = serde_json::from_str(line).ok()?;
            if line["level"] != "ERROR" {
                return None;
            }
            let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
            let (code, what) = (line["code"].as_str()?, text("message"));
            let (place, mend) = (text("where"), text("help"));
            Some(format!("error[{code}]: {what}\n  where: {place}\n  help: {mend}\n"))
        });
        format!("{}{}{}", self.out, self.err, faults.collect::<String>())
    }

    /// It ended with this exit code and fault, whose text has all of `words`.
    #[track_caller]
    pub(crate) fn assert_fault(&self, exit: i32, code: &str, words: &[&str]) -> &Ended {
        let (head, all) = (format!("error[{code}]"), self.all());
        assert_eq!(self.code, exit, "exit code\n{self}");
        assert!(all.contains(&head), "no {head}\n{self}");
        self.assert_says(words);
        let lower = all.to_lowercase();
        assert!(!lower.contains("panicked") && !lower.contains("backtrace"), "{self}");
        self
    }

    /// It ended with this exit code and one of these faults: who notices first is a matter of time.
    #[track_caller]
    pub(crate) fn assert_fault_of(&self, exit: i32, codes: &[&str], words: &[&str]) -> &Ended {
        let code = codes.iter().find(|code| self.all().contains(&format!("error[{code}]")));
        let code = code.unwrap_or_else(|| panic!("none of {codes:?}\n{self}"));
        self.assert_fault(exit, code, words)
    }

    #[track_caller]
    pub(crate) fn assert_says(&self, words: &[&str]) -> &Ended {
        // A fault is broken into lines for people.
        let flat = self.all().split_whitespace().collect::<Vec<_>>().join(" ");
        for word in words {
            assert!(flat.contains(word), "{word:?} is missing\n{self}");
        }
        self
    }

    #[track_caller]
    pub(crate) fn assert_done(&self) -> &Ended {
        assert_eq!(self.code, 0, "{self}");
        self
    }

    /// Its standard output, which is JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|_| panic!("{self}"))
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "walrelay {} ended with {}\n{}{}", self.words, self.code, self.out, self.err)
    }
}
