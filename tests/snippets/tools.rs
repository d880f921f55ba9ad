//! Compilers and programs, run to their end within a limit; what they say is shown when they fail.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use walrelay_harness::cache_folder;
use walrelay_harness::proc::{spawn_tied, tied_command};

use super::page::skeleton;
use crate::support::LIMIT;
use crate::support::faults::CliFixture;

/// A first build, beside all other tests on two cores.
const BUILD_LIMIT: Duration = Duration::from_secs(900);

const MISSING: &str = "scripts/setup installs the compilers, or says which is missing";

#[derive(Clone)]
pub(super) struct Program {
    words: Vec<OsString>,
    env: Vec<(&'static str, OsString)>,
    folder: PathBuf,
    limit: Duration,
}

impl Program {
    pub(super) fn new(program: impl Into<OsString>, folder: &Path) -> Program {
        Program {
            words: vec![program.into()],
            env: Vec::new(),
            folder: folder.into(),
            limit: LIMIT,
        }
    }

    pub(super) fn with(mut self, words: &[&str]) -> Program {
        self.words.extend(words.iter().map(OsString::from));
        self
    }

    pub(super) fn env(mut self, name: &'static str, value: impl Into<OsString>) -> Program {
        self.env.push((name, value.into()));
        self
    }

    /// A build: it has more time, and gives way to the tests beside it, some of which measure times.
    pub(super) fn slow(mut self) -> Program {
        self.words.splice(0..0, ["nice", "-n", "19"].map(OsString::from));
        self.limit = BUILD_LIMIT;
        self
    }

    /// The same as one of the page's programs: with an order, and the database as its library wants it named.
    pub(super) fn placing(
        &self,
        scene: &CliFixture<'_>,
        order: &str,
        total: &str,
        trace: Option<&str>,
    ) -> Program {
        let place = scene.url.split_once('@').unwrap().1;
        let (host, database) = place.split_once('/').unwrap();
        let (host, port) = host.split_once(':').unwrap();
        let python = self.words[0] == "python3";
        let url = if python {
            scene.url.replacen("postgres", "postgresql+psycopg", 1)
        } else {
            scene.url.clone()
        };
        let program = self.clone().with(&[order, total]).env("DATABASE_URL", url);
        let program = program
            .env("JDBC_URL", format!("jdbc:postgresql://{place}?user=postgres"))
            .env("PGHOST", host)
            .env("PGPORT", port)
            .env("PGUSER", "postgres")
            .env("PGDATABASE", database);
        match trace {
            Some(trace) => program.env("TRACEPARENT", trace),
            None => program,
        }
    }
}

/// The folder that `scripts/setup` has fetched for the manifest that is in the tree now.
#[track_caller]
pub(super) fn cached(language: &str, manifest: &str, part: &str) -> PathBuf {
    let folder = cache_folder().unwrap().join("snippets").join(language);
    let fetched = fs::read_to_string(folder.join(manifest)).unwrap_or_default();
    let place = folder.display();
    assert!(
        fetched == skeleton(language, manifest),
        "what tests/snippets/{language}/{manifest} names is not in {place}: run scripts/setup"
    );
    folder.join(part)
}

pub(super) struct Ended {
    command: String,
    pub(super) code: i32,
    out: String,
    pub(super) err: String,
}

impl Ended {
    /// The output of the program.
    #[track_caller]
    pub(super) fn assert_done(self) -> String {
        assert_eq!(self.code, 0, "{self}");
        self.out
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ended { command, code, out, err } = self;
        write!(f, "{command}\nended with {code}\n{out}\n{err}")
    }
}

/// Output goes to files, so that no pipe can fill.
#[track_caller]
pub(super) fn run(program: &Program) -> Ended {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let command_line = format!("{:?} in {}", program.words, program.folder.display());
    let [out, err] = ["out", "err"].map(|end| program.folder.join(format!("{count}.{end}")));
    let mut command = tied_command(Path::new(&program.words[0]));
    command.args(&program.words[1..]).current_dir(&program.folder);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["PG", "CARGO_TARGET", "TRACEPARENT", "PYTHON"].iter().any(|it| text.starts_with(it)) {
            command.env_remove(&name);
        }
    }
    command.envs(program.env.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null());
    command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
    let mut child =
        spawn_tied(command).unwrap_or_else(|error| panic!("{command_line}: {error}\n{MISSING}"));
    let began = Instant::now();
    let read =
        |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
    let code = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status.code().unwrap_or(-1);
        }
        if began.elapsed() > program.limit {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!(
                "{command_line} does not end within {:?}\n{}{}",
                program.limit,
                read(&out),
                read(&err)
            );
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    // What `nice` says of a program that is not there.
    assert!(code != 127, "{command_line}: {}{MISSING}", read(&err));
    let ended = Ended { command: command_line, code, out: read(&out), err: read(&err) };
    for file in [out, err] {
        fs::remove_file(file).ok();
    }
    ended
}
