//! docs/configuration.md, written from the declared keys; a test compares the two.

use super::sections::{keys, variable};
use crate::base::settings::visit::KnownKey;

const OPENING: &str = "\
# Configuration

<!-- Generated from the `settings!` of src/: UPDATE_DOCS=1 cargo test --lib config -->

One TOML file: `--config FILE`, else `WALRELAY_CONFIG`, else `walrelay.toml` in the working folder, else
`/etc/walrelay/walrelay.toml`. Every key can be
overridden by an environment variable, and that by `--set KEY=VALUE`. `walrelay config show` prints what holds and where
each value comes from; `walrelay config schema` prints a JSON Schema for editors. Commented examples are in `config/`.

* An unknown key or variable is an error. All problems are reported at once, each with its place and how to mend it.
  A variable without `__` is one only if it would be a key with `__` for `_`: Kubernetes sets `WALRELAY_PORT` and the like in
  every pod beside a Service named `walrelay`, and those are ignored.
* A **secret** is a value, `{ env = \"NAME\" }` or `{ file = \"/run/secrets/x\" }` (one trailing newline is dropped). It is
  never printed. A file is read again for each connection, so that a password can be rotated.
* A duration has a unit: `200ms`, `30s`, `1m30s`, `1h`, `7d`. A size is plain bytes or has one: `64MiB`, `64MB`.
* A template is text with columns in it, `outbox.event.${aggregatetype}`, members of JSON columns, `${headers.tenant}`, and
  the name of the table, `${table}` ([outbox.md](outbox.md#templates)); `$${` is a literal `${`.
* In a variable, `N` is the index of a table from 0, and `NAME` a name of your choice. A client property is spelt with
  underscores for dots: `WALRELAY_SINK__KAFKA__PROPERTIES__COMPRESSION_TYPE=lz4`. Lists are separated by commas.
* Without any `[[source.outbox]]` and without `[source.messages]`, the outbox is `public.outbox`.
";

const TABLE_HEAD: &str = "| Key | Kind | Default | Meaning | Variable |\n|---|---|---|---|---|\n";

pub fn reference() -> String {
    let mut out = OPENING.to_owned();
    let mut current = "";
    for key in keys() {
        let KnownKey { section, name, kind, absent, .. } = key;
        if section != current {
            current = section;
            let header = match section.split_once("[]") {
                Some((array, "")) => format!("[[{array}]]"),
                Some((array, rest)) => format!("[{array}{rest}]"),
                None => format!("[{section}]"),
            };
            out.push_str(&format!("\n## `{header}`\n\n{TABLE_HEAD}"));
        }
        let (kind, doc, variable) = (&kind.documented, key.doc.replace('|', "\\|"), variable(key));
        out.push_str(&format!("| `{name}` | {kind} | {absent} | {doc} | `{variable}` |\n"));
    }
    out
}
