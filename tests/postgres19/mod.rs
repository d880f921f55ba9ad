//! Tests of what only PostgreSQL 19 does. `make matrix` fetches that version and runs these tests;
//! every other test may run on any version (`WALRELAY_TEST_POSTGRES`).

mod repack;

use rustix::process::Signal;
use serde_json::Value;
use walrelay_harness::proc::signal;
use walrelay_harness::{Postgres, PostgresOptions};

use crate::support::faults::{CliFixture, OUTBOX_SQL};
use crate::support::session::Session;
use crate::support::{LIMIT, until};

/// With the defaults of the server where the harness sets something else.
fn postgres(settings: &[(&str, &str)], hba: Option<&str>) -> Postgres {
    let own = [("wal_level", "replica")];
    let settings =
        own.iter().chain(settings).map(|(name, value)| ((*name).into(), (*value).into()));
    let (settings, hba) = (settings.collect(), hba.map(str::to_owned));
    let options = PostgresOptions { settings, hba, version: Some(19), ..Default::default() };
    Postgres::start(options).unwrap()
}

fn keys(scene: &CliFixture<'_>) -> Vec<String> {
    let records = scene.carry(&[&scene.topic()]);
    records.iter().map(|record| record.key().unwrap().to_owned()).collect()
}

#[test]
#[ignore = "needs PostgreSQL 19: make matrix"]
fn the_default_wal_level_is_enough_and_follows_the_slots() {
    let postgres = postgres(&[], None);
    let scene = CliFixture::on(&postgres, "pg19_level");
    let level = || scene.sql("SHOW effective_wal_level");
    scene.make_topic(&scene.topic(), 1);
    // GIVEN no slot THEN nothing is wrong with the level, and init makes everything
    let before = scene.walrelay(&["check"]);
    before
        .assert_says(&["✓ wal_level is replica: the first logical slot raises", "[slot.missing]"]);
    scene.walrelay(&["init"]).assert_done();
    assert_eq!(level(), "logical");
    let ready = scene.walrelay(&["check"]);
    ready.assert_done().assert_says(&["✓ wal_level is replica, and effective_wal_level logical"]);
    scene.insert("1", "{}");
    assert_eq!(keys(&scene), ["1"]);
    // WHEN the last logical slot is dropped THEN that is said, and the level is lowered
    let dropped = scene.walrelay(&["slot", "drop", "--yes"]);
    dropped.assert_done().assert_says(&["last logical slot", "lowers effective_wal_level"]);
    until("the lower level", LIMIT, || (level() == "replica").then_some(()));
    scene.insert("2", "{}");
    // WHEN it is made again THEN it delivers what is written from then on
    scene.walrelay(&["slot", "create"]).assert_done();
    assert_eq!(level(), "logical");
    scene.insert("3", "{}");
    assert_eq!(keys(&scene), ["1", "3"]);
    // AND what only this version knows of a slot is shown
    let shown = scene.walrelay(&["slot", "show", "--json"]);
    let shown: Value = serde_json::from_str(&shown.assert_done().out).unwrap();
    assert_eq!(shown["failover"], false);
    assert_eq!(shown.get("slotsync_skip_reason"), Some(&Value::Null));
}

#[test]
#[ignore = "needs PostgreSQL 19: make matrix"]
fn a_slot_that_waits_for_a_process_of_the_server_says_so() {
    let postgres = postgres(&[], None);
    let scene = CliFixture::on(&postgres, "pg19_waits");
    scene.make_topic(&scene.topic(), 1);
    // GIVEN a process that does not take notice of anything
    let session = Session::open(&scene.url).unwrap();
    let pid = session.first_value("SELECT pg_backend_pid()::text").unwrap().unwrap();
    let pid: u32 = pid.parse().unwrap();
    signal(pid, Signal::STOP).unwrap();
    let mut init = scene.spawn(&["init"]);
    let reason = "waiting for every process of Postgres to take over effective_wal_level";
    init.wait_to_say(reason);
    // THEN it waits until that process goes on
    signal(pid, Signal::CONT).unwrap();
    init.wait().assert_done().assert_says(&["now nothing is missing"]);
}

#[test]
#[ignore = "needs PostgreSQL 19: make matrix"]
fn an_outbox_that_all_tables_leave_out_is_refused() {
    let postgres = postgres(&[], None);
    let scene = CliFixture::on(&postgres, "pg19_except");
    scene.sql(OUTBOX_SQL);
    scene.sql("CREATE TABLE other (id int PRIMARY KEY)");
    scene.publish("ALL TABLES EXCEPT (TABLE outbox, other)");
    scene.make_slot();
    scene.make_topic(&scene.topic(), 1);
    scene.insert("lost", "{}");
    // THEN nothing is said to be well, and nothing is passed over
    let words = [
        "does not contain public.outbox: it is FOR ALL TABLES EXCEPT",
        "ALTER PUBLICATION \"walrelay\" SET ALL TABLES EXCEPT (TABLE \"public\".\"other\");",
    ];
    scene.assert_refused(4, "publication.table-missing", &words);
    let init = scene.walrelay(&["init"]);
    assert_eq!(init.code, 1, "{init}");
    init.assert_says(&words);
    // WHEN that statement was run THEN the outbox is published, and the other table is not
    scene.sql("ALTER PUBLICATION walrelay SET ALL TABLES EXCEPT (TABLE public.other)");
    let text = "rows of that time would be missing";
    scene.walrelay(&["check"]).assert_done().assert_says(&["lets public.outbox through", text]);
    let mut relay = scene.spawn(&["run"]);
    scene.wait_streaming(&mut relay);
    scene.insert("1", "{}");
    scene.wait_confirmed(&mut relay);
    // WHEN the outbox is locked THEN the session that looks at the publication does not wait for it
    let session = Session::open(&scene.url).unwrap();
    session.first_value("BEGIN; LOCK TABLE outbox").unwrap();
    let waiting = || scene.sql("SELECT count(*) FROM pg_locks WHERE NOT granted");
    until("a look at the publication", LIMIT, || (waiting() == "1").then_some(()));
    until("the end of that look", LIMIT, || (waiting() == "0").then_some(()));
    session.first_value("COMMIT").unwrap();
    // WHEN the outbox is left out while the relay runs THEN it ends, at each start, until somebody
    // has looked
    scene.sql("ALTER PUBLICATION walrelay SET ALL TABLES EXCEPT (TABLE outbox)");
    scene.insert("missing", "{}");
    relay.wait().assert_fault(4, "publication.table-missing", &["walrelay resume"]);
    scene.sql("ALTER PUBLICATION walrelay SET ALL TABLES");
    let again = scene.walrelay(&["run"]);
    again.assert_fault(4, "publication.table-missing", &["stopped since"]);
    scene.walrelay(&["resume", "--yes"]).assert_done();
    scene.insert("2", "{}");
    assert_eq!(keys(&scene), ["1", "2"]);
}

#[test]
#[ignore = "needs PostgreSQL 19: make matrix"]
fn warnings_of_a_login_are_logged_and_break_nothing() {
    let hba = "host all relay 127.0.0.1/32 md5\nhost all postgres 127.0.0.1/32 trust";
    let postgres = postgres(&[], Some(hba));
    let mut scene = CliFixture::on(&postgres, "pg19_login");
    scene.walrelay(&["init"]).assert_done();
    scene.make_topic(&scene.topic(), 1);
    scene.sql(
        "SET password_encryption = 'md5';
         CREATE ROLE relay LOGIN REPLICATION PASSWORD 'secret' VALID UNTIL 'tomorrow'",
    );
    let own = scene.url.clone();
    scene.url = own.replace("postgres@", "relay:secret@");
    scene.insert("1", "{}");
    let mut relay = scene.spawn(&["run"]);
    scene.wait_streaming(&mut relay);
    scene.wait_confirmed(&mut relay);
    let ended = relay.stop();
    for remark in
        ["MD5 password support is deprecated", "The password for role \\\"relay\\\" will expire"]
    {
        // Once, though the stream, the session beside it and the slot watch each log in.
        let lines = ended.err.lines().filter(|line| line.contains(remark));
        let lines: Vec<_> = lines.filter(|line| line.contains("source.notice")).collect();
        assert_eq!(lines.len(), 1, "{remark}: {lines:?}\n{ended}");
    }
    assert_eq!(scene.records().len(), 1);
}

#[test]
#[ignore = "needs PostgreSQL 19: make matrix"]
fn a_standby_says_why_the_slot_is_not_synchronized() {
    let primary = postgres(&[], None);
    let mut scene = CliFixture::on(&primary, "pg19_sync");
    scene.walrelay(&["init"]).assert_done();
    scene.walrelay(&["slot", "drop", "--yes"]).assert_done();
    scene.walrelay(&["slot", "create", "--failover"]).assert_done();
    scene.sql("SELECT pg_create_physical_replication_slot('standby', true)");
    // GIVEN a standby that begins behind the position which the slot still needs
    scene.sql("SELECT pg_switch_wal()");
    scene.insert("1", "{}");
    let standby = Postgres::standby(&primary).unwrap();
    standby.synchronize_slots(&primary).unwrap();
    let asked =
        "SELECT slotsync_skip_reason FROM pg_replication_slots WHERE slot_name = 'pg19_sync'";
    let reason = until("a reason", LIMIT, || {
        Some(standby.sql("postgres", asked).unwrap()).filter(|reason| !reason.is_empty())
    });
    // THEN it is shown on the standby, and warned of
    scene.url = standby.url("pg19_sync");
    let shown = scene.walrelay(&["slot", "show"]);
    let reason_line = format!("slotsync_skip_reason {reason}");
    shown.assert_done().assert_says(&["failover true", "synced true", &reason_line]);
    let says = format!("has not synchronized slot pg19_sync the last time ({reason})");
    scene.walrelay(&["check"]).assert_says(&["[source.standby]", &says]);
}
