//! docs/configuration.md, written from the declared keys; a test compares the two.

use super::sections::{keys, variable};
use crate::base::settings::key::Absent;
use crate::base::settings::visit::KnownKey;

const OPENING: &str = "\
# Configuration

<!-- Generated from the `settings!` of src/: UPDATE_DOCS=1 cargo test --lib config -->

The configuration is one TOML file: that of `--config FILE`, else of `WALRELAY_CONFIG`, else `walrelay.toml` in the working directory,
else `/etc/walrelay/walrelay.toml`. An environment variable overrides a key of the file, and `--set KEY=VALUE` overrides both.
`walrelay config show` prints the effective configuration, and where each value comes from. `walrelay config schema` prints a JSON
Schema for editors. Commented examples are in `config/`.

* An unknown key or variable is an error. All problems are reported at once, each with its place and a fix.
  A variable without `__` is an error only if it would be a key with `__` instead of `_`. Others are ignored, because Kubernetes
  sets `WALRELAY_PORT` and similar variables in every pod of a namespace that has a Service named `walrelay`.
* A **secret** is written as a value, as `{ env = \"NAME\" }`, or as `{ file = \"/run/secrets/x\" }` (one trailing newline is
  removed; a relative path begins at the working directory). It is never printed, and variables in it (`\"${NAME}\"`) are not expanded. A file is read
  again for each connection, so that a password can be rotated. Of a URL only user and password take effect; a changed host or database
  takes effect at the next start.
* A duration has a unit: `200ms`, `30s`, `1m30s`, `1h`, `7d`. A size is a number of bytes, or has a unit: `64MiB`, `64MB`.
* A template is text that may contain columns (`outbox.event.${aggregatetype}`), members of JSON columns (`${headers.tenant}`), and
  the name of the table (`${table}`): see [outbox.md](outbox.md#templates). `$${` is a literal `${`.
* In the name of a variable, `N` is the index of a `[[source.outbox]]`, from 0 on, and `NAME` is a name of your choice: one in
  capitals alone becomes one in small letters, and any other stays as it is. The dots of a
  client property become underscores: `WALRELAY_SINK__KAFKA__PROPERTIES__COMPRESSION_TYPE=lz4`. Lists are separated by commas.
* Without any `[[source.outbox]]` and without `[source.messages]`, the outbox is `public.outbox`. With the first of them it needs
  a section of its own.
";

const TABLE_HEAD: &str = "| Key | Kind | Default | Meaning | Variable |\n|---|---|---|---|---|\n";

pub fn reference() -> String {
    let mut out = OPENING.to_owned();
    let mut current = "";
    for key in keys() {
        let KnownKey { section, name, kind, .. } = key;
        if section != current {
            current = section;
            let header = match section.split_once("[]") {
                Some((array, "")) => format!("[[{array}]]"),
                Some((array, rest)) => format!("[{array}{rest}]"),
                None => format!("[{section}]"),
            };
            out.push_str(&format!("\n## `{header}`\n\n{TABLE_HEAD}"));
        }
        let absent = match (key.inherits, key.absent) {
            (Some(section), _) => format!("as in `[{section}]`"),
            (None, Absent::Default("")) => "empty".to_owned(),
            (None, Absent::Default(text)) => format!("`{text}`"),
            (None, Absent::Means(text)) => text.to_owned(),
            (None, Absent::Required(_)) => "**required**".to_owned(),
        };
        let (kind, doc, variable) = (&kind.documented, key.doc.replace('|', "\\|"), variable(key));
        out.push_str(&format!("| `{name}` | {kind} | {absent} | {doc} | `{variable}` |\n"));
    }
    out
}
