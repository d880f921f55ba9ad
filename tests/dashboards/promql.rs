//! As much of PromQL as it takes to find the metrics in an expression.

/// Every selector of an expression: a metric's name, with its matchers if there are any.
pub(super) fn selectors(expression: &str) -> Vec<String> {
    let (mut found, mut rest) = (Vec::new(), expression);
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphabetic() || "\"'{[".contains(c)) {
        rest = &rest[start..];
        let first = rest.chars().next().unwrap();
        let close = match first {
            '{' => Some('}'),
            '[' => Some(']'),
            '"' | '\'' => Some(first),
            _ => None,
        };
        if let Some(close) = close {
            let end = rest[1..].find(close).unwrap_or_else(|| panic!("{expression}"));
            rest = &rest[end + 2..];
            continue;
        }
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after;
        let prefixes = ["consumer_", "outbox_", "process_"];
        let is_metric = word == "up" || prefixes.iter().any(|prefix| word.starts_with(prefix));
        if is_metric {
            let matchers = after.starts_with('{').then(|| after.find('}').unwrap() + 1);
            found.push(format!("{word}{}", &after[..matchers.unwrap_or(0)]));
        }
    }
    found
}

#[test]
fn selectors_are_found_wherever_they_stand() {
    let found = |expression: &str| selectors(expression).join(" ");
    assert_eq!(found("absent(up{job=\"a\"} == 1)"), "up{job=\"a\"}");
    assert_eq!(
        found("outbox_a < 1e9 or sum without (outcome) (increase(outbox_b{x=\"up\"}[2m])) == 0"),
        "outbox_a outbox_b{x=\"up\"}"
    );
    assert_eq!(found("label_replace(outbox_a, \"outbox_b\", \"up\", \"\", \"\")"), "outbox_a");
}
