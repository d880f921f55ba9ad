//! `config show`: the effective configuration as TOML, each value with its origin.
//!
//! Secrets are hidden by kind. A client property is shown only when its name is known to hold no
//! secret: an unknown property may.

use super::effective::{Effective, Setting};
use super::kind::{Kind, Value};
use super::path::{Path, bare_or_quoted};
use super::tree::{self, Node};
use super::units;

const HIDDEN: &str = "***";

/// Beginnings of librdkafka property names whose values are fit to be seen.
const OPEN_PROPERTIES: &[&str] = &[
    "acks",
    "batch.",
    "broker.",
    "client.id",
    "client.rack",
    "compression.",
    "connections.",
    "debug",
    "delivery.",
    "enable.",
    "linger.",
    "log.",
    "max.",
    "message.",
    "metadata.",
    "partitioner",
    "queue.",
    "reconnect.",
    "request.",
    "retries",
    "retry.",
    "sasl.mechanism",
    "security.protocol",
    "socket.",
    "ssl.ca.location",
    "ssl.endpoint.",
    "statistics.",
    "sticky.",
    "topic.",
];

/// The effective configuration as text.
pub(crate) fn show(effective: &Effective) -> String {
    let mut out = String::new();
    section(effective, tree::root(), &Path::default(), false, &mut out);
    out
}

fn section(effective: &Effective, node: &Node, path: &Path, array: bool, out: &mut String) {
    let Node::Table(fields) = node else { return };
    let mut lines = String::new();
    for (name, child) in fields {
        if let Node::Leaf(_) = child {
            let path = path.child(name);
            match (effective.settings.get(&path), effective.unset.get(&path)) {
                (Some(setting), _) => lines.push_str(&line(name, setting)),
                (None, Some(meaning)) if *meaning != "as in `[route]`" => {
                    lines.push_str(&format!("# {name} is not set: {meaning}\n"));
                }
                (None, _) => {}
            }
        }
    }
    push_section(path, array, &lines, out);
    for (name, child) in fields {
        let path = path.child(name);
        match child {
            Node::Leaf(_) => {}
            Node::Table(_) => section(effective, child, &path, false, out),
            Node::Array(element) => {
                for index in 0..effective.outboxes {
                    section(effective, element, &path.index(index), true, out);
                }
            }
            Node::Map(_) => {
                let entries = super::build::Values(effective).below(&path);
                let lines: String = entries.map(|(name, setting)| line(name, setting)).collect();
                push_section(&path, false, &lines, out);
            }
        }
    }
}

fn push_section(path: &Path, array: bool, lines: &str, out: &mut String) {
    if lines.is_empty() {
        return;
    }
    if !out.is_empty() {
        out.push('\n');
    }
    let header = path.header();
    out.push_str(&if array { format!("[[{header}]]\n") } else { format!("[{header}]\n") });
    out.push_str(lines);
}

fn line(name: &str, setting: &Setting) -> String {
    format!("{} = {}  # {}\n", bare_or_quoted(name), shown(name, setting), setting.origin)
}

fn shown(name: &str, setting: &Setting) -> String {
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    match &setting.value {
        Value::Text(text) => quoted(text),
        Value::Secret(secret) => match setting.kind {
            Kind::Url => quoted(&units::mask_url(secret.expose())),
            _ if !setting.referenced && is_open(name) => quoted(secret.expose()),
            _ => quoted(HIDDEN),
        },
        Value::Bool(flag) => flag.to_string(),
        Value::Integer(number) => number.to_string(),
        Value::Bytes(bytes) => quoted(&units::show_bytes(*bytes)),
        Value::Duration(duration) => quoted(&units::show_duration(*duration)),
        Value::Strings(strings) => {
            format!("[{}]", strings.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(", "))
        }
    }
}

fn is_open(property: &str) -> bool {
    OPEN_PROPERTIES.iter().any(|beginning| property.starts_with(beginning))
}
