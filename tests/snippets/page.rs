//! The fenced blocks of docs/writing-events.md that a comment before them names, and the projects they are put into.

use std::fs;
use std::path::{Path, PathBuf};

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

/// A folder with manifests of the skeleton and programs of the page. It stays from run to run, so that
/// only what has changed is built again.
#[track_caller]
pub(super) fn project(language: &str, manifests: &[&str], programs: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("snippets").join(language);
    for file in manifests {
        write(&folder.join(file), &skeleton(language, file));
    }
    for file in programs {
        write(&folder.join(file), &block(&format!("{language}/{file}")));
    }
    folder
}

pub(super) fn skeleton(language: &str, file: &str) -> String {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snippets");
    let path = tree.join(language).join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Leaves a file alone that is so already: compilers look at its time.
fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    if fs::read_to_string(path).is_ok_and(|found| found == text) {
        return;
    }
    fs::write(path, text).unwrap();
}
