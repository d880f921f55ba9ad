//! One violation of each rule, planted in a small file: a rule that finds nothing would be of no use. That it finds nothing where
//! nothing is wrong is shown on the tree.

use crate::{
    Source, chart, dashboards, features, imports, logs, markdown, names, shape, sql, tiers,
};

#[track_caller]
fn assert_caught(rules: &[(&str, usize)]) {
    let blind: Vec<&str> =
        rules.iter().filter(|(_, caught)| *caught == 0).map(|(rule, _)| *rule).collect();
    assert!(blind.is_empty(), "not caught: {blind:?}");
}

fn source(text: &str) -> Source {
    Source::new("src/a.rs", text)
}

#[test]
fn violations_in_code_are_caught() {
    let long = format!("fn f() {{\n{}}}\n", "    let x = 1;\n".repeat(69));
    let twice = [source("pub struct Kind;"), Source::new("src/b.rs", "pub(crate) enum Kind {")];
    let metric = walrelay::metrics::TABLE[0].name;
    let unrecorded = Source::new(names::METRICS, "table! {\n    lost: IntGauge = \"n\",\n}");
    let warning = source("tracing::warn!(code = \"a.b\", \"text\");");
    assert_caught(&[
        ("a long file", shape::long_file(&source(&"//! x\n".repeat(601))).iter().count()),
        ("a long function", shape::long_functions(&source(&long)).len()),
        ("a macro", shape::leftovers(&source(concat!("fn f() { to", "do!() }"))).len()),
        ("a marker", shape::leftovers(&source(concat!("// FIX", "ME: later"))).len()),
        ("a print macro", shape::print_macros(&source("fn f() { println!() }")).len()),
        ("no document", shape::undocumented(&source("use b;\n")).iter().count()),
        ("unsafe code", shape::unsafe_code(&source("fn f() { unsafe { g() } }")).len()),
        ("a lifted ban", shape::unsafe_code(&source("#![allow(unsafe_code)]")).len()),
        ("a name that stands twice", shape::repeated_types(&twice).len()),
        ("a vague word", shape::vague_docs(&source("/// What is read.\n")).len()),
        ("a third person", shape::third_person(&source("fn takes_over() -> u8 {\n}\n")).len()),
        ("a function in SQL", sql::unqualified(&source("\"SELECT count(*)\"")).len()),
        ("a relation in SQL", sql::unqualified(&source("\"SELECT 1 FROM pg_class\"")).len()),
        ("a type in SQL", sql::unqualified(&source("\"SELECT $1::text\"")).len()),
        ("a script", sql::unqualified_in_script("a.sql", "SELECT now();").len()),
        ("a session", sql::sessions(&source("connect(tokio_postgres::NoTls)")).len()),
        ("a metric's name", names::named_elsewhere(&source(metric), &[metric]).len()),
        ("a metric that is not recorded", names::never_recorded(&[unrecorded]).len()),
        ("a code that is not explained", logs::violations([&warning], "").len()),
        (
            "a line without a code",
            logs::violations([&source("tracing::warn!(x, \"a\");")], "").len(),
        ),
        ("a module of no group", imports::strangers(&[Source::new("src/utils.rs", "")]).len()),
    ]);
}

#[test]
fn violations_in_other_files_are_caught() {
    let specs = walrelay::metrics::TABLE;
    let gone = |_: &str| false;
    let one = [source("impl Flights { fn settle(&self) {} }")];
    let page = "# A\n\n| a |\n|---|\n| 1 |\n\n| 2 |\n";
    let golden = "# Kafka\nevent e-1\n    id: e-1\nevent e-2\n";
    let compose = ["image: a:latest", "- ./gone:/x:ro", "read_only: true"];
    let compose = compose.map(|line| dashboards::compose_violations(line, gone).len());
    assert_caught(&[
        ("an unknown metric", names::unknown_metrics("a", "outbox_conected == 0", specs).len()),
        ("a file that is gone", names::missing_files("A.md", "`gone.rs`", gone).len()),
        ("a function that is gone", names::missing_functions("A", "`Flight::a`", one.iter()).len()),
        ("a table in two", markdown::violations("a.md", page).len()),
        ("a heading in a paragraph", markdown::violations("a.md", "text\n## B\n").len()),
        ("a header that is not shown", markdown::undocumented("raw", golden, "\n## raw\n").len()),
        ("a board without a title", dashboards::violations("a.json", "{}").len()),
        ("a metric that is not shown", dashboards::metrics_not_shown(&[], specs).len()),
        ("a metric of consumers", dashboards::consumer_metric_violations("consumer_a", &[]).len()),
        ("an alert without tests", dashboards::alert_violations("- alert: A\n", "", "").len()),
        ("a section without an alert", dashboards::alert_violations("", "", "\n## A\n").len()),
        ("an image that is not pinned", compose[0]),
        ("a mount of nothing", compose[1]),
        ("no place for the state file", compose[2]),
        ("another version", chart::version_violations("version: 1.2.3\n", "1.2.4").len()),
        ("a key that the chart lacks", chart::schema_violations("{}", "{}").len()),
        ("an unknown feature", features::undeclared("[features]\na = []\n", &[]).len()),
    ]);
}

#[test]
fn tests_that_nobody_runs_are_caught() {
    let parts = || tiers::parts("declare -A PARTS=(\n    [kit]='tests/kit'\n)\n");
    let ignored = |line: &str| tiers::wrongly_ignored(&source(line), &parts()).len();
    let program = |text: &str| [Source::new("a/src/main.rs", text)];
    let off = |manifest: &str, text: &str| {
        tiers::switched_off("a/Cargo.toml", manifest, program(text).iter()).len()
    };
    let bin = "[[bin]]\npath = \"src/main.rs\"\ntest = false\n";
    assert_caught(&[
        ("no reason", ignored("#[ignore]")),
        (
            "a reason of another module",
            ignored("#[ignore = \"scripts/test, when it has changed\"]"),
        ),
        ("a condition", ignored("#[cfg_attr(slow, ignore = \"soak\")]")),
        ("a part without tests", tiers::idle_parts(&parts(), [].iter(), |_| true).len()),
        ("tests of a program", off(bin, "#[test]\nfn f() {}")),
        ("examples of a library", off("[lib]\ndoctest = false\n", "/// ```\n/// f();\n/// ```")),
    ]);
}
