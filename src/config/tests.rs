#[path = "broker_tests.rs"]
mod broker;
#[path = "documents_tests.rs"]
mod documents;
#[path = "libraries_tests.rs"]
mod libraries;
#[path = "places_tests.rs"]
mod places;
#[path = "refusals_tests.rs"]
mod refusals;
#[path = "variables_tests.rs"]
mod variables;

use std::any::Any;
use std::collections::BTreeSet;
use std::path::Path as FilePath;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value as Json;
use walrelay_kafka::{KafkaBroker, KafkaSettings};

use super::sections::{keys, variable};
use super::*;
use crate::base::error::Exit;
use crate::base::settings::key::Absent;
use crate::base::template::Template;
use crate::delivery::settings::OnDeadLetter;
use crate::outbox::settings::{PayloadFormat, Preset};
use crate::sink::Broker;

const MINIMAL: &str = "\
[source]
url = \"postgres://walrelay@db/app\"
[sink.kafka]
brokers = \"kafka:9092\"
";

/// A file that is gone with the value.
struct TempFile(PathBuf);

impl TempFile {
    fn new(text: &str) -> TempFile {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = format!("walrelay-config-{}-{serial}.toml", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        TempFile(path)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

fn request(file: &TempFile, variables: &[(&str, &str)], settings: &[&str]) -> Request {
    Request {
        file: Some(file.0.clone()),
        settings: settings.iter().map(|&text| text.to_owned()).collect(),
        variables: variables.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect(),
        ..Request::default()
    }
}

fn kafka(broker: &dyn Broker) -> &KafkaSettings {
    let broker: &KafkaBroker = (broker as &dyn Any).downcast_ref().unwrap();
    &broker.settings
}

fn load_with(
    text: &str,
    variables: &[(&str, &str)],
    settings: &[&str],
) -> Result<Loaded, Vec<Fault>> {
    let file = TempFile::new(text);
    // The name of the file is the only thing that differs from run to run.
    let name = file.0.display().to_string();
    load(&request(&file, variables, settings)).map_err(|mut faults| {
        faults.iter_mut().for_each(|fault| fault.place = fault.place.replace(&name, "w.toml"));
        faults
    })
}

fn loaded(text: &str) -> Loaded {
    load_with(text, &[], &[]).unwrap_or_else(|faults| panic!("{}", rendered(&faults)))
}

fn rendered(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn complaints(text: &str) -> String {
    rendered(&load_with(text, &[], &[]).unwrap_err())
}

#[test]
fn five_different_mistakes_are_told_at_once_each_with_its_line() {
    let told = complaints(
        "\
[source]
slto = \"walrelay\"
slot = \"Wal-Relay\"

[route]
topic = \"outbox.${aggregatetype\"
format = \"cloudevent\"

[delivery]
backoff_base = \"1m\"

[sink.kafka]
brokers = \"kafka:9092\"
properties = { acks = 1 }
",
    );
    assert_eq!(
        told,
        "\
error[config.missing-key]: source.url: is missing
  where: w.toml:1:2
  help:  write in the file, under [source]:
         url = \"postgres://walrelay@localhost/app\"
         or: export WALRELAY_SOURCE__URL=postgres://walrelay@localhost/app
error[config.unknown-key]: unknown key `source.slto`
  where: w.toml:2:1
  help:  did you mean `slot`?
error[config.bad-value]: source.slot: \"Wal-Relay\" is not 1 to 63 lower-case letters, digits and underscores
  where: w.toml:3:1
  help:  write 1 to 63 lower-case letters, digits and underscores
error[config.bad-value]: route.topic: \"${\" at character 7 is never closed with \"}\"
  where: w.toml:6:1
  help:  write a column as ${name}, a literal \"${\" as $${
error[config.bad-value]: route.format: \"cloudevent\" is not one of raw, cloudevents, cloudevents-structured, debezium
  where: w.toml:7:1
  help:  did you mean \"cloudevents\"? use one of raw, cloudevents, cloudevents-structured, debezium
error[config.conflict]: delivery.backoff_base: the first wait (1m) is longer than the longest (30s)
  where: w.toml:10:1
  help:  backoff_cap = \"1m\" or more, or a shorter backoff_base
error[config.unsafe-property]: sink.kafka.properties.acks: an event would count as published before all in-sync replicas have it, and be lost with the leader
  where: w.toml:14:16
  help:  remove it: acks = \"all\" is set"
    );
}

#[test]
fn unknown_keys_are_found_in_nested_and_repeated_tables() {
    let text = format!(
        "{MINIMAL}[[source.outbox]]\ntable = \"a\"\ncolumns = {{ idd = \"x\" }}\n\
         [[source.outbox]]\ntable = \"b\"\nroute.topics = \"x\"\n[slot]\nx = 1\n"
    );
    let told = complaints(&text);
    assert!(
        told.contains(
            "`source.outbox[0].columns.idd`\n  where: w.toml:7:13\n  help:  did you mean `id`?"
        ),
        "{told}"
    );
    assert!(told.contains("`source.outbox[1].route.topics`\n  where: w.toml:10:7"), "{told}");
    assert!(
        told.contains(
            "unknown key `slot`\n  where: w.toml:11:2\n  help:  did you mean `source.slot`?"
        ),
        "{told}"
    );
}

#[test]
fn a_minimal_file_has_the_defaults_of_the_contract() {
    let Config { source, polling, sink, delivery, dead_letter, admin, tracing, log } =
        loaded(MINIMAL).config;
    assert_eq!(log.level, None);
    assert_eq!((tracing.sample_ratio, tracing.service_name.as_str()), (1.0, "walrelay"));
    assert!(tracing.endpoint.is_none());
    assert_eq!(polling, None);
    assert_eq!(
        (source.slot.as_str(), source.publication.as_str(), source.binary),
        ("walrelay", "walrelay", true)
    );
    assert_eq!(
        (source.stall_timeout, source.reconnect_base),
        (Duration::from_secs(30), Duration::from_millis(50))
    );
    assert_eq!(
        (source.reconnect_cap, source.watch_interval),
        (Duration::from_secs(5), Duration::from_secs(1))
    );
    assert!(source.messages.is_none());
    let [outbox] = source.outboxes.as_slice() else { panic!("{:?}", source.outboxes) };
    assert_eq!((outbox.schema.as_str(), outbox.table.as_str()), ("public", "outbox"));
    assert_eq!(outbox.route.topic, Template::parse("outbox.event.${aggregatetype}").unwrap());
    assert_eq!(outbox.route.key(&outbox.columns), Template::column("aggregateid"));
    assert_eq!((outbox.route.format, outbox.route.preset), (PayloadFormat::Raw, Preset::Walrelay));
    assert!(outbox.route.headers.is_empty() && outbox.route.partition.is_none());
    let kafka = kafka(&*sink);
    assert_eq!(
        (kafka.brokers.as_str(), kafka.partitions, kafka.replication),
        ("kafka:9092", 8, -1)
    );
    assert!(kafka.topics.is_empty() && kafka.properties.is_empty());
    assert_eq!((delivery.window_events_max, delivery.window_bytes_max), (16384, 64 << 20));
    assert_eq!((delivery.attempts_max, delivery.on_dead_letter), (5, OnDeadLetter::Continue));
    assert_eq!(
        (delivery.backoff_base, delivery.backoff_cap),
        (Duration::from_millis(200), Duration::from_secs(30))
    );
    assert_eq!(delivery.drain_timeout, Duration::from_secs(20));
    assert_eq!(dead_letter.address.topic, "outbox.dlq");
    assert_eq!(admin.listen.to_string(), "127.0.0.1:9464");
    assert!(admin.hosts.is_empty());
}

#[test]
fn a_table_has_its_own_route_keys_over_the_shared_ones() {
    let text = format!(
        "{MINIMAL}[route]\nformat = \"cloudevents\"\nheaders = {{ a = \"1\", b = \"2\" }}\n\
         [[source.outbox]]\ntable = \"app.orders\"\ncolumns.key = \"order_id\"\n\
         [source.outbox.route]\ntopic = \"orders\"\nheaders = {{ b = \"${{type}}\" }}\n\
         [source.messages]\n"
    );
    let source = loaded(&text).config.source;
    let orders = &source.outboxes[0];
    assert_eq!((orders.schema.as_str(), orders.table.as_str()), ("app", "orders"));
    assert_eq!(orders.route.topic.constant(), Some("orders"));
    assert_eq!(orders.route.key(&orders.columns), Template::column("order_id"));
    assert_eq!(orders.route.format, PayloadFormat::CloudEvents);
    let header = |text| Template::parse(text).unwrap();
    let headers = [("a".into(), header("1")), ("b".into(), header("${type}"))];
    assert_eq!(orders.route.headers, headers.into());
    let messages = source.messages.unwrap();
    assert_eq!((messages.prefix.as_str(), messages.route.headers.len()), ("outbox", 2));
}

#[test]
fn messages_alone_need_no_table() {
    let source =
        loaded(&format!("{MINIMAL}[source.messages]\nprefix = \"events\"\n")).config.source;
    assert!(source.outboxes.is_empty());
    assert_eq!(source.messages.unwrap().prefix, "events");
}

#[test]
fn flags_stand_over_the_environment_and_the_environment_over_the_file() {
    let text = format!(
        "{MINIMAL}[delivery]\nattempts_max = 2\nbackoff_base = \"2ms\"\ndrain_timeout = \"2s\"\n"
    );
    let variables = [
        ("WALRELAY_DELIVERY__ATTEMPTS_MAX", "3"),
        ("WALRELAY_DELIVERY__BACKOFF_BASE", "3ms"),
        ("WALRELAY_SOURCE__OUTBOX__0__TABLE", "app.events"),
        ("WALRELAY_SINK__KAFKA__PROPERTIES__COMPRESSION_TYPE", "zstd"),
        ("WALRELAY_SINK__KAFKA__TOPICS", "a, b"),
        ("WALRELAY_LOG", "debug"),
        ("WALRELAY_CONFIG", "w.toml"),
        ("WALRELAY_DEV_ANYTHING", "1"),
    ];
    let flags = [
        "delivery.attempts_max=4",
        "sink.kafka.properties.linger.ms=1",
        "route.headers={ origin = \"x\" }",
        "source.outbox[0].columns.id=event_id",
    ];
    let Loaded { config, effective } = load_with(&text, &variables, &flags).unwrap();
    assert_eq!(config.delivery.attempts_max, 4);
    assert_eq!(config.delivery.backoff_base, Duration::from_millis(3));
    assert_eq!(config.delivery.drain_timeout, Duration::from_secs(2));
    assert_eq!(config.source.outboxes[0].table, "events");
    assert_eq!(config.source.outboxes[0].columns.id, "event_id");
    assert_eq!(config.source.outboxes[0].route.headers.len(), 1);
    let kafka = kafka(&*config.sink);
    assert_eq!(kafka.properties["compression.type"].expose(), "zstd");
    assert_eq!(kafka.properties["linger.ms"].expose(), "1");
    assert_eq!(kafka.topics, ["a", "b"]);
    let shown = show(&effective);
    assert!(shown.contains("attempts_max = 4  # --set\n"), "{shown}");
    assert!(
        shown.contains("backoff_base = \"3ms\"  # WALRELAY_DELIVERY__BACKOFF_BASE\n"),
        "{shown}"
    );
    assert!(shown.contains(".toml:8\n"), "{shown}");
}

#[test]
fn a_name_of_a_users_choice_keeps_its_small_letters_in_a_variable() {
    let variables =
        [("WALRELAY_ROUTE__HEADERS__TenantId", "t"), ("WALRELAY_ROUTE__HEADERS__SHOP", "s")];
    let Loaded { config, .. } = load_with(MINIMAL, &variables, &[]).unwrap();
    let headers = &config.source.outboxes[0].route.headers;
    assert_eq!(headers.keys().collect::<Vec<_>>(), ["TenantId", "shop"]);
}

#[test]
fn a_replaced_value_is_not_complained_about() {
    let text = format!("{MINIMAL}[delivery]\nattempts_max = 0\n");
    assert!(load_with(&text, &[], &[]).is_err());
    assert!(load_with(&text, &[("WALRELAY_DELIVERY__ATTEMPTS_MAX", "1")], &[]).is_ok());
}

#[test]
fn unknown_variables_and_flags_are_problems() {
    let variables = [("WALRELAY_SINK__KAFKA__BROKER", "x:1"), ("WALRELAY_SOURCE_SLOT", "orders")];
    let flags = ["source.slott=x", "slot=y", "noequals", "source.outbox.3.table=t"];
    let told = rendered(&load_with(MINIMAL, &variables, &flags).unwrap_err());
    assert_eq!(
        told,
        "\
error[config.unknown-key]: unknown variable WALRELAY_SINK__KAFKA__BROKER
  where: environment variable WALRELAY_SINK__KAFKA__BROKER
  help:  did you mean WALRELAY_SINK__KAFKA__BROKERS? or else: unset WALRELAY_SINK__KAFKA__BROKER
error[config.unknown-key]: unknown variable WALRELAY_SOURCE_SLOT
  where: environment variable WALRELAY_SOURCE_SLOT
  help:  did you mean WALRELAY_SOURCE__SLOT? or else: unset WALRELAY_SOURCE_SLOT
error[config.unknown-key]: unknown key `source.slott`
  where: --set source.slott
  help:  did you mean `source.slot`?
error[config.unknown-key]: unknown key `slot`
  where: --set slot
  help:  did you mean `source.slot`?
error[config.bad-value]: --set: expected KEY=VALUE, found no \"=\"
  where: --set
  help:  walrelay --set source.slot=walrelay ...
error[config.bad-value]: source.outbox: there is a gap
  where: --set source.outbox.3.table
  help:  number the tables from 0 without a gap: source.outbox[0] is missing"
    );
}

/// Kubernetes gives every pod of a namespace variables for each Service in it.
#[test]
fn variables_of_a_service_named_like_the_relay_are_ignored() {
    for service in ["WALRELAY", "WALRELAY_ADMIN", "WALRELAY_SOURCE", "WALRELAY_SINK_KAFKA"] {
        let tails = [
            "PORT",
            "SERVICE_HOST",
            "SERVICE_PORT",
            "SERVICE_PORT_METRICS",
            "PORT_9464_TCP",
            "PORT_9464_TCP_ADDR",
            "PORT_9464_TCP_PORT",
            "PORT_9464_TCP_PROTO",
        ];
        for name in tails.map(|tail| format!("{service}_{tail}")) {
            let loaded = load_with(MINIMAL, &[(&name, "tcp://10.96.0.7:9464")], &[]);
            assert!(loaded.is_ok(), "{name}");
        }
    }
}

#[test]
fn a_variable_with_single_underscores_that_is_nearly_a_key_is_a_problem() {
    for name in [
        "WALRELAY_DELIVERY_BACKOFF_BASE",
        "WALRELAY_SOURCE_OUTBOX_0_TABLE",
        "WALRELAY_SINK_KAFKA_PROPERTIES_LINGER_MS",
        "WALRELAY_SINK_RABBITMQ_SERVER_NAME",
        "WALRELAY_ADMIN__TOKN",
    ] {
        let told = rendered(&load_with(MINIMAL, &[(name, "x")], &[]).unwrap_err());
        assert!(told.contains("did you mean WALRELAY_"), "{told}");
    }
}

#[test]
fn what_is_missing_has_a_place_even_without_its_section() {
    let told = complaints("[source]\nurl = \"postgres://u@db/app\"\n");
    assert!(told.starts_with(
        "error[config.missing-key]: sink.kafka.brokers: is missing\n  where: w.toml\n  help:  "
    ));
}

#[test]
fn the_environment_alone_is_enough() {
    let variables =
        [("WALRELAY_SOURCE__URL", "postgres://walrelay@db/app"), ("WALRELAY_SINK__KIND", "memory")];
    let config = load_with("", &variables, &[]).unwrap().config;
    assert_eq!(config.sink.kind().name, "memory");
    assert_eq!(config.source.connection.hosts[0].name, "db");
}

/// Each text, with the code and the words of its refusal.
#[track_caller]
fn assert_each_is_refused(cases: &[(&str, &str, &str)]) {
    let variables = [
        ("WALRELAY_SOURCE__URL", "postgres://u@db/app"),
        ("WALRELAY_SINK__KAFKA__BROKERS", "kafka:9092"),
    ];
    for (text, code, what) in cases.iter().copied() {
        let faults = load_with(text, &variables, &[]).unwrap_err();
        let [fault] = faults.as_slice() else { panic!("{text}\n{}", rendered(&faults)) };
        assert_eq!((fault.code, fault.exit), (code, Exit::Usage), "{text}");
        assert!(fault.what.contains(what), "{text}: {}", fault.what);
        assert!(!fault.to_string().contains("c4n4ry"), "{fault}");
        assert!(!fault.mend.is_empty() && fault.place.starts_with("w.toml:"), "{text}: {fault}");
    }
}

#[test]
fn contradictions_are_refused() {
    let cases = [
        ("[route]\ntopic = \"outbox.dlq\"", "config.conflict", "is the dead-letter topic"),
        ("[sink.kafka]\ntopics = [\"outbox.dlq\"]", "config.conflict", "where dead letters go"),
        (
            "[sink]\nkind = \"rabbitmq\"\n[sink.rabbitmq]\nurl = \"amqp://mq\"\nexchange = \"outbox.dlx\"",
            "config.conflict",
            "sink.rabbitmq.exchange: \"outbox.dlx\" is where dead letters go",
        ),
        (
            "[sink]\nkind = \"rabbitmq\"\n[sink.rabbitmq]\nurl = \"amqp://mq\"\nexchange = \"\"\n[route]\ntopic = \"outbox.dlq\"",
            "config.conflict",
            "route.topic: \"outbox.dlq\" is the dead-letter topic",
        ),
        ("[admin]\ntoken = \"c4n4ry\"", "config.bad-value", "fewer than 16 characters"),
        ("[admin]\ntoken = \"c4n4ry of a long mine\"", "config.bad-value", "no client can send it"),
        ("[route]\ntopic = \"a topic\"", "config.bad-value", "is no topic name"),
        (
            "[route]\ntopic = \"a topic.${kind}\"",
            "config.bad-value",
            "gives no valid topic, whatever its columns hold",
        ),
        ("[route]\nheaders = { id = \"x\" }", "config.conflict", "always carries the event id"),
        ("[route.headers]\n\"a\\u0000b\" = \"x\"", "config.bad-value", "without the character NUL"),
        (
            "[route]\nheaders = { DLQ-replay-for = \"x\" }",
            "config.conflict",
            "those of replays and of consumers",
        ),
        (
            "[[source.outbox]]\ntable = \"outbox\"\n[[source.outbox]]\ntable = \"public.outbox\"",
            "config.conflict",
            "already the table of source.outbox[0].table",
        ),
        ("[[source.outbox]]\n[[source.outbox]]", "config.conflict", "already the table"),
        (
            "[source]\nreconnect_base = \"6s\"",
            "config.conflict",
            "the first wait (6s) is longer than the longest (5s)",
        ),
        ("[sink.kafka]\nreplication = 0", "config.bad-value", "0 replicas"),
        (
            "[sink.kafka]\nproperties.\"queue.buffering.max.messages\" = 100",
            "config.conflict",
            "smaller than the window",
        ),
        (
            "[sink.kafka]\nproperties.\"queue.buffering.max.kbytes\" = \"1024\"",
            "config.conflict",
            "smaller than the window",
        ),
        ("[delivery]\nwindow_bytes_max = \"1KiB\"", "config.bad-value", "range 64KiB to 16GiB"),
        ("[delivery]\nwindow_events_max = 0", "config.bad-value", "range 1 to"),
        ("[source.outbox]\ntable = \"x\"", "config.bad-value", "expected an array of tables"),
        ("source = 1", "config.bad-value", "expected a table"),
        (
            "[sink.kafka]\nproperties.\"sasl.password\" = { env = \"NOPE\" }",
            "config.missing-secret",
            "NOPE is not set",
        ),
        (
            "[sink.kafka]\nproperties.\"sasl.password\" = { vault = \"x\" }",
            "config.bad-value",
            "no reference to a secret",
        ),
    ];
    assert_each_is_refused(&cases);
}

#[test]
fn contradictions_of_polling_are_refused() {
    let cases = [
        (
            "[source]\nmode = \"polling\"\n[[source.outbox]]\n[[source.outbox]]\ntable = \"other\"",
            "config.conflict",
            "polling takes one table",
        ),
        (
            "[source]\nmode = \"polling\"\n[source.polling]\nworkers = 40",
            "config.conflict",
            "40 workers with 500 rows each are more than window_events_max = 16384",
        ),
        (
            "[source]\nmode = \"polling\"\n[source.polling.status_values]\npublished = \"pending\"",
            "config.conflict",
            "the same value as source.polling.status_values.pending",
        ),
        (
            "[source]\nmode = \"polling\"\n[source.polling.columns]\nlocked_at = \"at\"\nfailed_at = \"at\"",
            "config.conflict",
            "the same column as source.polling.columns.locked_at",
        ),
        (
            "[source]\nmode = \"polling\"\n[source.polling.columns]\ncreated_at = \"failed_at\"",
            "config.conflict",
            "the same column as source.polling.columns.failed_at",
        ),
        (
            "[source]\nmode = \"polling\"\n[source.polling.columns]\nfailure_reason = \"payload\"",
            "config.conflict",
            "polling would write over column payload, a part of the event",
        ),
    ];
    assert_each_is_refused(&cases);
    // THEN columns that are only read may be one
    let text = "[source]\nurl = \"postgres://u@db/app\"\nmode = \"polling\"\n[source.polling.columns]\n\
                order = \"at\"\ncreated_at = \"at\"\n[sink.kafka]\nbrokers = \"kafka:9092\"\n";
    loaded(text);
}

#[test]
fn show_names_the_origin_of_every_value() {
    let text = format!(
        "{MINIMAL}properties = {{ \"compression.type\" = \"lz4\", \"sasl.password\" = \"pw\" }}\n"
    );
    let mut shown = show(&loaded(&text).effective);
    // Every line of a value ends in its origin, and what is shown is TOML.
    toml::from_str::<toml::Table>(&shown).unwrap();
    shown.truncate(shown.find("[route]").unwrap());
    let start = shown.find("slot =").unwrap();
    assert_eq!(
        &shown[start..],
        "\
slot = \"walrelay\"  # default
publication = \"walrelay\"  # default
binary = true  # default
stall_timeout = \"30s\"  # default
reconnect_base = \"50ms\"  # default
reconnect_cap = \"5s\"  # default
watch_interval = \"1s\"  # default
pinned_after = \"1m\"  # default

[[source.outbox]]
# library is not set: no library
table = \"public.outbox\"  # default
# where is not set: every row is an event

[source.outbox.columns]
id = \"id\"  # default
key = \"aggregateid\"  # default
type = \"type\"  # default
payload = \"payload\"  # default
traceparent = \"traceparent\"  # default
headers = \"headers\"  # default
# order is not set: `seq` for `public.outbox`, else none

"
    );
}

#[test]
fn a_canary_never_appears() {
    const CANARY: &str = "c4n4ry";
    let reveals = |text: &str| text.contains(CANARY);
    // GIVEN a secret in every place that may hold one
    let text = format!(
        "[source]\nurl = \"postgres://u:{CANARY}@db/app?sslmode=require&password={CANARY}\"\n\
         [sink.kafka]\nbrokers = \"k:1\"\nproperties = {{ \"sasl.password\" = \"{CANARY}\", \"client.id\" = {{ env = \"PW\" }} }}\n"
    );
    let variables =
        [("PW", CANARY), ("WALRELAY_SINK__KAFKA__PROPERTIES__SSL_KEY_PASSWORD", CANARY)];
    let flags = [format!("sink.kafka.properties.unheard.of={CANARY}")];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    // WHEN it is loaded
    let good = load_with(&text, &variables, &flags).unwrap();
    // THEN it is there, and cannot be seen
    let kafka = kafka(&*good.config.sink);
    assert!(kafka.properties.values().all(|value| value.expose() == CANARY));
    assert!(!reveals(&show(&good.effective)), "{}", show(&good.effective));
    assert!(!reveals(&format!("{good:?}")));
    assert!(
        show(&good.effective)
            .contains("url = \"postgres://u:***@db/app?sslmode=require&password=***\"")
    );
    // AND WHEN everything about it is wrong THEN no complaint quotes it
    let broken = [
        format!("[source]\nurl = \"mysql://u:{CANARY}@db\"\n"),
        format!("[source]\nurl = [\"{CANARY}\"]\n"),
        format!("[source]\nurl = {{ value = \"{CANARY}\" }}\n"),
        format!("[source]\nurl = \"{CANARY}\npassword = \"{CANARY}\"\n"),
        format!("[source]\npassword = \"{CANARY}\"\n"),
        format!("[sink.kafka]\nproperties = \"{CANARY}\"\n"),
    ];
    for text in &broken {
        let flags = [
            CANARY,
            &format!("source.password={CANARY}"),
            &format!("source={CANARY}"),
            &format!("source.url:postgres://u:{CANARY}@db/app?sslmode=require"),
            &format!("admin.token={{file={CANARY}}}"),
            &format!("sink.kafka.properties.sasl.password:{CANARY}=="),
        ];
        let variables = [("WALRELAY_SOURCE__PASSWORD", CANARY), ("WALRELAY_SINK", CANARY)];
        let faults = load_with(text, &variables, &flags).unwrap_err();
        assert!(!reveals(&format!("{faults:?}")), "{}", rendered(&faults));
    }
}
