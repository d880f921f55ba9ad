//! `config show`: the effective configuration, each value with its origin.

use serde_json::{Value as Json, json};

use crate::base::settings::Effective;
use crate::base::settings::path::bare_or_quoted;

/// The configuration as TOML.
pub fn show(effective: &Effective) -> String {
    let mut out = String::new();
    for section in effective.sections.iter().filter(|section| !section.keys.is_empty()) {
        out += if out.is_empty() { "" } else { "\n" };
        out += &format!("{}\n", section.header);
        for (path, unset) in &section.keys {
            let name = path.name();
            if let Some(meaning) = unset {
                out += &format!("# {name} is not set: {meaning}\n");
            } else if let Some(setting) = effective.settings.get(path) {
                let value = toml_of(&setting.value);
                out += &format!("{} = {value}  # {}\n", bare_or_quoted(name), setting.origin);
            }
        }
    }
    out
}

fn toml_of(value: &Json) -> String {
    match value {
        Json::String(text) => toml::Value::String(text.clone()).to_string(),
        Json::Array(items) => {
            format!("[{}]", items.iter().map(toml_of).collect::<Vec<_>>().join(", "))
        }
        Json::Number(number) if number.is_f64() => format!("{:?}", number.as_f64().unwrap_or(0.0)),
        other => other.to_string(),
    }
}

/// The value and the origin of each key as JSON.
pub fn show_json(effective: &Effective) -> Json {
    let keys = effective.settings.iter().map(|(path, setting)| {
        let shown = json!({ "value": setting.value, "origin": setting.origin.to_string() });
        (path.to_string(), shown)
    });
    keys.collect()
}
