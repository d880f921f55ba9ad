//! A password or a certificate that is changed under a running relay: what is given as a file is read again
//! for each connection, and until both sides agree the relay waits. `/readyz` says if a login is refused.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use walrelay_harness::relay::get;
use walrelay_harness::{Kafka, KafkaListener, KafkaOptions, Postgres, PostgresOptions, free_port};

use crate::support::LIMIT;
use crate::support::faults::{CliFixture, POLLING_SQL, Relay};
use crate::support::rabbitmq::{ALL, shared, waiting};

/// A fixture whose relay can be asked, and the file with its secret.
fn with_secret(scene: &mut CliFixture<'_>, secret: &str) -> PathBuf {
    scene.choose_admin();
    let path = scene.folder().join("secret");
    std::fs::write(&path, format!("{secret}\n")).unwrap();
    path
}

/// The login is refused for as long as the file has the old secret; with `new` events go on.
fn assert_rotates(scene: &CliFixture<'_>, relay: &mut Relay, file: &Path, new: &str) {
    assert_waits(scene, relay, file);
    std::fs::write(file, new).unwrap();
    scene.insert("2", "{}");
    scene.wait_confirmed(relay);
    relay.wait_until("readiness", || readiness(scene) == "ready\n");
}

fn readiness(scene: &CliFixture<'_>) -> String {
    let admin: SocketAddr = scene.listen.parse().unwrap();
    get(admin, "/readyz", LIMIT).map(|it| it.body).unwrap_or_default()
}

/// The relay says that its login is refused, and goes on; the file is gone then.
fn assert_waits(scene: &CliFixture<'_>, relay: &mut Relay, file: &Path) {
    let admin: SocketAddr = scene.listen.parse().unwrap();
    relay.wait_until("the refusal", || readiness(scene).starts_with("login_refused: "));
    assert_eq!(get(admin, "/livez", LIMIT).unwrap().status, 200);
    // GIVEN a moment without the file, as when it is replaced THEN that is no end either
    std::fs::remove_file(file).unwrap();
    let (log, unread) = (relay.log(), format!("cannot read {}", file.display()));
    relay.wait_until("the reason", || {
        let status = get(admin, "/status", LIMIT).map(|it| it.body).unwrap_or_default();
        status.contains(&unread) || std::fs::read_to_string(&log).unwrap().contains(&unread)
    });
}

/// A server that asks for the password of the role `relay`.
fn strict_postgres() -> Postgres {
    let hba = Some("host all all 127.0.0.1/32 scram-sha-256".to_owned());
    let postgres = Postgres::start(PostgresOptions { hba, ..PostgresOptions::default() }).unwrap();
    let role = "CREATE ROLE relay SUPERUSER LOGIN PASSWORD 'one'";
    postgres.sql("postgres", role).unwrap();
    postgres
}

/// Gives the role another password, and ends every connection of the relay.
const ROTATE: &str = "ALTER ROLE relay PASSWORD 'two';
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'relay'";

#[test]
fn a_password_of_postgres_is_rotated_under_a_running_relay() {
    let postgres = strict_postgres();
    let mut scene = CliFixture::on(&postgres, "rotated_postgres").with_outbox();
    scene.insert("1", "{}");
    let url = |password: &str| {
        format!("postgres://relay:{password}@127.0.0.1:{}/rotated_postgres", postgres.port())
    };
    let file = with_secret(&mut scene, &url("one"));
    scene.env.push(("WALRELAY_SOURCE__URL".into(), format!("{{ file = {file:?} }}")));
    let mut relay = scene.spawn(&["run"]);
    scene.wait_confirmed(&mut relay);
    // WHEN the password is another one, and every connection is lost
    scene.sql(ROTATE);
    assert_rotates(&scene, &mut relay, &file, &url("two"));
    relay.stop();
}

#[test]
fn a_password_of_postgres_is_rotated_under_a_relay_that_polls() {
    let postgres = strict_postgres();
    let mut scene = CliFixture::on(&postgres, "rotated_polling");
    scene.source = "mode = \"polling\"\n[source.polling]\nworkers = 1\n\
                    [[source.outbox]]\ntable = \"public.outbox\"\n"
        .into();
    scene.sql(POLLING_SQL);
    scene.make_topic(&scene.name, 1);
    let url = |password: &str| {
        format!("postgres://relay:{password}@127.0.0.1:{}/rotated_polling", postgres.port())
    };
    let file = with_secret(&mut scene, &url("one"));
    scene.env.push(("WALRELAY_SOURCE__URL".into(), format!("{{ file = {file:?} }}")));
    let mut relay = scene.spawn(&["run"]);
    let publish = |relay: &mut Relay| {
        scene.sql("INSERT INTO outbox (event_key, payload) VALUES ('rotated_polling', '{}')");
        let left = "SELECT count(*) FROM outbox WHERE status <> 'published'";
        relay.wait_until("the row", || scene.sql(left) == "0");
    };
    publish(&mut relay);
    // WHEN the password is another one, and every connection is lost
    scene.sql(ROTATE);
    assert_waits(&scene, &mut relay, &file);
    std::fs::write(&file, url("two")).unwrap();
    publish(&mut relay);
    relay.wait_until("readiness", || readiness(&scene) == "ready\n");
    // WHEN only the connection that claims is lost THEN the others do not hide that
    scene.sql("ALTER ROLE relay PASSWORD 'three'");
    let end_worker = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                      WHERE usename = 'relay' AND query LIKE 'SELECT t.%'";
    relay.wait_until("the worker's connection", || scene.sql(end_worker) == "1");
    assert_waits(&scene, &mut relay, &file);
    std::fs::write(&file, url("three")).unwrap();
    publish(&mut relay);
    relay.wait_until("readiness", || readiness(&scene) == "ready\n");
    relay.stop();
}

/// Lets Postgres use a certificate that nobody has seen before; gives it.
fn replace_certificate(scene: &CliFixture<'_>) -> String {
    let mut made = Command::new("openssl");
    made.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    made.args(["-nodes", "-days", "2", "-subj", "/CN=postgres", "-keyout", "key", "-out", "crt"]);
    let made = made.current_dir(scene.folder()).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let read = |name: &str| std::fs::read_to_string(scene.folder().join(name)).unwrap();
    for (name, text) in [("server.key", read("key")), ("server.crt", read("crt"))] {
        // Postgres writes it, because it must be the owner of its key.
        scene.sql(&format!(
            "COPY (SELECT string_to_table('{}', E'\\n')) TO PROGRAM 'umask 077; cat > {name}'",
            text.trim_end()
        ));
    }
    scene.sql("ALTER SYSTEM SET ssl = on");
    scene.sql("SELECT pg_reload_conf()");
    read("crt")
}

#[test]
fn a_certificate_of_postgres_is_rotated_under_a_running_relay() {
    let postgres = Postgres::start(PostgresOptions::default()).unwrap();
    let mut scene = CliFixture::on(&postgres, "rotated_certificate").with_outbox();
    scene.insert("1", "{}");
    let roots = with_secret(&mut scene, "");
    std::fs::write(&roots, replace_certificate(&scene)).unwrap();
    scene.url += &format!("?sslmode=verify-ca&sslrootcert={}", roots.display());
    let mut relay = scene.spawn(&["run"]);
    scene.wait_confirmed(&mut relay);
    // WHEN Postgres has another certificate, and every connection is lost
    let renewed = replace_certificate(&scene);
    let log = relay.log();
    let says = |words: &str| std::fs::read_to_string(&log).unwrap().contains(words);
    let lose = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE client_addr IS NOT NULL";
    relay.wait_until("the refusal", || {
        scene.sql(lose);
        says("the server's certificate is ")
    });
    // THEN the relay waits, also while the file with the new one is being written
    let admin: SocketAddr = scene.listen.parse().unwrap();
    relay.wait_until("the state", || readiness(&scene).starts_with("not_streaming: "));
    assert_eq!(get(admin, "/livez", LIMIT).unwrap().status, 200);
    std::fs::write(&roots, &renewed[..40]).unwrap();
    relay.wait_until("the reason", || says("not well-formed PEM"));
    std::fs::write(&roots, renewed).unwrap();
    scene.insert("2", "{}");
    scene.wait_confirmed(&mut relay);
    relay.wait_until("readiness", || readiness(&scene) == "ready\n");
    relay.stop();
}

#[test]
fn a_password_of_rabbitmq_is_rotated_under_a_running_relay() {
    let mut scene = waiting("rotated_rabbitmq", ALL);
    let name = scene.name.clone();
    shared().exchange(&name, "outbox.events", r#"{"type": "topic", "durable": true}"#);
    shared().queue(&name, "all", r#"{"durable": true}"#, ("outbox.events", "#"));
    let url = |password: &str| {
        format!("amqp://{name}:{password}@127.0.0.1:{}/{name}", shared().node.port())
    };
    let file = with_secret(&mut scene, &url(&name));
    scene.sink =
        format!("[sink]\nkind = \"rabbitmq\"\n[sink.rabbitmq]\nurl = {{ file = {file:?} }}\n");
    let mut relay = scene.spawn(&["run"]);
    scene.wait_confirmed(&mut relay);
    // WHEN the password is another one, and the connection is lost
    shared().api("PUT", &format!("users/{name}"), r#"{"password": "two", "tags": ""}"#);
    // Connections of other tests may end meanwhile.
    let close = format!(
        "[rabbit_networking:close_connection(Pid, \"rotated\") || Pid <- rabbit_networking:connections(), \
         (catch rabbit_networking:connection_info(Pid, [user])) == [{{user, <<\"{name}\">>}}]]"
    );
    shared().node.eval(&close).unwrap();
    assert_rotates(&scene, &mut relay, &file, &url("two"));
    relay.stop();
    shared().assert_holds(&name, "all", 2);
}

#[test]
#[ignore = "soak"]
fn a_password_of_kafka_is_rotated_under_a_running_relay() {
    let port = free_port().unwrap();
    let mut scene = CliFixture::waiting("rotated_kafka");
    let file = with_secret(&mut scene, "one");
    let known = scene.folder().join("known.properties");
    std::fs::write(&known, "relay=one\n").unwrap();
    let listener =
        KafkaListener { name: "STRICT", protocol: "SASL_PLAINTEXT", port, advertised_port: port };
    let extra = format!(
        "config.providers=file\n\
         config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider\n\
         sasl.enabled.mechanisms=PLAIN\n\
         listener.name.strict.plain.sasl.jaas.config=\
         org.apache.kafka.common.security.plain.PlainLoginModule required \
         user_relay=\"${{file:{}:relay}}\";\n",
        known.display()
    );
    let mut kafka = Kafka::start_with(&KafkaOptions { listener: Some(listener), extra }).unwrap();
    walrelay_harness::consumer::create_topic(&kafka.bootstrap(), &scene.topic(), 1, &[]).unwrap();
    scene.sink = format!(
        "[sink.kafka]\nbrokers = \"127.0.0.1:{port}\"\n[sink.kafka.properties]\n\
         \"security.protocol\" = \"SASL_PLAINTEXT\"\n\"sasl.mechanism\" = \"PLAIN\"\n\
         \"sasl.username\" = \"relay\"\n\"sasl.password\" = {{ file = {file:?} }}\n"
    );
    let mut relay = scene.spawn(&["run"]);
    scene.wait_confirmed(&mut relay);
    // WHEN the password is another one, and the connection is lost
    kafka.kill9().unwrap();
    std::fs::write(&known, "relay=two\n").unwrap();
    kafka.start_again().unwrap();
    assert_rotates(&scene, &mut relay, &file, "two");
    relay.stop();
}
