//! Metric names: in code, in rules and dashboards, in the documentation.

use walrelay::metrics::{Kind, Spec};

use crate::Source;

const BEGIN: &str = "<!-- table: begin -->\n";
const END: &str = "<!-- table: end -->\n";

/// Metric names in a source file other than the table's own. Comments count: a name that only a
/// comment knows goes stale unseen.
pub(crate) fn named_elsewhere(source: &Source, names: &[&str]) -> Vec<String> {
    let path = &source.path;
    let tests = path.ends_with("/tests.rs") || path.ends_with("_tests.rs");
    if path == "src/metrics.rs" || path.starts_with("src/metrics/") || tests {
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
pub(crate) fn unknown_metrics(path: &str, text: &str, specs: &[Spec]) -> Vec<String> {
    let exists = |word: &str| {
        specs.iter().any(|spec| match spec.kind {
            Kind::Histogram => ["_bucket", "_sum", "_count"]
                .iter()
                .any(|part| word.strip_suffix(part) == Some(spec.name)),
            Kind::Counter | Kind::Gauge => word == spec.name,
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

/// The document with what stands between its marks replaced by `table`.
pub(crate) fn with_table(document: &str, table: &str) -> String {
    let parts = document
        .split_once(BEGIN)
        .and_then(|(before, rest)| rest.split_once(END).map(|(_, after)| (before, after)));
    let (before, after) = parts.expect("a document keeps both marks of its table");
    format!("{before}{BEGIN}{table}{END}{after}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use walrelay::metrics::TABLE;

    #[test]
    fn a_metric_named_outside_the_table_is_caught() {
        let names = ["outbox_connected"];
        let planted = Source::new("src/relay.rs", "let name = \"outbox_connected\";");
        assert_eq!(named_elsewhere(&planted, &names).len(), 1);
        let longer = Source::new("src/relay.rs", "let outbox_connected_since = 1;");
        assert!(named_elsewhere(&longer, &names).is_empty());
        let table = Source::new("src/metrics.rs", "\"outbox_connected\"");
        assert!(named_elsewhere(&table, &names).is_empty());
    }

    #[test]
    fn a_rule_on_a_metric_that_does_not_exist_is_caught() {
        let check = |text: &str| unknown_metrics("config/alerts.yml", text, TABLE);
        assert_eq!(
            check("expr: outbox_conected == 0"),
            ["config/alerts.yml:1: no metric `outbox_conected`"]
        );
        assert!(check("expr: outbox_connected == 0").is_empty());
        assert!(check("rate(outbox_publish_latency_seconds_bucket[5m])").is_empty());
        assert_eq!(check("rate(outbox_publish_latency_seconds[5m])").len(), 1);
    }

    #[test]
    fn a_stale_table_is_replaced_and_the_rest_kept() {
        let stale = format!("a\n{BEGIN}old\n{END}b\n");
        assert_eq!(with_table(&stale, "new\n"), format!("a\n{BEGIN}new\n{END}b\n"));
    }
}
