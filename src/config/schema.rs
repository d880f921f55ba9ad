//! `config schema`: the key table as JSON Schema, for editors.

use serde_json::{Map, Value as Json, json};

use super::keys::{Absent, Key};
use super::kind::{self, Kind, Raw, Value};
use super::tree::{self, Node};

/// The schema of the configuration file, draft 2020-12.
pub(crate) fn schema() -> Json {
    let mut schema = of_node(tree::root());
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
            "duration": { "type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$" },
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
    schema
}

fn reference(name: &str, description: &str) -> Json {
    let property = json!({ "type": "string", "description": description });
    let properties: Map<String, Json> = [(name.to_owned(), property)].into_iter().collect();
    json!({ "type": "object", "properties": properties, "required": [name], "additionalProperties": false })
}

fn of_node(node: &Node) -> Json {
    match node {
        Node::Leaf(key) => of_key(key, true),
        Node::Map(key) => json!({
            "type": "object",
            "description": key.doc,
            "additionalProperties": of_key(key, false),
        }),
        Node::Array(element) => json!({ "type": "array", "items": of_node(element) }),
        Node::Table(fields) => {
            let properties: Map<String, Json> =
                fields.iter().map(|(name, child)| (name.clone(), of_node(child))).collect();
            json!({ "type": "object", "properties": properties, "additionalProperties": false })
        }
    }
}

fn of_key(key: &Key, described: bool) -> Json {
    let mut schema = match key.kind {
        Kind::Text(rule) => json!({ "type": "string", "pattern": rule.pattern }),
        Kind::Template | Kind::Address => json!({ "type": "string" }),
        Kind::Url => json!({ "$ref": "#/$defs/secret" }),
        // Client properties may be spelt as TOML numbers and booleans.
        Kind::Secret => json!({
            "anyOf": [{ "$ref": "#/$defs/secret" }, { "type": ["integer", "boolean"] }],
        }),
        Kind::Bool => json!({ "type": "boolean" }),
        Kind::Integer { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Kind::Bytes { .. } => json!({ "$ref": "#/$defs/size" }),
        Kind::Duration { .. } => json!({ "$ref": "#/$defs/duration" }),
        Kind::Choice(choices) => json!({ "enum": choices }),
        Kind::Strings(rule) => {
            json!({ "type": "array", "items": { "type": "string", "pattern": rule.pattern } })
        }
    };
    if let (true, Some(fields)) = (described, schema.as_object_mut()) {
        fields.insert("description".to_owned(), json!(key.doc));
        if let Some(default) = default_of(key) {
            fields.insert("default".to_owned(), default);
        }
    }
    schema
}

fn default_of(key: &Key) -> Option<Json> {
    let Absent::Value(text) = key.absent else { return None };
    match kind::read(key.kind, &Raw::Word(text.to_owned()), &|_| None).ok()? {
        Value::Bool(flag) => Some(json!(flag)),
        Value::Integer(number) => Some(json!(number)),
        Value::Strings(strings) => Some(json!(strings)),
        Value::Text(_) | Value::Bytes(_) | Value::Duration(_) => Some(json!(text)),
        Value::Secret(_) => None,
    }
}
