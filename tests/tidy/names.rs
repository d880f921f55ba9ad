//! Metric names: in code, in rules and dashboards, in the documentation.

use walrelay::metrics::{MetricKind, MetricSpec};

use crate::graph::inner_path;
use crate::{CRATES, Source, is_test_file};

const BEGIN: &str = "<!-- table: begin -->\n";
const END: &str = "<!-- table: end -->\n";

/// Metric names in a source file other than the table's own. Comments count: a name that only a
/// comment knows goes stale unseen.
pub(crate) fn named_elsewhere(source: &Source, names: &[&str]) -> Vec<String> {
    let path = &source.path;
    if inner_path(path).starts_with("metrics/") || is_test_file(path) {
        return Vec::new();
    }
    let mut wrong = Vec::new();
    for (text, line) in source.text.lines().zip(1..) {
        let found = words(text).filter(|word| names.contains(word));
        wrong
            .extend(found.map(|word| format!("{path}:{line}: `{word}` belongs in the table only")));
    }
    wrong
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
}

/// `outbox_…` words that are no series of the table. A recording rule's name has a colon in it.
pub(crate) fn unknown_metrics(path: &str, text: &str, specs: &[MetricSpec]) -> Vec<String> {
    let exists = |word: &str| {
        specs.iter().any(|spec| match spec.kind {
            MetricKind::Histogram => ["_bucket", "_sum", "_count"]
                .iter()
                .any(|part| word.strip_suffix(part) == Some(spec.name)),
            MetricKind::Counter | MetricKind::Gauge => word == spec.name,
        })
    };
    let mut wrong = Vec::new();
    for (text, line) in text.lines().zip(1..) {
        let ours = words(text).filter(|word| word.starts_with("outbox_") && !word.contains(':'));
        let unknown = ours.filter(|word| !exists(word));
        wrong.extend(unknown.map(|word| format!("{path}:{line}: no metric `{word}`")));
    }
    wrong
}

/// The file with the metrics' table.
pub(crate) const METRICS: &str = "crates/ops/src/metrics/mod.rs";

/// Fields of the metrics' table that no code writes to. Tests do not count.
pub(crate) fn never_recorded(sources: &[Source]) -> Vec<String> {
    let code = |source: &Source| crate::text::without_tests(&source.code).to_owned();
    let counted = || sources.iter().filter(|source| !is_test_file(&source.path));
    let all: Vec<String> = counted().map(code).collect();
    let mut wrong = Vec::new();
    for source in counted().filter(|source| source.path == METRICS) {
        let path = &source.path;
        for (line, number) in code(source).lines().zip(1..) {
            let field = line.strip_prefix("    ").and_then(|line| line.split_once(": "));
            let field = field.filter(|(name, rest)| {
                rest.contains('=') && name.chars().all(|c| c.is_ascii_lowercase() || c == '_')
            });
            if let Some((field, _)) = field
                && !all.iter().any(|code| is_written(code, field))
            {
                wrong.push(format!("{path}:{number}: nothing records `{field}`"));
            }
        }
    }
    wrong
}

/// Is `.field` there, other than to be read? An arm of a `match` may lend it to what writes.
fn is_written(code: &str, field: &str) -> bool {
    let name = format!(".{field}");
    code.match_indices(&name).any(|(at, _)| {
        let rest = code[at + name.len()..].trim_start();
        let is_lent = code[..at].ends_with("&self") && rest.starts_with(',');
        is_lent || rest.starts_with('.') && !rest.starts_with(".get()")
    })
}

/// Source files that a document names between backticks and that are not there, from the root or
/// from the sources of the program or its core. A name in capitals stands for any.
pub(crate) fn missing_files(path: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let is_gone = |name: &&str| {
        let is_placeholder = name
            .split(['/', '.'])
            .any(|part| !part.is_empty() && part.chars().all(|c| c.is_ascii_uppercase()));
        name.ends_with(".rs")
            && !name.contains(char::is_whitespace)
            && !is_placeholder
            && !name.contains('*')
            && !exists(name)
            && !CRATES.iter().any(|it| exists(&format!("{}{name}", it.folder)))
    };
    let gone = quoted(text).filter(|(name, _)| is_gone(name));
    gone.map(|(name, line)| format!("{path}:{line}: no file `{name}`")).collect()
}

/// Returns the names between backticks, with their lines.
fn quoted(text: &str) -> impl Iterator<Item = (&str, usize)> {
    text.lines()
        .zip(1..)
        .flat_map(|(text, line)| text.split('`').skip(1).step_by(2).map(move |name| (name, line)))
}

/// Functions that a document names between backticks, with their types, and that no source has.
pub(crate) fn missing_functions<'a>(
    path: &str,
    text: &str,
    sources: impl Iterator<Item = &'a Source> + Clone,
) -> Vec<String> {
    let is_function = |name: &&str| {
        let is_lower = |it: &str| it.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        let parts = name.split_once("::");
        parts.is_some_and(|(of, name)| of.starts_with(char::is_uppercase) && is_lower(name))
    };
    let is_gone = |name: &&str| {
        let (of, name) = name.split_once("::").unwrap_or_default();
        let mut with_type = sources.clone().filter(|it| words(&it.code).any(|word| word == of));
        let declaration = format!("fn {name}");
        let is_declared = |code: &str| {
            code.split(&declaration).skip(1).any(|behind| behind.starts_with(['(', '<']))
        };
        !with_type.any(|it| is_declared(&it.code))
    };
    let gone = quoted(text).filter(|(name, _)| is_function(name) && is_gone(name));
    gone.map(|(name, line)| format!("{path}:{line}: no `{name}`")).collect()
}

/// The document with what stands between its marks replaced by `table`.
pub(crate) fn with_table(document: &str, table: &str) -> String {
    let parts = document
        .split_once(BEGIN)
        .and_then(|(before, rest)| rest.split_once(END).map(|(_, after)| (before, after)));
    let (before, after) = parts.expect("a document keeps both marks of its table");
    format!("{before}{BEGIN}{table}{END}{after}")
}
