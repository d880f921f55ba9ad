//! Rules and configuration as promtool sees them, and the commands of the runbook.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use walrelay_harness::promtool;

use super::{read, root};

#[test]
#[ignore = "scripts/test, when it has changed"]
fn the_rules_and_the_configuration_are_valid() {
    for words in
        [["check", "rules", "config/alerts.yml"], ["check", "config", "config/prometheus.yml"]]
    {
        promtool(root(), &words).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// That each of them has both cases is a rule of `tests/tidy/dashboards.rs`.
#[test]
#[ignore = "scripts/test, when it has changed"]
fn every_alert_fires_when_it_must_and_is_silent_when_all_is_well() {
    promtool(root(), &["test", "rules", "tests/alerts.yml"])
        .unwrap_or_else(|error| panic!("{error}"));
}

/// `walrelay …` in code, up to a comment or the end of the code.
fn commands(document: &str) -> BTreeSet<String> {
    let code = document.split('`').flat_map(str::lines);
    let code = code.map(|line| line.split(" #").next().unwrap());
    let commands = code.flat_map(|line| line.split(" && ")).map(str::trim);
    commands.filter_map(|it| it.strip_prefix("walrelay ").map(str::to_owned)).collect()
}

#[test]
fn the_runbook_names_commands_that_exist() {
    let commands = commands(&read("docs/runbook.md"));
    assert!(commands.len() > 10, "the commands were not found: {commands:?}");
    for command in commands {
        // Help comes last: what stands before it is parsed, and nothing is done.
        let mut program = Command::new(Path::new(env!("CARGO_BIN_EXE_walrelay")));
        let output = program.args(command.split(' ')).arg("--help").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "walrelay {command}: {said}");
    }
}
