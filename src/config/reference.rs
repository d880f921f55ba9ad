//! docs/configuration.md, written from the key table; a test compares the two.

use super::keys::{self, Absent, Key};
use super::kind::{Kind, describe};
use super::units;

const OPENING: &str = "\
# Configuration

<!-- Generated from src/config/keys.rs: UPDATE_DOCS=1 cargo test --lib config -->

One TOML file: `--config FILE`, else `WALRELAY_CONFIG`, else `walrelay.toml` in the working folder. Every key can be
overridden by an environment variable, and that by `--set KEY=VALUE`. `walrelay config show` prints what holds and where
each value comes from; `walrelay config schema` prints a JSON Schema for editors. Commented examples are in `config/`.

* An unknown key or variable is an error. All problems are reported at once, each with its place and how to mend it.
* A **secret** is a value, `{ env = \"NAME\" }` or `{ file = \"/run/secrets/x\" }` (one trailing newline is dropped). It is
  never printed.
* A duration has a unit: `200ms`, `30s`, `1m30s`, `1h`. A size is plain bytes or has one: `64MiB`, `64MB`.
* A template is text with columns in it, `outbox.event.${aggregatetype}`; `$${` is a literal `${`.
* In a variable, `N` is the index of a table from 0, and `NAME` a name of your choice. A client property is spelt with
  underscores for dots: `WALRELAY_SINK__KAFKA__PROPERTIES__COMPRESSION_TYPE=lz4`. Lists are separated by commas.
* Without any `[[source.outbox]]` and without `[source.messages]`, the outbox is `public.outbox`.
";

/// The whole document.
pub(crate) fn document() -> String {
    let mut out = OPENING.to_owned();
    let mut current = "";
    for key in keys::all() {
        let section = section_of(key);
        if section != current {
            current = section;
            out.push_str(&heading(section));
        }
        let name = key.path.strip_prefix(section).unwrap_or(&key.path).trim_start_matches('.');
        out.push_str(&format!(
            "| `{name}` | {} | {} | {} | `{}` |\n",
            kind_text(key.kind),
            absent_text(key.absent),
            key.doc.replace('|', "\\|"),
            key.variable()
        ));
    }
    out
}

fn section_of(key: &Key) -> &str {
    let path = key.path.strip_suffix(".*").unwrap_or(&key.path);
    path.rsplit_once('.').map_or("", |(section, _)| section)
}

fn heading(section: &str) -> String {
    let written = match section.split_once("[]") {
        Some((array, "")) => format!("[[{array}]]"),
        Some((array, rest)) => format!("[{array}{rest}]"),
        None => format!("[{section}]"),
    };
    format!(
        "\n## `{written}`\n\n| Key | Kind | Default | Meaning | Variable |\n|---|---|---|---|---|\n"
    )
}

fn kind_text(kind: Kind) -> String {
    match kind {
        Kind::Text(_) => "string".to_owned(),
        Kind::Template => "template".to_owned(),
        Kind::Url => "URL, secret".to_owned(),
        Kind::Secret => "secret".to_owned(),
        Kind::Integer { min, max } => format!("integer, {min} to {max}"),
        Kind::Bytes { min, max } => {
            format!("size, {} to {}", units::show_bytes(min), units::show_bytes(max))
        }
        Kind::Duration { min_ms, max_ms } => {
            let show = |ms| units::show_duration(std::time::Duration::from_millis(ms));
            format!("duration, {} to {}", show(min_ms), show(max_ms))
        }
        Kind::Choice(choices) => {
            choices.iter().map(|choice| format!("`{choice}`")).collect::<Vec<_>>().join(", ")
        }
        Kind::Strings(_) => "list of strings".to_owned(),
        Kind::Bool | Kind::Address => describe(kind).to_owned(),
    }
}

fn absent_text(absent: Absent) -> String {
    match absent {
        Absent::Value("") => "empty".to_owned(),
        Absent::Value(text) => format!("`{text}`"),
        Absent::Means(text) => text.to_owned(),
        Absent::Refused => "**required**".to_owned(),
    }
}
