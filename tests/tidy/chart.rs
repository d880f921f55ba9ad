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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_caught() {
        let chart = "name: walrelay\nversion: 1.2.3\nappVersion: \"1.2.3\"\n";
        assert!(version_violations(chart, "1.2.3").is_empty());
        assert_eq!(version_violations(chart, "1.2.4").len(), 2);
        assert_eq!(version_violations("version: 1.2.3\n", "1.2.3").len(), 1);
    }

    #[test]
    fn a_key_that_the_chart_does_not_know_is_caught() {
        let program =
            r#"{"$defs": {"size": {}}, "properties": {"a": {}}, "additionalProperties": false}"#;
        let values = |key: &str| {
            format!(
                r#"{{"$defs": {{"size": {{}}, "config": {{"properties": {{"{key}": {{}}}}, "additionalProperties": false}}}}}}"#
            )
        };
        assert!(schema_violations(&values("a"), program).is_empty());
        assert_eq!(schema_violations(&values("b"), program).len(), 1);
        assert_eq!(schema_violations("{}", program).len(), 1);
    }
}
