//! PostgreSQL: starts, answers, keeps what was committed, ends.

use std::time::{Duration, Instant};

use walrelay_harness::{Postgres, PostgresOptions};

use crate::support::shared_postgres;

fn start(options: PostgresOptions) -> Postgres {
    let start = Instant::now();
    let postgres = Postgres::start(options).unwrap_or_else(|error| panic!("{error}"));
    println!("PostgreSQL ready in {} ms", start.elapsed().as_millis());
    postgres
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn committed_rows_survive_every_kind_of_end() {
    // GIVEN a server with a slot and a committed row
    let mut postgres = start(PostgresOptions::default());
    postgres.create_database("app").unwrap();
    postgres.sql("app", "CREATE TABLE kept (n int)").unwrap();
    let slot = "SELECT count(*) FROM pg_create_logical_replication_slot('kept', 'pgoutput')";
    assert_eq!(postgres.sql("app", slot).unwrap(), "1");
    let count = |postgres: &Postgres| postgres.sql("app", "SELECT count(*) FROM kept").unwrap();
    let (port, first_pid) = (postgres.port(), postgres.pid());

    // WHEN it ends in each way and is started again THEN all committed rows are there
    for (round, name) in ["kill9", "crash", "stop_fast"].into_iter().enumerate() {
        postgres.sql("app", "INSERT INTO kept VALUES (1)").unwrap();
        match name {
            "kill9" => postgres.kill9().unwrap(),
            "crash" => postgres.crash().unwrap(),
            _ => {
                let took = postgres.stop_fast(Duration::from_secs(10)).unwrap();
                println!("fast shutdown took {} ms", took.as_millis());
            }
        }
        assert!(!postgres.answers());
        let start = Instant::now();
        postgres.start_again().unwrap();
        println!("after {name}: ready again in {} ms", start.elapsed().as_millis());
        assert_eq!(count(&postgres), (round + 1).to_string());
    }
    assert_eq!(postgres.port(), port);
    assert_ne!(postgres.pid(), first_pid);
    assert_eq!(postgres.sql("app", "SELECT slot_name FROM pg_replication_slots").unwrap(), "kept");
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn options_are_honoured_and_nothing_stays() {
    // GIVEN settings, and an hba file that refuses TCP
    let options = PostgresOptions {
        settings: vec![("wal_sender_timeout".into(), "5s".into())],
        hba: Some("host all all 127.0.0.1/32 reject".into()),
        ..PostgresOptions::default()
    };
    let postgres = start(options);
    // THEN both hold, and the socket still lets the harness in
    assert_eq!(postgres.sql("postgres", "SHOW wal_sender_timeout").unwrap(), "5s");
    assert_eq!(postgres.sql("postgres", "SHOW fsync").unwrap(), "on");
    let port = postgres.port().to_string();
    let refused = std::process::Command::new(postgres.bin_dir().unwrap().join("psql"))
        .args(["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-c", "SELECT 1"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("rejects connection"), "{said}");
    assert!(postgres.sql("postgres", "SELECT nonsense").is_err());
    // and it is no copy of another
    let system = |postgres: &Postgres| {
        postgres.sql("postgres", "SELECT system_identifier FROM pg_control_system()").unwrap()
    };
    assert_ne!(system(&postgres), system(shared_postgres()));
    // WHEN it is dropped THEN process and folder are gone
    let (folder, pid) = (postgres.folder().to_owned(), postgres.pid());
    drop(postgres);
    assert!(!folder.exists());
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn a_start_that_fails_shows_the_servers_own_words() {
    let options = PostgresOptions {
        settings: vec![("wal_level".into(), "nonsense".into())],
        ..PostgresOptions::default()
    };
    let error = Postgres::start(options).err().expect("a wrong setting").to_string();
    assert!(error.contains("invalid value for parameter \"wal_level\""), "{error}");
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn a_version_that_is_not_installed_says_what_to_run() {
    let options = PostgresOptions { version: Some(9), ..PostgresOptions::default() };
    let error = Postgres::start(options).err().expect("no such version").to_string();
    assert!(error.contains("run scripts/setup --postgres 9"), "{error}");
}
