//! Which module may know which, and that no files import each other in a circle.
//!
//! Modules of the core and of the program with one name are one module here, and so are the sinks. That
//! no crate knows the program is Cargo's matter.

use crate::graph::{Import, circles, inner_path};
use crate::{CORE, Source, is_test_file, text};

/// A group of modules: its members, and the modules of other groups it may import. Group 1 may be
/// imported by all, and every module may import its own group.
struct Group {
    members: &'static [&'static str],
    may: &'static [&'static str],
}

const GROUPS: &[Group] = &[
    // 1: foundations, and the bugs that are planted for the simulator.
    Group { members: &["base", "metrics", "mutants"], may: &[] },
    // 2: bytes to messages.
    Group { members: &["pgoutput"], may: &[] },
    // 3: the slot.
    Group { members: &["source"], may: &["pgoutput"] },
    // 4: row to event and destination.
    Group { members: &["outbox"], may: &["pgoutput"] },
    // 5: event to payload.
    Group { members: &["format"], may: &["outbox"] },
    // 6: brokers. A sink has never heard of Postgres.
    Group { members: &["sink"], may: &[] },
    // 7: promises.
    Group { members: &["delivery"], may: &["sink", "trace"] },
    // 8: the dead-letter topic, read and resolved.
    Group { members: &["dead_letter"], may: &["sink"] },
    // 9: spans of events.
    Group { members: &["trace"], may: &[] },
    // 10: claimed rows.
    Group { members: &["polling"], may: &["pgoutput", "source", "outbox"] },
    // 11: what `check` looks at.
    Group { members: &["doctor"], may: &["pgoutput", "source", "outbox", "polling"] },
];

/// Group 12, composition: sees everything, is seen by nothing below.
const COMPOSITION: &[&str] =
    &["adapters", "relay", "health", "find", "admin", "config", "cli", "compare", "app"];

/// Files below the first may import files below the second against the direction, and why. Paths are
/// those within a crate.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    (
        "source/",
        "outbox/settings.rs",
        "configuration types: [[source.outbox]] sits inside [source], and check and init look at it",
    ),
    ("source/doctor/", "doctor/", "`check` of a slot: the answers of Postgres, judged"),
    ("sink/", "dead_letter/writer.rs", "what a dead letter is; it knows no sink"),
    ("sink/", "dead_letter/fit.rs", "the same"),
    ("sink/", "dead_letter/record.rs", "the same"),
    ("delivery/", "dead_letter/writer.rs", "the same"),
];

/// Files of the program that are in no group.
const PROGRAM_FILES: &[&str] = &["lib", "main", "allocator_ffi", "features"];

/// Folders beside the core that are pure: time comes in as an argument, bytes as slices.
const PURE: &[&str] = &[
    "crates/ops/src/health/",
    "crates/ops/src/trace/",
    "crates/compare/src/page/",
    "src/dead_letter/",
];

/// The names that a pure file may not mention.
const IMPURE: &[&str] =
    &["tokio", "std::net", "std::fs", "std::thread", "Instant::now", "SystemTime"];

/// The names that the core may not mention either: all that differs from run to run.
const IMPURE_IN_CORE: &[&str] = &["std::env", "std::process", "RandomState"];

/// Its maps, whose hasher is the same in each run.
const FIXED_MAPS: &str = "crates/core/src/base/hash.rs";

/// Files that mention such a thing nevertheless, and why.
const NOT_PURE: &[(&str, &str)] = &[
    ("src/dead_letter/pipeline.rs", "waits for a sink"),
    ("src/dead_letter/tail.rs", "the thread that follows the topic"),
    ("crates/ops/src/health/slot_watch.rs", "the task that asks Postgres"),
    ("crates/ops/src/trace/exporter.rs", "the thread that sends spans"),
    ("crates/ops/src/trace/http.rs", "its connection"),
    ("crates/ops/src/trace/queue.rs", "what it waits for"),
];

/// `src/sink/file/mod.rs` as `sink`, and so `crates/kafka/src/scan.rs`.
fn folder(path: &str) -> String {
    let inner = inner_path(path);
    inner.split('/').next().unwrap_or_default().trim_end_matches(".rs").to_owned()
}

fn group(folder: &str) -> Option<&'static Group> {
    GROUPS.iter().find(|group| group.members.contains(&folder))
}

fn excepts((files, modules, _): &(&str, &str, &str), import: &Import) -> bool {
    inner_path(&import.from).starts_with(files) && inner_path(&import.to).starts_with(modules)
}

/// Is the import one that its group does not allow?
fn is_backward(import: &Import) -> bool {
    let (own, other) = (folder(&import.from), folder(&import.to));
    group(&own).is_some_and(|group| {
        let is_in = |list: &[&str]| list.contains(&other.as_str());
        !is_in(group.members) && !is_in(group.may) && !is_in(GROUPS[0].members)
    })
}

pub(crate) fn violations(imports: &[Import]) -> Vec<String> {
    let wrong = imports.iter().filter(|import| {
        is_backward(import) && !EXCEPTIONS.iter().any(|exception| excepts(exception, import))
    });
    wrong
        .map(|Import { from, to, line }| format!("{from}:{line}: must not import from {to}"))
        .collect()
}

pub(crate) fn strangers(sources: &[Source]) -> Vec<String> {
    let known = |name: &str| group(name).is_some() || COMPOSITION.contains(&name);
    let files = sources.iter().filter(|source| !is_test_file(&source.path));
    let folders = files.map(|source| (&source.path, folder(&source.path)));
    let strange =
        folders.filter(|(_, name)| !known(name) && !PROGRAM_FILES.contains(&name.as_str()));
    strange
        .map(|(path, name)| {
            format!("{path}: module `{name}` is in no group; add it to tests/tidy/imports.rs")
        })
        .collect()
}

/// Exceptions that no import needs any more.
pub(crate) fn idle_exceptions(imports: &[Import]) -> Vec<String> {
    let needed = |exception| imports.iter().any(|it| is_backward(it) && excepts(exception, it));
    let idle = EXCEPTIONS.iter().filter(|exception| !needed(exception));
    idle.map(|(files, modules, _)| format!("{files} imports nothing from {modules}: delete it"))
        .collect()
}

/// Files that import each other, whatever the way around.
pub(crate) fn import_circles(imports: &[Import]) -> Vec<String> {
    let told = |circle: Vec<&str>| format!("import each other: {}", circle.join(", "));
    circles(imports).into_iter().map(told).collect()
}

/// Clocks, sockets, files and threads in a pure file.
pub(crate) fn impurities(source: &Source) -> Vec<String> {
    let path = source.path.as_str();
    if NOT_PURE.iter().any(|(file, _)| path == *file) {
        return Vec::new();
    }
    let found = mentions(source).into_iter();
    found.map(|(line, word)| format!("{path}:{line}: a pure file must not use `{word}`")).collect()
}

/// Exceptions of files that are pure by now.
pub(crate) fn idle_impurities(sources: &[Source]) -> Vec<String> {
    let is_needed = |file: &str| {
        sources.iter().any(|source| source.path == file && !mentions(source).is_empty())
    };
    let idle = NOT_PURE.iter().filter(|(file, _)| !is_needed(file));
    idle.map(|(file, _)| format!("{file} is pure: delete its exception")).collect()
}

/// The impure names that a file that should be pure mentions, with their lines.
fn mentions(source: &Source) -> Vec<(usize, &'static str)> {
    let path = source.path.as_str();
    let is_core = path.starts_with(CORE);
    if is_test_file(path) || !(is_core || PURE.iter().any(|folder| path.starts_with(folder))) {
        return Vec::new();
    }
    let more = if is_core { IMPURE_IN_CORE } else { &[] };
    let code = text::without_tests(&source.code);
    let lines = code.lines().zip(1..);
    let found = lines.flat_map(|(text, line)| {
        let words = IMPURE.iter().chain(more).filter(move |word| has_word(text, word));
        // Their default hasher is seeded with `RandomState`.
        let maps = ["HashMap", "HashSet"].into_iter();
        let of_std = maps.filter(move |map| {
            is_core
                && path != FIXED_MAPS
                && text.contains("std::collections")
                && has_word(text, map)
        });
        words.copied().chain(of_std).map(move |word| (line, word))
    });
    found.collect()
}

/// Is the word there, and not as a part of another one?
fn has_word(text: &str, word: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].ends_with(is_word) && !text[at + word.len()..].starts_with(is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Tree;

    /// The imports that every group has, and those of the file that is checked.
    fn imports(path: &str, text: &str) -> Vec<Import> {
        let plain = "pub struct X;";
        let folders = GROUPS.iter().flat_map(|group| group.members).chain(COMPOSITION);
        let mut sources: Vec<Source> = folders
            .map(|folder| format!("src/{folder}/mod.rs"))
            .filter(|file| file != path)
            .map(|file| Source::new(&file, plain))
            .collect();
        sources.push(Source::new("src/lib.rs", ""));
        sources.push(Source::new("src/outbox/settings.rs", plain));
        sources.push(Source::new("src/source/slot.rs", plain));
        sources.push(Source::new(path, text));
        Tree::new(&sources).imports()
    }

    fn check(path: &str, text: &str) -> Vec<String> {
        violations(&imports(path, text))
    }

    #[test]
    fn a_sink_that_knows_postgres_is_caught_however_it_is_written() {
        let path = "src/sink/kafka/mod.rs";
        let wrong = ["src/sink/kafka/mod.rs:1: must not import from src/source/slot.rs"];
        assert_eq!(check(path, "use crate::source::slot::X;"), wrong);
        assert_eq!(check(path, "use crate::{base::X, source::{slot::X as Y, Z}};").len(), 2);
        assert_eq!(check(path, "use super::super::source::slot::X;"), wrong);
        assert_eq!(check(path, "fn f(slot: crate::source::slot::X) {}"), wrong);
        assert_eq!(check(path, "use crate::source; fn f(slot: source::slot::X) {}").len(), 0);
        let later = "use crate::source;\nfn f(slot: source::slot::X) {}";
        assert_eq!(check(path, later), [wrong[0].replace(":1:", ":2:")]);
        assert_eq!(check(path, "use crate::{\n    base::X,\n    source::slot::*,\n};"), wrong);
        assert_eq!(check("src/sink/mod.rs", "use super::pgoutput::X;").len(), 1);
    }

    #[test]
    fn the_direction_holds_within_the_core_and_between_it_and_the_program() {
        let (program, core) = ("src/sink/mod.rs", "crates/core/src/sink/key_lanes.rs");
        let tree = |path, text| {
            let files = [
                ("src/lib.rs", "pub mod sink;\npub use walrelay_core::source;"),
                ("crates/core/src/lib.rs", "pub mod sink;\npub mod source;"),
                ("crates/core/src/source/mod.rs", "pub struct X;"),
                (path, text),
            ];
            violations(&imports_of(&files))
        };
        let wrong =
            |path| [format!("{path}:1: must not import from crates/core/src/source/mod.rs")];
        assert_eq!(tree(core, "use crate::source::X;"), wrong(core));
        assert_eq!(tree(program, "use walrelay_core::source::X;"), wrong(program));
        assert_eq!(tree(program, "use crate::source::X;"), wrong(program));
    }

    #[test]
    fn every_group_has_a_wrong_way() {
        for (path, module) in [
            ("src/base/lsn.rs", "pgoutput"),
            ("src/metrics/labels.rs", "health"),
            ("src/pgoutput/frame.rs", "source"),
            ("src/source/stream.rs", "outbox"),
            ("src/source/stream.rs", "config"),
            ("src/outbox/route.rs", "source"),
            ("src/format/raw.rs", "sink"),
            ("src/delivery/flights.rs", "source"),
            ("src/dead_letter/fold.rs", "source"),
            ("src/polling/batch.rs", "sink"),
            ("src/doctor/mod.rs", "relay"),
        ] {
            let text = format!("use crate::{module}::X;");
            assert_eq!(check(path, &text).len(), 1, "{path} {module}");
        }
    }

    #[test]
    fn an_exception_holds_for_its_files_and_modules_only() {
        let settings = "use crate::outbox::settings::X;";
        assert!(check("src/source/settings.rs", settings).is_empty());
        assert_eq!(check("src/source/settings.rs", "use crate::outbox::X;").len(), 1);
        assert_eq!(check("src/source/settings.rs", "use crate::sink::X;").len(), 1);
        assert_eq!(check("src/sink/mod.rs", settings).len(), 1);
        assert!(EXCEPTIONS.iter().all(|(_, _, reason)| !reason.is_empty()));
        // WHEN nothing needs an exception THEN it is to go
        assert_eq!(idle_exceptions(&[]).len(), EXCEPTIONS.len());
        let needed = imports("src/source/settings.rs", settings);
        assert_eq!(idle_exceptions(&needed).len(), EXCEPTIONS.len() - 1);
    }

    fn imports_of(files: &[(&str, &str)]) -> Vec<Import> {
        let roots = ["src/lib.rs", "src/a/mod.rs"].map(|path| (path, ""));
        let roots = roots.iter().filter(|(root, _)| files.iter().all(|(path, _)| path != root));
        let all = files.iter().chain(roots);
        let sources: Vec<Source> = all.map(|(path, text)| Source::new(path, text)).collect();
        Tree::new(&sources).imports()
    }

    fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
        import_circles(&imports_of(files))
    }

    #[test]
    fn files_that_import_each_other_are_caught() {
        let told = ["import each other: src/a/b.rs, src/a/mod.rs"];
        let child = ("src/a/b.rs", "use super::X;");
        // WHEN the parent uses its child's item, however it names it
        for parent in [
            "mod b;\nuse b::Y;\npub struct X;",
            "mod b;\nuse self::b::Y;\npub struct X;",
            "mod b;\npub struct X;\nfn f() { b::y() }",
            "mod b;\npub(crate) use b::Y;\npub struct X(Y);",
        ] {
            assert_eq!(circles_of(&[("src/a/mod.rs", parent), child]), told, "{parent}");
        }
        // WHEN it only declares it, or hands its item on
        let parent = ("src/a/mod.rs", "mod b;\npub use b::Y;\npub struct X;");
        assert!(circles_of(&[parent, child]).is_empty());
        // WHEN the way leads through a re-export
        let (c, parent) = (("src/a/c.rs", "use super::Y;"), ("src/a/mod.rs", "pub use b::Y;"));
        assert!(circles_of(&[parent, c, ("src/a/b.rs", "")]).is_empty());
        let back = ("src/a/b.rs", "use crate::a::c::Z;");
        assert_eq!(circles_of(&[parent, c, back]).len(), 1);
        // WHEN it is long
        let long = [
            ("src/x.rs", "use crate::y::Y;"),
            ("src/y.rs", "use crate::z::Z;"),
            ("src/z.rs", "use crate::x::X;"),
        ];
        assert_eq!(circles_of(&long), ["import each other: src/x.rs, src/y.rs, src/z.rs"]);
    }

    #[test]
    fn a_clock_in_the_pure_core_is_caught() {
        let found = |path, text| impurities(&Source::new(path, text)).len();
        let clock = "fn f() { Instant::now(); }";
        assert_eq!(found("crates/ops/src/health/mod.rs", clock), 1);
        assert_eq!(found("crates/core/src/delivery/flights.rs", "use tokio::x;"), 1);
        assert_eq!(found("src/source/sql.rs", clock), 0);
        let hash = "use std::hash::{BuildHasher, RandomState};";
        assert_eq!(found("crates/core/src/delivery/flights.rs", hash), 1);
        assert_eq!(found("crates/ops/src/health/mod.rs", hash), 0);
        let map = "use std::collections::{BTreeMap, HashMap};";
        assert_eq!(found("crates/core/src/delivery/window.rs", map), 1);
        assert_eq!(found(FIXED_MAPS, map), 0);
        assert_eq!(found("crates/ops/src/health/mod.rs", map), 0);
        assert_eq!(found("crates/core/src/relay/control.rs", "struct SystemTimeline;"), 0);
        let (file, _) = NOT_PURE[0];
        assert_eq!(found(file, clock), 0);
        assert!(NOT_PURE.iter().all(|(_, reason)| !reason.is_empty()));
        // WHEN nothing needs an exception THEN it is to go
        assert_eq!(idle_impurities(&[]).len(), NOT_PURE.len());
        assert_eq!(idle_impurities(&[Source::new(file, clock)]).len(), NOT_PURE.len() - 1);
    }
}
