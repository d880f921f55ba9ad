//! The rules of this code base, checked. Needs no services.
//!
//! Each rule is a pure function from file names and texts to violations, so that it can be shown
//! to catch a planted violation; the tests at the end run all of them over the tree. An exception
//! is a line in a list here, with its reason.

#![allow(clippy::unwrap_used, reason = "a test binary; its helpers stand outside test functions")]

use std::path::{Path, PathBuf};

#[path = "tidy/imports.rs"]
mod imports;
#[path = "tidy/names.rs"]
mod names;
#[path = "tidy/shape.rs"]
mod shape;
#[path = "tidy/sql.rs"]
mod sql;
#[path = "tidy/text.rs"]
mod text;

/// A file of the tree: its path from the root, its text, and its text without comments and strings.
struct Source {
    path: String,
    text: String,
    code: String,
}

impl Source {
    fn new(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned(), code: text::code_only(text) }
    }
}

/// Files that may be longer than 400 lines (never than 600), and why.
const LONG_FILES: &[(&str, &str)] = &[(
    "src/config/tests.rs",
    "one table of mistakes and what each is told as, read top to bottom",
)];

/// Files that may hold `unsafe`, and why.
const UNSAFE_FILES: &[(&str, &str)] = &[
    ("src/ffi.rs", "one reviewed module: the safe produce call costs a tenth of the throughput"),
    ("src/ffi/answer.rs", "part of it"),
    ("src/ffi/record.rs", "part of it"),
    ("src/ffi/shared_words.rs", "part of it"),
    ("src/ffi/system.rs", "part of it"),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All files below `folder` with the extension, sorted, as paths from the root.
fn files(folder: &str, extension: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for path in entries.map(|entry| entry.unwrap().path()) {
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(from_root(&path));
            }
        }
    }
    found.sort();
    found
}

fn from_root(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned()
}

fn sources(folders: &[&str]) -> Vec<Source> {
    let paths = folders.iter().flat_map(|folder| files(folder, "rs"));
    paths.map(|path| Source::new(&path, &read(&path))).collect()
}

#[track_caller]
fn assert_none(violations: &[String]) {
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

#[test]
fn imports_point_one_way() {
    let sources = sources(&["src"]);
    assert!(sources.len() > 10, "the tree was not found");
    assert_none(&sources.iter().flat_map(imports::violations).collect::<Vec<_>>());
}

#[test]
fn the_pure_core_knows_no_clock_and_no_socket() {
    assert_none(&sources(&["src"]).iter().flat_map(imports::impurities).collect::<Vec<_>>());
}

#[test]
fn files_and_functions_are_short() {
    let sources = sources(&["src", "tests", "benches"]);
    let long = sources.iter().flat_map(|source| shape::long_file(source, LONG_FILES));
    let functions = sources.iter().flat_map(shape::long_functions);
    assert_none(&long.chain(functions).collect::<Vec<_>>());
}

#[test]
fn nothing_is_left_half_done() {
    let all = sources(&["src", "tests", "benches"]);
    assert_none(&all.iter().flat_map(shape::leftovers).collect::<Vec<_>>());
}

#[test]
fn every_module_says_why_it_exists() {
    let all = sources(&["src"]);
    assert_none(&all.iter().flat_map(shape::undocumented).collect::<Vec<_>>());
}

#[test]
fn unsafe_stays_where_it_is_reviewed() {
    let all = sources(&["src", "tests", "benches"]);
    let found = all.iter().flat_map(|source| shape::unsafe_code(source, UNSAFE_FILES));
    assert_none(&found.collect::<Vec<_>>());
}

#[test]
fn sql_names_what_it_means_by_schema() {
    let all = sources(&["src"]);
    let scripts = files("sql", "sql");
    assert!(scripts.len() > 3, "the scripts were not found");
    let scripts = scripts.iter().flat_map(|path| sql::unqualified_in_script(path, &read(path)));
    assert_none(&all.iter().flat_map(sql::unqualified).chain(scripts).collect::<Vec<_>>());
}

#[test]
fn sql_sessions_begin_in_one_place() {
    assert_none(&sources(&["src"]).iter().flat_map(sql::sessions).collect::<Vec<_>>());
}

#[test]
fn metrics_are_named_in_the_table_only() {
    let names: Vec<&str> = walrelay::metrics::TABLE.iter().map(|spec| spec.name).collect();
    let sources = sources(&["src"]);
    let found = sources.iter().flat_map(|source| names::named_elsewhere(source, &names));
    assert_none(&found.collect::<Vec<_>>());
}

#[test]
fn rules_and_dashboards_use_metrics_that_exist() {
    let specs = walrelay::metrics::TABLE;
    let paths = ["yml", "json"].iter().flat_map(|extension| files("config", extension));
    let found = paths.flat_map(|path| names::unknown_metrics(&path, &read(&path), specs));
    assert_none(&found.collect::<Vec<_>>());
}

#[test]
fn the_documented_metrics_are_those_of_the_table() {
    is_fresh("docs/metrics.md", &walrelay::metrics::markdown_table());
}

#[test]
fn the_documented_errors_are_those_that_are_decided() {
    is_fresh("docs/errors.md", &walrelay::sink::errors_table());
}

/// The document holds this table; with `UPDATE_DOCS=1` it does from now on.
#[track_caller]
fn is_fresh(path: &str, table: &str) {
    let text = read(path);
    let fresh = names::with_table(&text, table);
    if std::env::var_os("UPDATE_DOCS").is_some_and(|value| value == "1") {
        std::fs::write(root().join(path), &fresh).unwrap();
        return;
    }
    assert!(text == fresh, "{path} is stale: UPDATE_DOCS=1 cargo test --release --test tidy");
}
