//! `config schema`: the JSON Schema of the configuration file, for editors.

use serde_json::{Map, Value as Json, json};

use super::sections::root;
use crate::base::settings::kind::{SettingValue, ValueKind};
use crate::base::settings::{Absent, KeyRow, SettingField, Shape};

pub fn schema() -> String {
    let mut schema = of_shape(root(), "");
    let extra = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "walrelay configuration",
        "$defs": {
            "secret": {
                "oneOf": [
                    { "type": "string" },
                    reference("env", "Name of the environment variable that holds the value."),
                    reference("file", "Path of the file that holds the value."),
                ],
            },
            "duration": { "type": "string", "pattern": "^([0-9]+(ms|s|m|h|d))+$" },
            "size": {
                "oneOf": [
                    { "type": "string", "pattern": "^[0-9]+ ?(B|kB|KB|MB|GB|KiB|MiB|GiB)?$" },
                    { "type": "integer", "minimum": 0 },
                ],
            },
        },
    });
    if let (Json::Object(schema), Json::Object(extra)) = (&mut schema, extra) {
        schema.extend(extra);
    }
    format!("{schema:#}")
}

fn reference(name: &str, description: &str) -> Json {
    table([(name, json!({ "type": "string", "description": description }))], Some(name))
}

fn table<'a>(
    properties: impl IntoIterator<Item = (&'a str, Json)>,
    required: Option<&str>,
) -> Json {
    let properties = properties.into_iter().map(|(name, schema)| (name.to_owned(), schema));
    let properties: Map<String, Json> = properties.collect();
    let mut schema =
        json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if let Some(name) = required {
        schema["required"] = json!([name]);
    }
    schema
}

fn of_shape(shape: &Shape, doc: &str) -> Json {
    match shape {
        Shape::Key(row) => {
            let mut schema = of_kind(row.kind);
            schema["description"] = json!(doc.trim());
            if let Some(default) = default_of(row) {
                schema["default"] = default;
            }
            schema
        }
        Shape::Map(row) => json!({
            "type": "object",
            "description": doc.trim(),
            "additionalProperties": of_kind(row.kind),
        }),
        Shape::Sections(element) => json!({ "type": "array", "items": of_shape(element, "") }),
        Shape::Section(fields, _) => {
            let of = |field: &SettingField| of_shape(&field.shape, field.doc);
            table(fields.iter().map(|field| (field.name, of(field))), None)
        }
    }
}

fn of_kind(kind: ValueKind) -> Json {
    match kind {
        ValueKind::Text(rule) => json!({ "type": "string", "pattern": rule.pattern }),
        ValueKind::Template => json!({ "type": "string" }),
        ValueKind::Url => json!({ "$ref": "#/$defs/secret" }),
        // Client properties may be spelt as TOML numbers and booleans.
        ValueKind::Secret => json!({
            "anyOf": [{ "$ref": "#/$defs/secret" }, { "type": ["integer", "boolean"] }],
        }),
        ValueKind::Bool => json!({ "type": "boolean" }),
        ValueKind::Integer(min, max) => {
            json!({ "type": "integer", "minimum": min, "maximum": max })
        }
        ValueKind::Ratio => json!({ "type": "number", "minimum": 0, "maximum": 1 }),
        ValueKind::Bytes(..) => json!({ "$ref": "#/$defs/size" }),
        ValueKind::Duration(..) => json!({ "$ref": "#/$defs/duration" }),
        ValueKind::Choice(words) => json!({ "enum": words() }),
        ValueKind::Strings(rule) => {
            json!({ "type": "array", "items": { "type": "string", "pattern": rule.pattern } })
        }
    }
}

fn default_of(row: &KeyRow) -> Option<Json> {
    let Absent::Default(text) = row.absent else { return None };
    match (row.default_value(false)?, row.kind) {
        (SettingValue::Bool(flag), _) => Some(json!(flag)),
        (SettingValue::Text(number), ValueKind::Ratio) => Some(json!(number.parse::<f64>().ok()?)),
        (SettingValue::Integer(number), ValueKind::Integer(..)) => Some(json!(number)),
        (SettingValue::Strings(strings), _) => Some(json!(strings)),
        (SettingValue::Secret(_), _) => None,
        _ => Some(json!(text)),
    }
}
