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

#[cfg(test)]
mod tests {
    use super::violations;

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
