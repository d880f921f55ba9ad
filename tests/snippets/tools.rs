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

use crate::support::LIMIT;
use crate::support::faults::CliFixture;

/// A first build, beside all other tests on two cores.
const BUILD_LIMIT: Duration = Duration::from_secs(900);

const MISSING: &str = "scripts/setup installs the compilers, or says which is missing";

#[derive(Clone)]
pub(crate) struct Program {
    words: Vec<OsString>,
    env: Vec<(&'static str, OsString)>,
    folder: PathBuf,
    limit: Duration,
}

impl Program {
    pub(crate) fn new(program: impl Into<OsString>, folder: &Path) -> Program {
        Program {
            words: vec![program.into()],
            env: Vec::new(),
            folder: folder.into(),
            limit: LIMIT,
        }
    }

    pub(crate) fn with(mut self, words: &[&str]) -> Program {
        self.words.extend(words.iter().map(OsString::from));
        self
    }

    pub(crate) fn env(mut self, name: &'static str, value: impl Into<OsString>) -> Program {
        self.env.push((name, value.into()));
        self
    }

    /// A build: it has more time, and gives way to the tests beside it, some of which measure times.
    pub(crate) fn slow(mut self) -> Program {
        self.words.splice(0..0, ["nice", "-n", "19"].map(OsString::from));
        self.limit = BUILD_LIMIT;
        self
    }

    /// The same as one of the page's programs: with an order, and the database as its library wants it named.
    pub(crate) fn placing(
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

/// Programs whose libraries come from package registries, each with its folder in `tests` and in the cache.
#[derive(Clone, Copy)]
pub(crate) enum Set {
    Snippets,
    Libraries,
}

impl Set {
    fn name(self) -> &'static str {
        match self {
            Set::Snippets => "snippets",
            Set::Libraries => "libraries",
        }
    }

    /// A file as it is in the tree now.
    #[track_caller]
    pub(crate) fn file(self, language: &str, file: &str) -> String {
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(self.name());
        let path = tree.join(language).join(file);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The folder in which programs of a language are built and run. It stays from run to run, so that
    /// only what has changed is built again.
    pub(crate) fn place(self, language: &str) -> PathBuf {
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(self.name()).join(language)
    }

    /// Part that `scripts/setup` has fetched for the manifest that is in the tree now.
    #[track_caller]
    pub(crate) fn cached(self, language: &str, manifest: &str, part: &str) -> PathBuf {
        let name = self.name();
        let folder = cache_folder().unwrap().join(name).join(language);
        let fetched = fs::read_to_string(folder.join(manifest)).unwrap_or_default();
        let place = folder.display();
        let fetch = match self {
            Set::Snippets => "scripts/setup",
            Set::Libraries => "scripts/setup --libraries",
        };
        assert!(
            fetched == self.file(language, manifest),
            "what tests/{name}/{language}/{manifest} names is not in {place}: run {fetch}"
        );
        folder.join(part)
    }
}

/// Writes a file of a project. Leaves it alone if it is so already: compilers look at its time.
pub(crate) fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    if fs::read_to_string(path).is_ok_and(|found| found == text) {
        return;
    }
    fs::write(path, text).unwrap();
}

/// Lets programs of Node find the modules that were fetched.
#[track_caller]
pub(crate) fn link_modules(set: Set, folder: &Path) {
    let modules = folder.join("node_modules");
    if !modules.exists() {
        let fetched = set.cached("node", "package-lock.json", "node_modules");
        std::os::unix::fs::symlink(fetched, &modules).unwrap();
    }
}

pub(crate) struct Ended {
    command: String,
    pub(crate) code: i32,
    out: String,
    pub(crate) err: String,
}

impl Ended {
    /// The output of the program.
    #[track_caller]
    pub(crate) fn assert_done(self) -> String {
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
pub(crate) fn run(program: &Program) -> Ended {
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
