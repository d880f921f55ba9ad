//! The fenced blocks of docs/writing-events.md that a comment before them names, and the projects they are put into.

use std::path::PathBuf;

use super::tools::{Set, write};

const PAGE: &str = include_str!("../../docs/writing-events.md");
const MARK: &str = "<!-- snippet: ";

/// Name and text of each block, in the order of the page.
fn blocks() -> impl Iterator<Item = (&'static str, &'static str)> {
    PAGE.split(MARK).skip(1).map(|part| {
        let (name, rest) = part.split_once(" -->\n```").expect("a fence follows the mark");
        let (_, code) = rest.split_once('\n').unwrap();
        let (code, _) = code.split_once("\n```\n").expect("the fence is closed");
        (name, code)
    })
}

pub(super) fn names() -> Vec<String> {
    blocks().map(|(name, _)| name.to_owned()).collect()
}

#[track_caller]
pub(super) fn block(name: &str) -> String {
    let found = blocks().find(|(found, _)| *found == name);
    let (_, code) = found.unwrap_or_else(|| panic!("docs/writing-events.md has no block {name}"));
    format!("{code}\n")
}

/// A folder with manifests of the skeleton and programs of the page.
#[track_caller]
pub(super) fn project(language: &str, manifests: &[&str], programs: &[&str]) -> PathBuf {
    let folder = Set::Snippets.place(language);
    for file in manifests {
        write(&folder.join(file), &Set::Snippets.file(language, file));
    }
    for file in programs {
        write(&folder.join(file), &block(&format!("{language}/{file}")));
    }
    folder
}
