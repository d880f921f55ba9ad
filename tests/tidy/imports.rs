//! Which module may know which.

use crate::Source;
use crate::text;

/// A group of modules: its members, and the modules of other groups it may import. Group 1 may be
/// imported by all, and every module may import its own group.
struct Group {
    members: &'static [&'static str],
    may: &'static [&'static str],
}

const GROUPS: &[Group] = &[
    // 1: foundations.
    Group {
        members: &[
            "lsn", "time", "message", "letter", "error", "secret", "metrics", "ffi", "backoff",
            "percent", "tls", "html",
        ],
        may: &[],
    },
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
    // 9: claimed rows.
    Group { members: &["polling"], may: &["pgoutput", "source", "outbox"] },
];

/// Group 10, composition: sees everything, is seen by nothing below.
const COMPOSITION: &[&str] = &[
    "relay", "health", "admin", "watch", "follow", "config", "cli", "compare", "app", "main", "lib",
];

/// Files below the first may import what is below the second against the direction, and why.
const EXCEPTIONS: &[(&str, &str, &str)] = &[(
    "src/source/",
    "outbox::settings::",
    "configuration types: [[source.outbox]] sits inside [source], and check and init look at it",
)];

/// Files and folders that are pure: time comes in as an argument, bytes as slices.
const PURE: &[&str] = &[
    "src/lsn.rs",
    "src/time.rs",
    "src/message.rs",
    "src/letter.rs",
    "src/letter/",
    "src/dead_letter/filter.rs",
    "src/dead_letter/fold.rs",
    "src/dead_letter/follower.rs",
    "src/dead_letter/guard.rs",
    "src/dead_letter/identity.rs",
    "src/dead_letter/open.rs",
    "src/dead_letter/rate.rs",
    "src/dead_letter/record.rs",
    "src/error.rs",
    "src/secret.rs",
    "src/health.rs",
    "src/health/",
    "src/pgoutput/",
    "src/outbox/",
    "src/format/",
    "src/delivery/",
    "src/source/progress.rs",
    "src/html.rs",
    "src/compare/page.rs",
    "src/compare/page/",
];

/// What a pure file may not mention.
const IMPURE: &[&str] =
    &["tokio::", "std::net", "std::fs", "std::thread", "Instant::now", "SystemTime::now"];

fn is_test_file(path: &str) -> bool {
    let ends = ["/tests.rs", "/testing.rs", "_tests.rs"];
    ends.iter().any(|end| path.ends_with(end)) || path.contains("/tests/")
}

/// `src/sink/kafka/mod.rs` as `["sink", "kafka"]`.
fn module_path(path: &str) -> Vec<&str> {
    let inner = path.trim_start_matches("src/").trim_end_matches(".rs");
    let inner = inner.strip_suffix("/mod").unwrap_or(inner);
    inner.split('/').collect()
}

/// The paths from the crate root that the code names, with line numbers.
fn imported(source: &Source) -> Vec<(usize, String)> {
    let code = text::without_tests(&source.code);
    let here = module_path(&source.path);
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        if !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            found.extend(heads(&code[at + "crate::".len()..]).into_iter().map(|name| (at, name)));
        }
    }
    // A chain of `super` as long as the module is deep ends at the crate root.
    let chain = "super::".repeat(here.len());
    for (at, _) in code.match_indices(&chain) {
        if !code[..at].ends_with("super::") {
            found.extend(heads(&code[at + chain.len()..]).into_iter().map(|name| (at, name)));
        }
    }
    let line = |at: usize| code[..at].matches('\n').count() + 1;
    found.into_iter().map(|(at, name)| (line(at), name)).collect()
}

/// The path that begins here, or each path in a brace list.
fn heads(rest: &str) -> Vec<String> {
    let part = |c: &char| c.is_alphanumeric() || *c == '_' || *c == ':';
    let word = |text: &str| text.chars().take_while(part).collect();
    let Some(list) = rest.strip_prefix('{') else { return vec![word(rest)] };
    let mut names = Vec::new();
    let (mut depth, mut fresh) = (1, true);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => fresh = true,
            c if fresh && !c.is_whitespace() => {
                names.push(word(&list[at..]));
                fresh = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    names
}

/// Imports of `source` that point the wrong way.
pub(crate) fn violations(source: &Source) -> Vec<String> {
    let path = source.path.as_str();
    let own = module_path(path)[0];
    if COMPOSITION.contains(&own) || is_test_file(path) {
        return Vec::new();
    }
    let Some(group) = GROUPS.iter().find(|group| group.members.contains(&own)) else {
        return vec![format!(
            "{path}: module `{own}` is in no group; add it to tests/tidy/imports.rs"
        )];
    };
    let mut wrong = Vec::new();
    for (line, name) in imported(source) {
        let head = name.split("::").next().unwrap_or_default();
        let known =
            GROUPS.iter().any(|group| group.members.contains(&head)) || COMPOSITION.contains(&head);
        let excepted = |(files, modules, _): &(&str, &str, &str)| {
            path.starts_with(files) && name.starts_with(modules)
        };
        let allowed = group.members.contains(&head)
            || group.may.contains(&head)
            || GROUPS[0].members.contains(&head)
            || EXCEPTIONS.iter().any(excepted);
        if known && !allowed {
            wrong.push(format!("{path}:{line}: `{own}` must not import `{head}`"));
        }
    }
    wrong
}

/// Clocks, sockets, files and threads in a pure file.
pub(crate) fn impurities(source: &Source) -> Vec<String> {
    let path = source.path.as_str();
    let pure = PURE.iter().any(|prefix| path == *prefix || is_below(path, prefix));
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

fn is_below(path: &str, folder: &str) -> bool {
    folder.ends_with('/') && path.starts_with(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str) -> Vec<String> {
        violations(&Source::new(path, text))
    }

    #[test]
    fn a_sink_that_knows_postgres_is_caught_however_it_is_written() {
        let path = "src/sink/kafka/mod.rs";
        let told = ["src/sink/kafka/mod.rs:1: `sink` must not import `source`"];
        assert_eq!(check(path, "use crate::source::Slot;"), told);
        assert_eq!(check(path, "use crate::{lsn::Lsn, source::{Slot, config}};"), told);
        assert_eq!(check(path, "use super::super::source::Slot;"), told);
        assert_eq!(check(path, "fn f(slot: crate::source::Slot) {}"), told);
        assert_eq!(
            check(path, "use crate::\n    outbox::X;").len(),
            0,
            "rustfmt never writes this"
        );
        assert_eq!(check("src/sink/mod.rs", "use super::pgoutput::X;").len(), 1);
    }

    #[test]
    fn what_the_direction_allows_passes() {
        assert!(check("src/sink/mod.rs", "use crate::{lsn::Lsn, message::Outbound};").is_empty());
        assert!(check("src/sink/kafka/mod.rs", "use super::settings::KafkaSettings;").is_empty());
        assert!(check("src/outbox/extract.rs", "use crate::pgoutput::Tuple;").is_empty());
        assert!(check("src/delivery/window.rs", "use crate::sink::Receipt;").is_empty());
        assert!(check("src/relay.rs", "use crate::{source::A, sink::B};").is_empty());
        assert!(check("src/config/mod.rs", "use crate::sink::settings::SinkSettings;").is_empty());
    }

    #[test]
    fn every_group_has_a_wrong_way() {
        for (path, module) in [
            ("src/lsn.rs", "pgoutput"),
            ("src/metrics/pass.rs", "health"),
            ("src/pgoutput/frame.rs", "source"),
            ("src/source/stream.rs", "outbox"),
            ("src/source/stream.rs", "config"),
            ("src/outbox/route.rs", "source"),
            ("src/format/raw.rs", "sink"),
            ("src/delivery/window.rs", "source"),
        ] {
            assert_eq!(
                check(path, &format!("use crate::{module}::X;")).len(),
                1,
                "{path} {module}"
            );
        }
    }

    #[test]
    fn an_exception_holds_for_its_files_and_modules_only() {
        assert!(check("src/source/settings.rs", "use crate::outbox::settings::Route;").is_empty());
        assert_eq!(check("src/source/settings.rs", "use crate::outbox::extract::X;").len(), 1);
        assert_eq!(check("src/source/settings.rs", "use crate::sink::settings::X;").len(), 1);
        assert_eq!(check("src/sink/mod.rs", "use crate::outbox::settings::Route;").len(), 1);
        assert!(EXCEPTIONS.iter().all(|(_, _, reason)| !reason.is_empty()));
    }

    #[test]
    fn tests_and_comments_may_name_what_they_like() {
        assert!(check("src/sink/tests.rs", "use crate::source::X;").is_empty());
        assert!(check("src/sink/mod.rs", "// crate::source\n//! [`crate::source`]").is_empty());
        let inline = "#[cfg(test)]\nmod tests {\n    use crate::source::X;\n}\n";
        assert!(check("src/sink/mod.rs", inline).is_empty());
    }

    #[test]
    fn a_module_outside_every_group_is_caught() {
        assert_eq!(check("src/utils.rs", "").len(), 1);
    }

    #[test]
    fn a_clock_in_the_pure_core_is_caught() {
        let clock = "fn f() { Instant::now(); }";
        assert_eq!(impurities(&Source::new("src/health.rs", clock)).len(), 1);
        assert_eq!(impurities(&Source::new("src/delivery/window.rs", "use tokio::x;")).len(), 1);
        assert!(impurities(&Source::new("src/source/stream.rs", clock)).is_empty());
    }
}
