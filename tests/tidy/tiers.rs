//! The tiers of tests. `make test` runs the tests that are not ignored, and `make soak` runs all; an ignored
//! test says who runs it, because a test that nobody runs proves nothing.

use std::collections::HashSet;

use crate::Source;
use crate::shape::has_word;

const SOAK: &str = "soak";
/// For tests in the modules of [`parts`].
const WHEN_CHANGED: &str = "scripts/test, when it has changed";
/// For unit tests, which need no service otherwise.
const ON_POSTGRES: &str = "needs PostgreSQL: make test";
/// For tests in the module that `make soak` skips.
const ON_19: &str = "needs PostgreSQL 19: make matrix";
const ON_19_MODULE: &str = "postgres19";
/// For what a test starts as a process of its own.
const STARTED: &str = "the consumer of the test below, started by it";

/// Tests that `scripts/test` runs when a file that they test has changed.
pub(crate) struct Part {
    module: String,
    /// Files and folders that are tested.
    tested: Vec<String>,
}

/// The parts that the table in `scripts/test` declares.
pub(crate) fn parts(script: &str) -> Vec<Part> {
    let table = script.split_once("declare -A PARTS=(\n").and_then(|it| it.1.split_once("\n)"));
    let lines = table.map_or("", |(table, _)| table).lines();
    lines
        .map(|line| {
            let row = line.trim().strip_prefix('[').and_then(|row| row.split_once("]='"));
            let (module, tested) = row.unwrap_or((line, ""));
            let tested = tested.trim_end_matches('\'').split(' ').map(str::to_owned);
            Part { module: module.to_owned(), tested: tested.collect() }
        })
        .collect()
}

fn is_in(source: &Source, module: &str) -> bool {
    source.path.trim_end_matches(".rs").split('/').any(|name| name == module)
}

/// The reasons for which tests of a file are ignored, with their lines.
fn reasons(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    let lines = source.text.lines().zip(source.code.lines()).zip(1..);
    let ignoring = lines.filter(|((_, code), _)| code.contains("#[ignore"));
    ignoring.flat_map(|((text, _), line)| {
        let after = text.split("#[ignore").skip(1);
        after.map(move |after| (line, after.split('"').nth(1).unwrap_or_default()))
    })
}

/// Tests that are ignored on a condition, or for a reason for which nothing runs them.
pub(crate) fn wrongly_ignored(source: &Source, parts: &[Part]) -> Vec<String> {
    let is_run = |reason: &str| match reason {
        SOAK => !is_in(source, ON_19_MODULE),
        WHEN_CHANGED => parts.iter().any(|part| is_in(source, &part.module)),
        ON_POSTGRES => {
            ["crates/", "src/", "inbox/src/"].iter().any(|code| source.path.starts_with(code))
        }
        ON_19 => is_in(source, ON_19_MODULE),
        STARTED => source.path.starts_with("inbox/tests/"),
        _ => false,
    };
    let unrun = reasons(source).filter(|(_, reason)| !is_run(reason));
    let unrun = unrun.map(|(line, reason)| (line, format!("what is ignored for {reason:?}")));
    let lines = source.code.lines().zip(1..);
    let on_condition =
        lines.filter(|(code, _)| code.contains("cfg_attr") && has_word(code, "ignore"));
    let on_condition = on_condition.map(|(_, line)| (line, "what is ignored sometimes".to_owned()));
    unrun
        .chain(on_condition)
        .map(|(line, what)| format!("{}:{line}: nothing runs {what}", source.path))
        .collect()
}

/// Parts without a test, and parts that test a file which is not there.
pub(crate) fn idle_parts<'a>(
    parts: &[Part],
    sources: impl Iterator<Item = &'a Source> + Clone,
    exists: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut wrong = Vec::new();
    if parts.is_empty() {
        wrong.push("scripts/test: no table of parts".to_owned());
    }
    for Part { module, tested } in parts {
        let mut of_part = sources.clone().filter(|source| is_in(source, module)).flat_map(reasons);
        if !of_part.any(|(_, reason)| reason == WHEN_CHANGED) {
            wrong
                .push(format!("scripts/test: no test in {module} is ignored for {WHEN_CHANGED:?}"));
        }
        let missing = tested.iter().filter(|path| !exists(path));
        wrong.extend(missing.map(|path| format!("scripts/test: {module} tests {path:?}")));
    }
    wrong
}

/// Tests in the code of a program, or examples in the documents of a library, that its manifest
/// switches off.
pub(crate) fn switched_off<'a>(
    path: &str,
    manifest: &str,
    sources: impl Iterator<Item = &'a Source> + Clone,
) -> Vec<String> {
    let manifest: toml::Table = manifest.parse().unwrap_or_else(|error| panic!("{path}: {error}"));
    let folder = path.trim_end_matches("Cargo.toml");
    let is_off = |target: &toml::Value, key: &str| {
        target.get(key).and_then(toml::Value::as_bool) == Some(false)
    };
    let mut wrong = Vec::new();
    if manifest.get("lib").is_some_and(|lib| is_off(lib, "doctest")) {
        let code = format!("{folder}src/");
        let of_library = sources.clone().filter(|source| source.path.starts_with(&code));
        wrong.extend(of_library.flat_map(examples));
    }
    let programs = manifest.get("bin").and_then(toml::Value::as_array).into_iter().flatten();
    for program in programs.filter(|program| is_off(program, "test")) {
        let main = program.get("path").and_then(toml::Value::as_str).unwrap_or_default();
        let main = format!("{folder}{main}");
        let root = sources.clone().find(|source| source.path == main);
        let modules: HashSet<String> = root.map(modules_of).unwrap_or_default();
        let of_program = sources.clone().filter(|it| it.path == main || modules.contains(&it.path));
        let tested = of_program.filter(|source| source.code.contains("#[test]"));
        wrong.extend(tested.map(|it| format!("{}: {path} has `test = false`", it.path)));
    }
    wrong
}

/// Where the modules that a program's first file declares may be.
fn modules_of(root: &Source) -> HashSet<String> {
    let folder = root.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let declared =
        root.code.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
    declared
        .flat_map(|name| [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")])
        .collect()
}

/// Code in documents that `rustdoc` would run.
fn examples(source: &Source) -> Vec<String> {
    let (mut found, mut is_open) = (Vec::new(), false);
    for (line, number) in source.text.lines().map(str::trim_start).zip(1..) {
        let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        let Some(language) = text.and_then(|text| text.trim_start().strip_prefix("```")) else {
            continue;
        };
        if !is_open && language != "text" {
            let path = &source.path;
            found.push(format!("{path}:{number}: the crate has `doctest = false`: ```text"));
        }
        is_open = !is_open;
    }
    found
}
