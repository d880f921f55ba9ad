//! `config schema`: the JSON Schema of the configuration file, for editors.

use serde_json::{Value as Json, json};

use super::sections::keys;

pub fn schema() -> String {
    let mut schema = table();
    for key in keys() {
        let mut place = &mut schema;
        for step in key.section.split('.') {
            let name = step.trim_end_matches("[]");
            place = &mut place["properties"][name];
            if name != step {
                place["type"] = json!("array");
                place = &mut place["items"];
            }
            if place.is_null() {
                *place = table();
            }
        }
        let (name, mut described) = (&*key.name, key.kind.schema.clone());
        match name.strip_suffix(".*") {
            Some(map) => {
                place["properties"][map] = json!({
                    "type": "object",
                    "description": key.doc,
                    "additionalProperties": described,
                });
            }
            None => {
                described["description"] = json!(key.doc);
                if let Some(default) = &key.default {
                    described["default"] = default.clone();
                }
                place["properties"][name] = described;
            }
        }
    }
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("walrelay configuration");
    schema["$defs"] = json!({
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
    });
    format!("{schema:#}")
}

fn table() -> Json {
    json!({ "type": "object", "properties": {}, "additionalProperties": false })
}

fn reference(name: &str, description: &str) -> Json {
    let mut reference = table();
    reference["properties"][name] = json!({ "type": "string", "description": description });
    reference["required"] = json!([name]);
    reference
}
