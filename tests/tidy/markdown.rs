//! Markdown that is shown as it was meant: a blank line before a table is needed, and one in it ends it.

/// Tables that a blank line has cut in two, and headings without a blank line before them.
pub(crate) fn violations(path: &str, text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let (mut wrong, mut is_fenced) = (Vec::new(), false);
    for (at, line) in lines.iter().enumerate() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        }
        if is_fenced {
            continue;
        }
        let before = at.checked_sub(1).map_or("", |at| lines[at]);
        let after = lines.get(at + 1).copied().unwrap_or_default();
        let is_rule =
            |line: &str| line.starts_with('|') && line.chars().all(|c| " |:-".contains(c));
        let place = format!("{path}:{}", at + 1);
        if line.starts_with('|') && !before.starts_with('|') && !is_rule(after) {
            wrong.push(format!("{place}: rows of a table without its head"));
        }
        let is_heading = line.starts_with('#') && line.trim_start_matches('#').starts_with(' ');
        if is_heading && !before.trim().is_empty() && !before.starts_with("<!--") {
            wrong.push(format!("{place}: no blank line before the heading"));
        }
    }
    wrong
}

/// Headers and values of the first event of a format's golden file that the format's section of the
/// page does not show. AMQP has the content type as a property, with another name.
pub(crate) fn undocumented(format: &str, golden: &str, page: &str) -> Vec<String> {
    let title = format!("\n## {format}\n");
    let section = page.split_once(&title).map_or("", |(_, rest)| rest);
    let section = section.split("\n## ").next().unwrap_or_default();
    let first = golden.split("# ").filter_map(|binding| binding.split("event ").nth(1));
    let lines = first.flat_map(|event| event.lines().skip(1)).map(str::trim);
    let lines = lines.map(|line| line.trim_start_matches("= ").replace("\\\"", "\""));
    let shown = |line: &str| {
        let as_property = line.replacen("content-type", "content_type", 1);
        section.contains(line) || section.contains(&as_property)
    };
    let missing = lines.filter(|line| !shown(line));
    missing.map(|line| format!("docs/formats.md: {format} does not show `{line}`")).collect()
}
