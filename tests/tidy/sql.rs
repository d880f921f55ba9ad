//! SQL text: functions, relations and types of Postgres are named with their schema.
//!
//! Every session has an empty `search_path` (`crates/postgres/src/sql.rs`), which also decides what
//! operators mean. The names are qualified all the same, because some statements are run by people
//! in sessions of theirs.

use crate::{Source, is_test_file, text};

/// A literal with one of these words is SQL.
const WORDS: &str = "SELECT UPDATE DELETE INSERT FROM WHERE JOIN CASE THEN AND OR NOT NULL AS IS BY \
                     ANY EXISTS OVER DEFAULT VALUES RETURNING AT";
/// Written like calls, and part of the grammar.
const GRAMMAR: &[&str] = &["coalesce", "greatest", "least", "nullif", "extract"];
/// Functions that a piece of a statement may call without any of [`WORDS`].
const CALLS: &str = "now count sum min max concat unnest isfinite clock_timestamp format \
                     current_setting current_database to_jsonb json_agg octet_length";
/// Type names that are keywords: no schema is searched for them.
const TYPES: &[&str] = &[
    "bigint", "bit", "boolean", "int", "integer", "numeric", "real", "smallint", "double",
    "interval",
];
/// Types that a piece of a statement may cast to without any of [`WORDS`].
const OTHER_TYPES: &[&str] =
    &["text", "json", "jsonb", "name", "oid", "pg_lsn", "regclass", "timestamptz"];

/// Names without a schema in the string literals of a source file.
pub(crate) fn unqualified(source: &Source) -> Vec<String> {
    let path = &source.path;
    if is_test_file(path) {
        return Vec::new();
    }
    let lines = text::without_tests(&source.code).lines().count();
    let literals = text::strings(&source.text).into_iter().take_while(|(line, _)| *line <= lines);
    let found = literals.flat_map(|(line, literal)| {
        let mut names = calls(&literal, is_sql(&literal));
        names.extend(relations(&literal));
        names.extend(types(&literal));
        names.into_iter().map(move |name| (line, name))
    });
    found.map(|(line, name)| format!("{path}:{line}: `{name}` without its schema")).collect()
}

/// The same in a script that users run. The types of a table's columns are for its reader.
pub(crate) fn unqualified_in_script(path: &str, script: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (line, number) in script.lines().zip(1..) {
        let sql = line.split("--").next().unwrap_or_default();
        let names = calls(sql, true).into_iter().chain(relations(sql));
        wrong.extend(names.map(|name| format!("{path}:{number}: `{name}` without its schema")));
    }
    wrong
}

/// Sessions that begin elsewhere would keep the server's `search_path`.
pub(crate) fn sessions(source: &Source) -> Vec<String> {
    let path = source.path.as_str();
    if matches!(path, "crates/postgres/src/sql.rs" | "crates/postgres/src/testing.rs") {
        return Vec::new();
    }
    let opens = |code: &str| {
        code.contains("connect_raw")
            || code.contains("tokio_postgres::connect")
            || code.contains("tokio_postgres::NoTls")
    };
    let lines = source.code.lines().zip(1..).filter(|(code, _)| opens(code));
    lines
        .map(|(_, line)| format!("{path}:{line}: sessions begin in crates/postgres/src/sql.rs"))
        .collect()
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn has(words: &str, wanted: &str) -> bool {
    words.split_whitespace().any(|word| word == wanted)
}

fn is_sql(text: &str) -> bool {
    text.split(|c: char| !is_word(c)).any(|word| has(WORDS, word))
}

/// Names that are called, without a schema.
fn calls(sql: &str, is_sql: bool) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in sql.match_indices('(') {
        let before = &sql[..at];
        let name = &before[before.trim_end_matches(is_word).len()..];
        let rest = &before[..before.len() - name.len()];
        let lower = name.starts_with(|c: char| c.is_ascii_lowercase())
            && !name.contains(|c: char| c.is_ascii_uppercase());
        // A type with its length, and what has a schema.
        let other = rest.ends_with([':', '.', '-', '$']);
        let known = is_sql || name.starts_with("pg_") || has(CALLS, name);
        if lower && known && !other && !GRAMMAR.contains(&name) {
            found.push(format!("{name}("));
        }
    }
    found
}

/// Catalogue relations that are read without their schema.
fn relations(sql: &str) -> Vec<String> {
    let words: Vec<&str> = sql.split_whitespace().collect();
    let begins = |word: &str| matches!(word, "FROM" | "JOIN" | "UPDATE" | "INTO");
    let pairs = words
        .windows(2)
        .filter(|pair| begins(pair[0]) || words.contains(&"FROM") && pair[0].ends_with(','));
    let named =
        pairs.filter(|pair| pair[1].starts_with("pg_") && !pair[1].starts_with("pg_catalog."));
    named.map(|pair| pair[1].to_owned()).collect()
}

/// Types that are cast to without their schema.
fn types(sql: &str) -> Vec<String> {
    let casts = sql.match_indices("::").map(|(at, _)| &sql[at + 2..]);
    let names = casts.map(|rest| &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())]);
    let known = is_sql(sql);
    let wrong = names.filter(|name| {
        name.starts_with(|c: char| c.is_ascii_lowercase())
            && (known || OTHER_TYPES.contains(name))
            && *name != "pg_catalog"
            && !TYPES.contains(name)
    });
    wrong.map(|name| format!("::{name}")).collect()
}
