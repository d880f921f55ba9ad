//! Which module may know which, and that no files of `src` import each other in a circle.

use crate::graph::{Import, circles};
use crate::{Source, is_test_file, text};

/// A group of modules: its members, and the modules of other groups it may import. Group 1 may be
/// imported by all, and every module may import its own group.
struct Group {
    members: &'static [&'static str],
    may: &'static [&'static str],
}

const GROUPS: &[Group] = &[
    // 1: foundations.
    Group { members: &["base", "metrics"], may: &[] },
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
    Group { members: &["delivery"], may: &["sink"] },
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
    &["relay", "health", "find", "admin", "config", "cli", "compare", "app"];

/// Files below the first may import files below the second against the direction, and why.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    (
        "src/source/",
        "src/outbox/settings.rs",
        "configuration types: [[source.outbox]] sits inside [source], and check and init look at it",
    ),
    ("src/sink/", "src/dead_letter/writer.rs", "what a dead letter is; it knows no sink"),
    ("src/sink/", "src/dead_letter/fit.rs", "the same"),
    ("src/sink/", "src/dead_letter/record.rs", "the same"),
    ("src/delivery/", "src/dead_letter/writer.rs", "the same"),
];

/// Folders and files that are pure: time comes in as an argument, bytes as slices.
const PURE: &[&str] = &[
    "src/base/",
    "src/compare/page/",
    "src/dead_letter/",
    "src/delivery/",
    "src/format/",
    "src/health/",
    "src/outbox/",
    "src/pgoutput/",
    "src/source/progress.rs",
    "src/trace/",
];

/// Files among them that are not, and why.
const NOT_PURE: &[(&str, &str)] = &[
    ("src/base/clock.rs", "the clock that others are handed"),
    ("src/base/host.rs", "addresses"),
    ("src/base/http.rs", "the HTTP client"),
    ("src/base/os_ffi.rs", "asks the operating system"),
    ("src/base/runtime.rs", "starts threads and runtimes"),
    ("src/base/secret.rs", "reads secrets out of files"),
    ("src/base/service_manager.rs", "sends to the service manager"),
    ("src/base/settings/kind.rs", "addresses"),
    ("src/base/settings/types.rs", "addresses"),
    ("src/dead_letter/tail.rs", "the thread that follows the topic"),
    ("src/health/slot_watch.rs", "the task that asks Postgres"),
    ("src/trace/exporter.rs", "the thread that sends spans"),
    ("src/trace/http.rs", "its connection"),
    ("src/trace/queue.rs", "what it waits for"),
];

/// What a pure file may not mention.
const IMPURE: &[&str] =
    &["tokio::", "std::net", "std::fs", "std::thread", "Instant::now", "SystemTime::now"];

/// `src/sink/kafka/mod.rs` as `sink`.
fn folder(path: &str) -> &str {
    path.trim_start_matches("src/").split('/').next().unwrap_or_default().trim_end_matches(".rs")
}

fn group(folder: &str) -> Option<&'static Group> {
    GROUPS.iter().find(|group| group.members.contains(&folder))
}

fn excepts((files, modules, _): &(&str, &str, &str), import: &Import) -> bool {
    import.from.starts_with(files) && import.to.starts_with(modules)
}

/// Is the import one that its group does not allow?
fn is_backward(import: &Import) -> bool {
    let (own, other) = (folder(&import.from), folder(&import.to));
    group(own).is_some_and(|group| {
        !group.members.contains(&other)
            && !group.may.contains(&other)
            && !GROUPS[0].members.contains(&other)
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
    let folders = sources.iter().map(|source| (&source.path, folder(&source.path)));
    let strange = folders
        .filter(|(_, name)| !known(name) && !["lib", "main", "allocator_ffi"].contains(name));
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
    let pure = PURE.iter().any(|prefix| path.starts_with(prefix))
        && !NOT_PURE.iter().any(|(file, _)| path == *file);
    if !pure || is_test_file(path) {
        return Vec::new();
    }
    let code = text::without_tests(&source.code);
    let lines = code.lines().zip(1..);
    lines
        .flat_map(|(text, line)| {
            let found = IMPURE.iter().filter(move |word| text.contains(**word));
            found.map(move |word| format!("{path}:{line}: a pure file must not use `{word}`"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Tree;

    /// What every group has, and the file that is checked.
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
    fn what_the_direction_allows_passes() {
        assert!(check("src/sink/mod.rs", "use crate::{base::X, metrics::X};").is_empty());
        assert!(check("src/sink/kafka/mod.rs", "use super::X;").is_empty());
        assert!(check("src/outbox/extract.rs", "use crate::pgoutput::X;").is_empty());
        assert!(check("src/delivery/window.rs", "use crate::sink::X;").is_empty());
        assert!(check("src/relay/admit.rs", "use crate::{source::X, sink::X};").is_empty());
    }

    #[test]
    fn every_group_has_a_wrong_way() {
        for (path, module) in [
            ("src/base/lsn.rs", "pgoutput"),
            ("src/metrics/pass.rs", "health"),
            ("src/pgoutput/frame.rs", "source"),
            ("src/source/stream.rs", "outbox"),
            ("src/source/stream.rs", "config"),
            ("src/outbox/route.rs", "source"),
            ("src/format/raw.rs", "sink"),
            ("src/delivery/window.rs", "source"),
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

    #[test]
    fn tests_and_comments_may_name_what_they_like() {
        assert!(check("src/sink/tests.rs", "use crate::source::X;").is_empty());
        assert!(
            check("src/sink/mod.rs", "// crate::source::X\n//! [`crate::source::X`]").is_empty()
        );
        let inline = "#[cfg(test)]\nmod tests {\n    use crate::source::X;\n}\n";
        assert!(check("src/sink/mod.rs", inline).is_empty());
    }

    #[test]
    fn a_module_outside_every_group_is_caught() {
        assert_eq!(strangers(&[Source::new("src/utils.rs", "")]).len(), 1);
        assert_eq!(strangers(&[Source::new("src/lib.rs", "")]).len(), 0);
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
        let clock = "fn f() { Instant::now(); }";
        assert_eq!(impurities(&Source::new("src/health/mod.rs", clock)).len(), 1);
        assert_eq!(impurities(&Source::new("src/delivery/window.rs", "use tokio::x;")).len(), 1);
        assert!(impurities(&Source::new("src/source/stream.rs", clock)).is_empty());
    }
}
