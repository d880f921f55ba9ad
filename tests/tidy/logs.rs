//! Lines of the log that tell of a fault have a code, and docs/operations.md explains each code.

use crate::Source;

const MACROS: [&str; 2] = ["tracing::warn!(", "tracing::error!("];
const SECTION: &str = "## Codes of the log\n";

/// A line of the log above `info`, by its first field.
enum Line {
    Constant(String),
    /// The code of a fault or of a finding.
    Computed,
    Missing,
}

fn line(after: &str) -> Line {
    let mut fields = after.trim_start();
    if let Some(target) = fields.strip_prefix("target:") {
        fields = target.split_once(',').map_or("", |(_, rest)| rest.trim_start());
    }
    let Some(code) = fields.strip_prefix("code") else { return Line::Missing };
    match code.trim_start().strip_prefix("= \"").and_then(|text| text.split_once('"')) {
        Some((code, _)) => Line::Constant(code.to_owned()),
        None => Line::Computed,
    }
}

fn lines(source: &Source) -> impl Iterator<Item = (usize, Line)> {
    let text = &source.text;
    MACROS.into_iter().flat_map(|name| text.match_indices(name)).map(|(at, name)| {
        let number = text[..at].lines().count() + 1;
        (number, line(&text[at + name.len()..]))
    })
}

/// Lines without a code, codes that are not explained, and explained ones that nothing writes.
pub(crate) fn violations<'a>(
    sources: impl IntoIterator<Item = &'a Source>,
    document: &str,
) -> Vec<String> {
    let sources: Vec<&Source> = sources.into_iter().collect();
    let (_, section) = document.split_once(SECTION).unwrap_or_default();
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|row| row.strip_prefix("| `")?.split_once('`'));
    let mut explained: Vec<(&str, bool)> = rows.map(|(code, _)| (code, false)).collect();
    let mut wrong = Vec::new();
    for source in &sources {
        for (number, line) in lines(source) {
            let place = format!("{}:{number}", source.path);
            match line {
                Line::Missing => wrong.push(format!("{place}: its first field is no code")),
                Line::Computed => {}
                Line::Constant(code) => {
                    match explained.iter_mut().find(|(known, _)| *known == code) {
                        Some((_, is_written)) => *is_written = true,
                        None => wrong
                            .push(format!("{place}: docs/operations.md does not explain `{code}`")),
                    }
                }
            }
        }
    }
    // A line that is made without a macro names its code as well.
    let is_named = |code: &str| sources.iter().any(|it| it.text.contains(&format!("\"{code}\"")));
    let stale = explained.iter().filter(|(code, is_written)| !is_written && !is_named(code));
    wrong.extend(stale.map(|(code, _)| format!("docs/operations.md: nothing logs `{code}`")));
    wrong
}
