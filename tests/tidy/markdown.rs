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

#[cfg(test)]
mod tests {
    use super::{undocumented, violations};

    #[test]
    fn a_header_that_the_page_does_not_show_is_caught() {
        let golden = "# Kafka\nevent e-1\n    id: e-1\n    = {\\\"a\\\": 1}\nevent e-2\n    x: y\n";
        let page = "\n## raw\n id: e-1\n{\"a\": 1}\n## other\n";
        assert_eq!(undocumented("raw", golden, page), Vec::<String>::new());
        assert_eq!(undocumented("raw", golden, &page.replace("e-1", "e-3")).len(), 1);
        assert_eq!(undocumented("other", golden, page).len(), 2, "of another section");
    }

    #[test]
    fn a_table_in_two_and_a_heading_in_a_paragraph_are_caught() {
        let table = "# A\n\n| a |\n|---|\n| 1 |\n| 2 |\n\n## B\n";
        let found = |text: &str| violations("a.md", text);
        assert_eq!(found(table), Vec::<String>::new());
        assert_eq!(found(&table.replace("| 2", "\n| 2")).len(), 1);
        assert_eq!(found(&table.replace("\n\n##", "\n##")).len(), 1);
        assert_eq!(found("```\n# a comment\n| x\n```\n"), Vec::<String>::new());
    }
}
