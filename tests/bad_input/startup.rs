//! Tests of faults that end `run` at its start: each is a line of `check`, which itself makes and
//! takes nothing. [`CliFixture::assert_refused`] holds both against each other, here and wherever
//! else it is used.

use std::net::TcpListener;

use crate::support::faults::CliFixture;
use crate::support::rabbitmq::{ALL, shared, waiting};

#[test]
fn a_state_file_that_cannot_be_used_is_a_line_of_check() {
    let mut scene = CliFixture::waiting("startup_crash");
    let folder = scene.folder().to_owned();
    let other = folder.join("other");
    std::fs::write(&other, "somebody else's").unwrap();
    for (path, word) in [
        (folder.join("none/crash"), "none does not exist"),
        (other.join("crash"), "Not a directory"),
        (folder.clone(), "directory"),
        (other.clone(), "it holds something else"),
    ] {
        scene.extra = format!("[delivery]\nstate_file = {path:?}\n");
        scene.assert_refused(2, "state-file.unusable", &["delivery.state_file", word]);
    }
    assert_eq!(std::fs::read(&other).unwrap(), b"somebody else's");
    // WHEN it can be made THEN check says so, and makes none
    let path = folder.join("crash");
    scene.extra = format!("[delivery]\nstate_file = {path:?}\n");
    let word = format!("✓ state file {} can be used", path.display());
    scene.walrelay(&["check"]).assert_done().assert_says(&[&word]);
    assert!(!path.exists());
    scene.carry(&[]);
    let held = std::fs::read(&path).unwrap();
    scene.walrelay(&["check"]).assert_done().assert_says(&[&word]);
    assert_eq!(std::fs::read(&path).unwrap(), held);
}

#[test]
fn an_admin_address_that_is_taken_is_a_line_of_check_unless_the_relay_itself_has_it() {
    let mut scene = CliFixture::waiting("startup_port");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    scene.listen = taken.local_addr().unwrap().to_string();
    scene.assert_refused(1, "admin.listen", &[&scene.listen, "ss -ltnp"]);
    // WHEN its process does not answer THEN that is said
    let words = ["gives no answer within 1 s: it is stopped, frozen", "kill -CONT PID"];
    scene.walrelay(&["check"]).assert_says(&words);
    // GIVEN a relay that runs
    scene.choose_admin();
    let mut relay = scene.spawn(&["run"]);
    scene.wait_confirmed(&mut relay);
    let word =
        format!("! a relay of slot startup_port runs already, and listens on {}", scene.listen);
    scene.walrelay(&["check"]).assert_done().assert_says(&[&word]);
    // WHEN another one is to have its address
    let mut other = CliFixture::waiting("startup_port_other");
    other.listen.clone_from(&scene.listen);
    other.assert_refused(1, "admin.listen", &["in use"]);
    other.walrelay(&["check"]).assert_says(&["the relay of slot startup_port listens there"]);
    relay.stop();
}

#[test]
fn parked_keys_that_cannot_be_read_are_a_line_of_check() {
    let mut scene = waiting("startup_park", ["", "^outbox\\.(events|dlx)$", ""]);
    shared().exchange(&scene.name, "outbox.events", r#"{"type": "topic", "durable": true}"#);
    scene.extra = "[delivery]\non_dead_letter = \"park_key\"\n".into();
    let words = ["park_key needs to read the dead-letter topic", "rabbitmqctl set_permissions"];
    scene.assert_refused(5, "dead-letter.unreadable", &words);
}

#[test]
fn topics_that_rows_lead_to_are_looked_at() {
    // GIVEN a row whose topic is there, and one whose topic is not
    let mut scene = CliFixture::waiting("startup_rows");
    let refund = "INSERT INTO outbox (aggregatetype, aggregateid, type) VALUES ('startup_rows_none', '2', 'T')";
    scene.sql(refund);
    scene.walrelay(&["check"]).assert_done().assert_says(&[
        "✓ topics that rows of the outbox lead to are there (1 looked at)",
        "! topic outbox.event.startup_rows_none does not exist, and rows of the outbox lead to it",
        "--create --topic outbox.event.startup_rows_none",
    ]);
    // GIVEN no row THEN it is said that nothing was looked at
    scene.sql("DELETE FROM outbox");
    let words = ["! topics come from rows, and no row says which: none is checked"];
    scene.walrelay(&["check"]).assert_done().assert_says(&words);
    // GIVEN a role that may not look at rows, which `run` does not need
    scene.sql("CREATE ROLE startup_rows_relay LOGIN REPLICATION");
    scene.url = scene.url.replace("postgres@", "startup_rows_relay@");
    let words = ["! the topics that rows of public.outbox lead to are not checked"];
    let check = scene.walrelay(&["check"]);
    check.assert_done().assert_says(&words);
    assert!(!check.all().contains("no row says which"), "{check}");
}

#[test]
fn queues_that_rows_lead_to_are_looked_at() {
    // GIVEN the default exchange, where the key is the name of a queue
    let mut scene = waiting("startup_keys", ALL);
    scene.sink.push_str("exchange = \"\"\n");
    scene.walrelay(&["check"]).assert_done().assert_says(&[
        "! queue outbox.event.startup_keys does not exist, and rows of the outbox lead to it",
    ]);
}
