//! Checks of the parts of the program that the Helm chart repeats: keys of the configuration,
//! alerts, the version. What the chart renders is tested by `packaging/chart/test`.

use serde_json::Value;

/// Versions of Chart.yaml that are not that of the program.
pub(crate) fn version_violations(chart: &str, version: &str) -> Vec<String> {
    let lines = ["version", "appVersion"]
        .map(|key| (key, chart.lines().find(|line| line.starts_with(&format!("{key}:")))));
    let differ = lines.into_iter().filter(|(_, line)| {
        let value = line
            .and_then(|line| line.split_once(':'))
            .map(|(_, value)| value.trim().trim_matches('"'));
        value != Some(version)
    });
    differ
        .map(|(key, _)| format!("packaging/chart/walrelay/Chart.yaml: {key} is not {version}"))
        .collect()
}

/// The schema of the values, if its keys below `config` are not those of the program.
pub(crate) fn schema_violations(values: &str, program: &str) -> Vec<String> {
    let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let (values, mut program) = (parse(values), parse(program));
    let kinds = program["$defs"].take();
    let same_kinds = kinds
        .as_object()
        .is_some_and(|kinds| kinds.iter().all(|(name, kind)| values["$defs"][name] == *kind));
    let of_values = &values["$defs"]["config"];
    let is_same = same_kinds
        && of_values.is_object()
        && ["properties", "additionalProperties"].iter().all(|key| of_values[key] == program[key]);
    let stale =
        "packaging/chart/walrelay/values.schema.json is stale: UPDATE=1 packaging/chart/build";
    (!is_same).then(|| stale.to_owned()).into_iter().collect()
}
