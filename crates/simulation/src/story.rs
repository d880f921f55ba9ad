//! Story of a schedule, for a person.

use std::collections::BTreeSet;
use std::fmt;

use crate::checker::Violation;

/// Lines of a story that fit on a page.
const PAGE: usize = 60;

/// The subject of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// It concerns all.
    All,
    /// The same, and the last of several that follow each other is enough.
    LastOf,
    Event(u64),
    /// Only the whole story has it.
    Detail,
}

/// One thing that has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub at_us: u64,
    pub about: About,
    pub text: String,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>10.1} ms  {}", self.at_us as f64 / 1e3, self.text)
    }
}

/// The lines that a person needs to understand the violation: of the events in question and of those
/// with the same keys, and what concerns all.
pub(crate) fn page(story: &[Line], violation: &Violation, keys: &[Option<u8>]) -> Vec<String> {
    let key = |event: u64| keys.get(event as usize - 1).copied().flatten();
    let of_interest: BTreeSet<u8> = violation.events.iter().filter_map(|it| key(*it)).collect();
    let concerns = |line: &&Line| match line.about {
        About::All | About::LastOf => true,
        About::Detail => false,
        About::Event(_) if violation.events.is_empty() => true,
        About::Event(event) => {
            violation.events.contains(&event)
                || key(event).is_some_and(|key| of_interest.contains(&key))
        }
    };
    let mut lines: Vec<(&Line, u32)> = Vec::new();
    for line in story.iter().filter(concerns) {
        match lines.last_mut() {
            Some((last, merged)) if line.about == About::LastOf && last.about == About::LastOf => {
                (*last, *merged) = (line, *merged + 1);
            }
            _ => lines.push((line, 0)),
        }
    }
    let shown = |(line, merged): &(&Line, u32)| match merged {
        0 => line.to_string(),
        _ => format!("{line} (and {merged} before)"),
    };
    let hidden = lines.len().saturating_sub(PAGE);
    if hidden == 0 {
        return lines.iter().map(shown).collect();
    }
    // The beginning says little, and the end says most.
    let (head, tail) = (PAGE / 4, PAGE - PAGE / 4);
    let mut page: Vec<String> = lines[..head].iter().map(shown).collect();
    page.push(format!("{:>13}  … {hidden} lines", ""));
    page.extend(lines[lines.len() - tail..].iter().map(shown));
    page
}
