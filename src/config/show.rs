//! `config show`: the effective configuration as TOML, each value with its origin. Secrets are hidden,
//! except entries of a map of secrets whose names its declaration knows to be harmless.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::effective::{Effective, Setting};
use super::path::{Path, bare_or_quoted};
use super::sections::root;
use crate::base::settings::kind::{SettingValue, ValueKind};
use crate::base::settings::{SettingField, Shape, units};

const HIDDEN: &str = "***";

pub fn show(effective: &Effective) -> String {
    let mut out = String::new();
    section(effective, root(), &Path::default(), false, &mut out);
    out
}

/// The same as JSON: the value and the origin of each key.
pub fn show_json(effective: &Effective) -> Value {
    let key = |(path, setting): (&Path, &Setting)| {
        let shown = shown(path.last(), setting);
        // What is shown is the right side of a line of TOML.
        let value: Option<BTreeMap<String, Value>> =
            toml::from_str(&format!("value = {shown}")).ok();
        let value = value.and_then(|mut line| line.remove("value"));
        (path.to_string(), json!({ "value": value, "origin": setting.origin.to_string() }))
    };
    effective.settings.iter().map(key).collect()
}

fn section(effective: &Effective, shape: &Shape, path: &Path, array: bool, out: &mut String) {
    let mut lines = String::new();
    for SettingField { name, .. } in shape.fields() {
        let path = path.child(name);
        if let Some(setting) = effective.settings.get(&path) {
            lines.push_str(&line(name, setting));
        } else if let Some(meaning) = effective.unset.get(&path) {
            lines.push_str(&format!("# {name} is not set: {meaning}\n"));
        }
    }
    push_section(path, array, &lines, out);
    for SettingField { name, shape, .. } in shape.fields() {
        let path = path.child(name);
        match shape {
            Shape::Key(_) => {}
            Shape::Section(..) => section(effective, shape, &path, false, out),
            Shape::Sections(element) => {
                for index in 0..effective.outboxes {
                    section(effective, element, &path.index(index), true, out);
                }
            }
            Shape::Map(_) => {
                let entries = effective.entries(&path);
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
    let Setting { row, value, referenced, .. } = setting;
    let may_show =
        || !referenced && row.shown_prefixes.iter().any(|prefix| name.starts_with(prefix));
    match (value, row.kind) {
        (SettingValue::Text(number), ValueKind::Ratio) => number.clone(),
        (SettingValue::Text(text), _) => quoted(text),
        (SettingValue::Secret(secret), ValueKind::Url) => quoted(&units::mask_url(secret.expose())),
        (SettingValue::Secret(secret), _) if may_show() => quoted(secret.expose()),
        (SettingValue::Bool(flag), _) => flag.to_string(),
        (SettingValue::Integer(bytes), ValueKind::Bytes(..)) => quoted(&units::show_bytes(*bytes)),
        (SettingValue::Integer(number), _) => number.to_string(),
        (SettingValue::Duration(duration), _) => quoted(&units::show_duration(*duration)),
        (SettingValue::Strings(strings), _) => {
            let strings: Vec<String> = strings.iter().map(|text| quoted(text)).collect();
            format!("[{}]", strings.join(", "))
        }
        _ => quoted(HIDDEN),
    }
}
