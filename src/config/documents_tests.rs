//! The documentation, the schema and the examples are those of the table of keys.

use super::*;

fn repository(path: &str) -> PathBuf {
    FilePath::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[test]
fn the_documentation_is_that_of_the_table() {
    let path = repository("docs/configuration.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, reference()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == reference(), "run: UPDATE_DOCS=1 cargo test --lib config");
}

#[test]
fn the_example_files_load() {
    let variables = [
        ("DATABASE_URL", "postgres://walrelay@db/app"),
        ("KAFKA_PASSWORD", "x"),
        ("RABBITMQ_URL", "amqps://walrelay@mq/v"),
    ];
    for entry in std::fs::read_dir(repository("config")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let (name, text) = (path.display(), std::fs::read_to_string(&path).unwrap());
        let result = load_with(&text, &variables, &[]);
        assert!(result.is_ok(), "{name}: {}", rendered(&result.unwrap_err()));
    }
}

/// Every path that a schema describes; `[]` and `*` as in the key table.
fn schema_paths(schema: &Json, path: &str, out: &mut BTreeSet<String>) {
    let join =
        |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    if let Some(properties) = schema["properties"].as_object() {
        assert_eq!(schema["additionalProperties"], Json::Bool(false), "{path}");
        properties.iter().for_each(|(name, below)| schema_paths(below, &join(name), out));
    } else if schema["items"]["properties"].is_object() {
        schema_paths(&schema["items"], &format!("{path}[]"), out);
    } else if schema["additionalProperties"].is_object() {
        out.insert(join("*"));
    } else {
        assert!(schema["description"].as_str().is_some_and(|text| !text.is_empty()), "{path}");
        out.insert(path.to_owned());
    }
}

/// Every path that a TOML file sets, in the same spelling.
fn file_paths(
    value: &toml::Value,
    path: &str,
    known: &BTreeSet<String>,
    out: &mut BTreeSet<String>,
) {
    if known.contains(path) {
        out.insert(path.to_owned());
    } else if known.contains(&format!("{path}.*")) {
        out.insert(format!("{path}.*"));
    } else if let toml::Value::Table(table) = value {
        for (name, below) in table {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            file_paths(below, &path, known, out);
        }
    } else if let toml::Value::Array(items) = value {
        items.iter().for_each(|item| file_paths(item, &format!("{path}[]"), known, out));
    } else {
        panic!("{path} is not in the schema");
    }
}

#[test]
fn schema_table_and_example_know_the_same_keys() {
    let mut described = BTreeSet::new();
    let schema: Json = serde_json::from_str(&schema()).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    schema_paths(&schema, "", &mut described);
    let known: BTreeSet<String> = keys().iter().map(|key| key.path.clone()).collect();
    assert_eq!(described, known);

    // A line of the example that is switched off begins with "#" and no space.
    let example = std::fs::read_to_string(repository("config/walrelay.example.toml")).unwrap();
    let switched_on = example.lines().map(|line| match line.strip_prefix('#') {
        Some(rest) if !rest.starts_with(' ') => rest,
        Some(_) | None => line,
    });
    let text = switched_on.collect::<Vec<_>>().join("\n");
    let mut written = BTreeSet::new();
    file_paths(&toml::from_str(&text).unwrap(), "", &known, &mut written);
    assert_eq!(written, known);
}

#[test]
fn the_schema_gives_defaults_and_choices() {
    let schema: Json = serde_json::from_str(&schema()).unwrap();
    let delivery = &schema["properties"]["delivery"]["properties"];
    assert_eq!(delivery["attempts_max"]["default"], 5);
    assert_eq!(delivery["window_bytes_max"]["$ref"], "#/$defs/size");
    assert_eq!(delivery["window_bytes_max"]["default"], "64MiB");
    assert_eq!(
        delivery["on_dead_letter"]["enum"],
        serde_json::json!(["continue", "park_key", "halt"])
    );
    assert_eq!(schema["properties"]["source"]["properties"]["url"]["$ref"], "#/$defs/secret");
}

#[test]
fn every_default_is_a_value_of_its_kind() {
    for key in keys() {
        let has_default = matches!(key.absent, Absent::Default(_)) && key.inherits.is_none();
        assert_eq!(key.default.is_some(), has_default, "{}", key.path);
    }
}

#[test]
fn a_variable_is_the_path_in_capitals() {
    let name = |path: &str| variable(keys().iter().find(|key| key.path == path).unwrap());
    assert_eq!(name("sink.kafka.brokers"), "WALRELAY_SINK__KAFKA__BROKERS");
    assert_eq!(name("source.outbox[].table"), "WALRELAY_SOURCE__OUTBOX__N__TABLE");
}

#[test]
fn rules_refuse_what_postgres_and_kafka_would() {
    let is_refused = |path: &str, text: &str| {
        let setting = format!("{path}={text}");
        let faults = load_with(MINIMAL, &[], &[&setting]).err().unwrap_or_default();
        faults.iter().any(|fault| fault.what.starts_with(path))
    };
    let long = "a".repeat(64);
    let cases = [
        ("source.slot", &["walrelay_2"][..], &["Walrelay", "", &long][..]),
        ("source.publication", &["Events"], &["", "a\"b", &long]),
        ("source.outbox[0].table", &["outbox", "app.outbox"], &["a.b.c", ".outbox", "a.\"b\""]),
        ("sink.kafka.topics", &["outbox.x"], &["a b", ".."]),
        ("dead_letter.topic", &["outbox.dlq"], &["a b", "..", ""]),
        (
            "sink.kafka.brokers",
            &["a:9092, b:9092", "[::1]:9092", "SASL_SSL://a:9092", "kafka"],
            &["", "a:x", "a:1,,b:1"],
        ),
        ("admin.listen", &["[::1]:9464"], &["localhost:9464", "127.0.0.1"]),
        ("admin.hosts", &["relay.example.org"], &["relay:9464", "https://relay", "*.example.org"]),
    ];
    for (path, good, bad) in cases {
        assert!(!good.iter().any(|text| is_refused(path, text)), "{path}: {good:?}");
        assert!(bad.iter().all(|text| is_refused(path, text)), "{path}: {bad:?}");
    }
}
