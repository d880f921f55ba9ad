//! Length, leftovers, documentation, `unsafe`.

use std::collections::BTreeMap;

use crate::{Source, is_test_file, text};

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;

/// Spelled in two halves, or this file would be the first to break its rule.
const MACROS: &[&str] = &[concat!("to", "do!"), concat!("db", "g!"), concat!("unimpl", "emented!")];
const MARKERS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

pub(crate) fn long_file(source: &Source) -> Option<String> {
    let (path, lines) = (&source.path, source.text.lines().count());
    (lines > FILE_LINES_MAX).then(|| format!("{path}: {lines} lines, {FILE_LINES_MAX} at most"))
}

/// Relies on rustfmt: a function's closing brace stands in the column of its first word.
pub(crate) fn long_functions(source: &Source) -> Vec<String> {
    let lines: Vec<&str> = source.code.lines().collect();
    let mut wrong = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let indent = line.len() - line.trim_start().len();
        let closes = |line: &&str| line.len() - line.trim_start().len() == indent && ends(line);
        let Some(more) = lines[start..].iter().position(closes) else { continue };
        if more + 1 > FUNCTION_LINES_MAX {
            let (path, line, length) = (&source.path, start + 1, more + 1);
            wrong.push(format!(
                "{path}:{line}: fn {name}: {length} lines, {FUNCTION_LINES_MAX} at most"
            ));
        }
    }
    wrong
}

/// A declaration without a body ends with `;`, everything else with its brace.
fn ends(line: &str) -> bool {
    let line = line.trim();
    line.starts_with('}') || line.ends_with(';') || (line.contains("fn ") && line.ends_with('}'))
}

fn function_name(line: &str) -> Option<&str> {
    let (before, after) = line.trim_start().split_once("fn ")?;
    let words = ["pub", "const", "async", "unsafe", "extern", "default"];
    let qualifier = |word: &str| words.contains(&word) || word.starts_with("pub(");
    let name = after.split(|c: char| !(c.is_alphanumeric() || c == '_')).next()?;
    (before.split_whitespace().all(qualifier) && !name.is_empty()).then_some(name)
}

pub(crate) fn leftovers(source: &Source) -> Vec<String> {
    let mut wrong = Vec::new();
    for ((text, code), line) in source.text.lines().zip(source.code.lines()).zip(1..) {
        let macros = MACROS.iter().filter(|word| code.contains(**word));
        let markers = MARKERS.iter().filter(|word| has_word(text, word));
        wrong.extend(macros.chain(markers).map(|word| format!("{}:{line}: {word}", source.path)));
    }
    wrong
}

pub(crate) fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|found| found == word)
}

/// A print macro fails where its reader has left, and prints what others wrote as they wrote it.
pub(crate) fn print_macros(source: &Source) -> Vec<String> {
    let lines = text::without_tests(&source.code).lines().zip(1..);
    let found = lines.filter(|(code, _)| ["print!", "println!"].iter().any(|it| code.contains(it)));
    found
        .map(|(_, line)| format!("{}:{line}: say() or tell() of src/cli/mod.rs", source.path))
        .collect()
}

pub(crate) fn undocumented(source: &Source) -> Option<String> {
    // Tests in a sibling file belong to the module that declares them.
    let path = &source.path;
    let tests = path.ends_with("/tests.rs") || path.ends_with("_tests.rs");
    (!tests && !source.text.starts_with("//! "))
        .then(|| format!("{path}: must begin with `//!`: why it exists, its invariants"))
}

/// `unsafe` stands in files whose names say so: `os_ffi.rs`.
pub(crate) fn unsafe_code(source: &Source) -> Vec<String> {
    let reviewed = ["ffi.rs", "ffi_tests.rs"].iter().any(|end| source.path.ends_with(end));
    if !source.path.starts_with("tests/") && reviewed {
        return Vec::new();
    }
    let lines = source.code.lines().zip(1..);
    let found = lines.filter(|(code, _)| has_word(code, "unsafe") || lifts_ban(code));
    found.map(|(_, line)| format!("{}:{line}: unsafe outside *ffi.rs", source.path)).collect()
}

fn lifts_ban(code: &str) -> bool {
    ["allow(", "expect(", "warn("].iter().any(|word| code.contains(&format!("{word}unsafe_code")))
}

/// Names of public types that stand more than once.
pub(crate) fn repeated_types(sources: &[Source]) -> Vec<String> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources.iter().filter(|source| !is_test_file(&source.path)) {
        for (code, line) in text::without_tests(&source.code).lines().zip(1..) {
            if let Some(name) = public_type(code) {
                found.entry(name.to_owned()).or_default().push(format!("{}:{line}", source.path));
            }
        }
    }
    let repeated = found.into_iter().filter(|(_, places)| places.len() > 1);
    repeated
        .map(|(name, places)| format!("`{name}` stands more than once: {}", places.join(", ")))
        .collect()
}

fn public_type(code: &str) -> Option<&str> {
    let rest = code.trim_start().strip_prefix("pub")?;
    let rest = match rest.strip_prefix('(') {
        Some(limited) => limited.split_once(')')?.1,
        None => rest,
    };
    let mut words = rest.split_whitespace().skip_while(|word| *word == "unsafe");
    matches!(words.next()?, "struct" | "enum" | "trait" | "type" | "union").then_some(())?;
    words.next()?.split(|c: char| !(c.is_alphanumeric() || c == '_')).next()
}

/// Words with which no doc comment begins: each stands in the place of a noun.
const VAGUE_WORDS: &[&str] = &["What", "Those", "Whoever", "Nothing", "Of"];

/// Doc comments whose first word does not name what they document.
pub(crate) fn vague_docs(source: &Source) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut before = "";
    for (line, number) in source.text.lines().zip(1..) {
        let line = line.trim_start();
        let text = line.strip_prefix("/// ").or_else(|| line.strip_prefix("//! "));
        let word = text.and_then(|text| text.split(|c: char| !c.is_alphanumeric()).next());
        let begins = !before.starts_with("/// ") && !before.starts_with("//! ");
        if let Some(word) = word.filter(|word| begins && VAGUE_WORDS.contains(word)) {
            wrong.push(format!("{}:{number}: a doc comment begins with `{word}`", source.path));
        }
        before = line;
    }
    wrong
}

/// Verbs with which the name of a function begins only if it answers yes or no, as in `contains`. No plural
/// of a noun is among them.
const THIRD_PERSON: &[&str] = &[
    "accepts",
    "admits",
    "adopts",
    "allows",
    "arrives",
    "asks",
    "begins",
    "belongs",
    "closes",
    "comes",
    "decodes",
    "dies",
    "differs",
    "diverts",
    "finds",
    "follows",
    "forgets",
    "gets",
    "gives",
    "goes",
    "happens",
    "holds",
    "keeps",
    "knows",
    "leaves",
    "lets",
    "lives",
    "loses",
    "makes",
    "meets",
    "needs",
    "opens",
    "owes",
    "passes",
    "publishes",
    "puts",
    "receives",
    "recognises",
    "refuses",
    "remembers",
    "says",
    "sees",
    "sends",
    "settles",
    "spends",
    "stands",
    "stays",
    "takes",
    "tells",
    "violates",
    "waits",
    "wants",
];

/// Functions that do something, and whose name is no imperative.
pub(crate) fn third_person(source: &Source) -> Vec<String> {
    let code = text::without_tests(&source.code);
    let mut wrong = Vec::new();
    for ((at, line), number) in code.split_inclusive('\n').scan(0, with_offset).zip(1..) {
        let Some(name) = function_name(line) else { continue };
        let verb = name.split('_').next().unwrap_or(name);
        let head = code[at..].split(['{', ';']).next().unwrap_or_default();
        if THIRD_PERSON.contains(&verb) && !head.trim_end().ends_with("-> bool") {
            wrong.push(format!("{}:{number}: fn {name}: an imperative or a noun", source.path));
        }
    }
    wrong
}

/// A line, with where it begins.
fn with_offset<'a>(next: &mut usize, line: &'a str) -> Option<(usize, &'a str)> {
    let at = *next;
    *next += line.len();
    Some((at, line))
}
