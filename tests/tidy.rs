//! The rules of this code base, checked. Needs no services.
//!
//! Each rule is a pure function from file names and texts to violations, so that it can be shown
//! to catch a planted violation (`planted.rs`); the tests at the end run all of them over the tree. An exception
//! is a line in a list here, with its reason.

#![allow(clippy::unwrap_used, reason = "a test binary; its helpers stand outside test functions")]

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

#[path = "tidy/chart.rs"]
mod chart;
#[path = "tidy/dashboards.rs"]
mod dashboards;
#[path = "tidy/features.rs"]
mod features;
#[path = "tidy/graph.rs"]
mod graph;
#[path = "tidy/imports.rs"]
mod imports;
#[path = "tidy/logs.rs"]
mod logs;
#[path = "tidy/markdown.rs"]
mod markdown;
#[path = "tidy/names.rs"]
mod names;
#[cfg(test)]
#[path = "tidy/planted.rs"]
mod planted;
#[path = "tidy/shape.rs"]
mod shape;
#[path = "tidy/sql.rs"]
mod sql;
#[path = "tidy/text.rs"]
mod text;
#[path = "tidy/tiers.rs"]
mod tiers;

/// A crate of the program.
struct Crate {
    folder: &'static str,
    name: &'static str,
    /// The path of its modules in the program, which names them as if they were its own.
    modules: &'static str,
}

const CORE: &str = "crates/core/src/";

const CRATES: &[Crate] = &[
    Crate { folder: "src/", name: "walrelay", modules: "" },
    Crate { folder: CORE, name: "walrelay_core", modules: "" },
    Crate { folder: "crates/base/src/", name: "walrelay_base", modules: "base/" },
    Crate { folder: "crates/compare/src/", name: "walrelay_compare", modules: "compare/" },
    Crate { folder: "crates/ops/src/", name: "walrelay_ops", modules: "" },
    Crate { folder: "crates/postgres/src/", name: "walrelay_postgres", modules: "source/" },
    Crate { folder: "crates/sink/src/", name: "walrelay_sink", modules: "sink/" },
    Crate { folder: "crates/kafka/src/", name: "walrelay_kafka", modules: "sink/kafka/" },
    Crate { folder: "crates/rabbitmq/src/", name: "walrelay_rabbitmq", modules: "sink/rabbitmq/" },
];

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

fn is_test_file(path: &str) -> bool {
    let ends = ["/tests.rs", "/testing.rs", "_tests.rs"];
    ends.iter().any(|end| path.ends_with(end)) || path.contains("/tests/")
}

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

/// All Rust files.
struct Sources {
    src: Vec<Source>,
    inbox: Vec<Source>,
    /// Tests, benchmarks, examples and the simulator.
    others: Vec<Source>,
}

fn sources() -> &'static Sources {
    static SOURCES: OnceLock<Sources> = OnceLock::new();
    SOURCES.get_or_init(|| {
        let folders = ["benches", "crates", "examples", "inbox", "src", "tests"];
        let paths = folders.iter().flat_map(|folder| files(folder, "rs"));
        let all = paths.map(|path| Source::new(&path, &read(&path)));
        let is_below =
            |it: &Source, folders: &[&str]| folders.iter().any(|at| it.path.starts_with(at));
        let program: Vec<&str> = CRATES.iter().map(|it| it.folder).collect();
        let (src, rest): (Vec<_>, Vec<_>) = all.partition(|it| is_below(it, &program));
        let (inbox, others): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|it| is_below(it, &["inbox/src/"]));
        assert!(src.len() > 300 && inbox.len() > 20, "the tree was not found");
        Sources { src, inbox, others }
    })
}

/// The files of the program and of its crates.
fn src() -> &'static [Source] {
    &sources().src
}

/// The files of the crate for consumers.
fn inbox() -> &'static [Source] {
    &sources().inbox
}

fn everything() -> impl Iterator<Item = &'static Source> + Clone {
    src().iter().chain(inbox()).chain(&sources().others)
}

fn imports() -> &'static [graph::Import] {
    static IMPORTS: OnceLock<Vec<graph::Import>> = OnceLock::new();
    IMPORTS.get_or_init(|| {
        let imports = graph::Tree::new(src()).imports();
        assert!(imports.len() > 1_000, "the imports were not found");
        imports
    })
}

#[track_caller]
fn assert_none(violations: impl IntoIterator<Item = String>) {
    let violations: Vec<String> = violations.into_iter().collect();
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

#[test]
fn imports_point_one_way() {
    let mut wrong = imports::violations(imports());
    wrong.extend(imports::strangers(src()));
    assert_none(wrong);
}

#[test]
fn no_files_import_each_other() {
    assert_none(imports::import_circles(imports()));
}

#[test]
fn a_public_type_name_stands_once() {
    assert_none([src(), inbox()].into_iter().flat_map(shape::repeated_types));
}

#[test]
fn exceptions_that_nothing_needs_are_gone() {
    assert_none(imports::idle_exceptions(imports()));
}

#[test]
fn the_pure_core_knows_no_clock_and_no_socket() {
    assert_none(src().iter().flat_map(imports::impurities));
    assert_none(imports::idle_impurities(src()));
}

#[test]
fn files_and_functions_are_short() {
    let long = everything().filter_map(shape::long_file);
    assert_none(long.chain(everything().flat_map(shape::long_functions)));
}

#[test]
fn every_test_is_run_by_somebody() {
    let script = read("scripts/test");
    let parts = tiers::parts(&script);
    let exists = |path: &str| root().join(path).exists();
    assert_none(everything().flat_map(|source| tiers::wrongly_ignored(source, &parts)));
    assert_none(tiers::idle_parts(&parts, everything(), exists));
    let manifests = files("", "toml").into_iter().filter(|path| path.ends_with("Cargo.toml"));
    assert_none(manifests.flat_map(|path| tiers::switched_off(&path, &read(&path), everything())));
}

#[test]
fn nothing_is_left_half_done() {
    assert_none(everything().flat_map(shape::leftovers));
}

#[test]
fn nothing_is_printed_unescaped() {
    assert_none(src().iter().chain(inbox()).flat_map(shape::print_macros));
}

#[test]
fn every_module_says_why_it_exists() {
    let crates = sources().others.iter().filter(|source| source.path.starts_with("crates/"));
    assert_none(src().iter().chain(inbox()).chain(crates).flat_map(shape::undocumented));
}

#[test]
fn doc_comments_name_what_they_document() {
    assert_none(everything().flat_map(shape::vague_docs));
}

#[test]
fn functions_are_named_in_the_imperative() {
    let production = sources().others.iter().filter(|source| source.path.starts_with("crates/"));
    let production = src().iter().chain(inbox()).chain(production);
    let found = production.filter(|source| !is_test_file(&source.path));
    assert_none(found.flat_map(shape::third_person));
}

#[test]
fn unsafe_stays_where_it_is_reviewed() {
    assert_none(everything().flat_map(shape::unsafe_code));
}

#[test]
fn sql_names_what_it_means_by_schema() {
    let scripts = files("sql", "sql");
    assert!(scripts.len() > 3, "the scripts were not found");
    let scripts = scripts.iter().flat_map(|path| sql::unqualified_in_script(path, &read(path)));
    assert_none(src().iter().flat_map(sql::unqualified).chain(scripts));
}

#[test]
fn sql_sessions_begin_in_one_place() {
    assert_none(src().iter().flat_map(sql::sessions));
}

#[test]
fn metrics_are_named_in_the_table_only() {
    let names: Vec<&str> = walrelay::metrics::TABLE.iter().map(|spec| spec.name).collect();
    let found = src().iter().flat_map(|source| names::named_elsewhere(source, &names));
    assert_none(found);
}

#[test]
fn every_metric_of_the_table_is_recorded() {
    let path = names::METRICS;
    assert!(root().join(path).is_file(), "no file {path}: where are the metrics declared");
    assert_none(names::never_recorded(src()));
}

#[test]
fn documents_name_files_that_exist() {
    let mut paths = vec!["ARCHITECTURE.md".to_owned(), "CONTRIBUTING.md".to_owned()];
    paths.extend(files("docs", "md"));
    let exists = |name: &str| root().join(name).is_file();
    let found = paths.iter().flat_map(|path| names::missing_files(path, &read(path), exists));
    assert_none(found);
}

#[test]
fn documents_name_functions_that_exist() {
    let mut paths = files("docs", "md");
    paths.push("ARCHITECTURE.md".to_owned());
    let found =
        paths.iter().flat_map(|path| names::missing_functions(path, &read(path), everything()));
    assert_none(found);
}

#[test]
fn rules_and_dashboards_use_metrics_that_exist() {
    let specs = walrelay::metrics::TABLE;
    let paths = ["yml", "json"].iter().flat_map(|extension| files("config", extension));
    let found = paths.flat_map(|path| names::unknown_metrics(&path, &read(&path), specs));
    assert_none(found);
}

#[test]
fn every_fault_in_the_log_has_a_code_that_is_explained() {
    let sources = src().iter().filter(|source| !is_test_file(&source.path));
    assert_none(logs::violations(sources, &read("docs/operations.md")));
}

#[test]
fn dashboards_are_as_grafana_reads_them() {
    let paths = files("config/grafana/dashboards", "json");
    assert_eq!(paths.len(), 4, "the dashboards were not found");
    let boards: Vec<String> = paths.iter().map(|path| read(path)).collect();
    let each = paths.iter().zip(&boards);
    let mut wrong: Vec<String> =
        each.flat_map(|(path, text)| dashboards::violations(path, text)).collect();
    wrong.extend(dashboards::metrics_not_shown(&boards, walrelay::metrics::TABLE));
    let mut users = boards.clone();
    users.push(read("config/alerts.yml"));
    wrong.extend(dashboards::consumer_metric_violations(&read("inbox/src/metrics.rs"), &users));
    let exists = |path: &str| root().join(path).exists();
    wrong.extend(dashboards::compose_violations(&read("docker-compose.yml"), exists));
    assert_none(wrong);
}

#[test]
fn the_chart_is_that_of_this_program() {
    let at = |path: &str| read(&format!("packaging/chart/walrelay/{path}"));
    let mut wrong = chart::version_violations(&at("Chart.yaml"), env!("CARGO_PKG_VERSION"));
    wrong.extend(chart::schema_violations(&at("values.schema.json"), &walrelay::config::schema()));
    assert_none(wrong);
    assert_eq!(at("files/alerts.yml"), read("config/alerts.yml"), "the link to it is gone");
}

/// A database of another encoding refuses a script with a character that it lacks, even in a comment.
#[test]
fn scripts_for_the_database_have_characters_of_every_encoding() {
    let scripts = files("sql", "sql").into_iter();
    assert_none(scripts.filter(|path| !read(path).is_ascii()));
}

#[test]
fn tables_and_headings_are_shown_as_such() {
    let pages =
        files("docs", "md").into_iter().chain(["README.md", "CHANGELOG.md"].map(str::to_owned));
    assert_none(pages.flat_map(|path| markdown::violations(&path, &read(&path))));
}

#[test]
fn the_documented_formats_are_those_of_the_golden_files() {
    let page = read("docs/formats.md");
    let missing = ["raw", "cloudevents", "cloudevents-structured"].into_iter().flat_map(|format| {
        let golden = read(&format!("crates/core/tests/golden/format.{format}.txt"));
        markdown::undocumented(format, &golden, &page)
    });
    assert_none(missing);
}

#[test]
fn every_alert_has_a_runbook_and_is_tested_both_ways() {
    let [rules, tests, runbook] =
        ["config/alerts.yml", "tests/alerts.yml", "docs/runbook.md"].map(read);
    assert_none(dashboards::alert_violations(&rules, &tests, &runbook));
}

#[test]
fn the_documented_metrics_are_those_of_the_table() {
    is_fresh("docs/metrics.md", &walrelay::metrics::markdown_table());
}

#[test]
fn the_documented_errors_are_those_that_are_decided() {
    is_fresh("docs/errors.md", &walrelay::sink::errors_table());
}

#[test]
fn a_build_with_one_sink_compiles_nothing_of_the_others() {
    let builds = features::builds(&root());
    let mut wrong = features::undeclared(&read("Cargo.toml"), walrelay::features::FEATURES);
    wrong.extend(builds.iter().flat_map(features::violations));
    assert_none(wrong);
    is_fresh("docs/dependencies.md", &features::table(&builds));
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
    assert!(text == fresh, "{path} is stale: UPDATE_DOCS=1 cargo test --test tidy");
}
