//! Connecting to a real Postgres: logins, TLS, hosts,
//! refusals, the stream. And to servers that misbehave.

mod cluster;
mod scripted;

use std::io;
use std::time::Duration;

use self::cluster::{cluster, info};
use walrelay::base::transport::Transport;
use walrelay::source::connect::{
    ConnectCause, ConnectError, ConnectErrorKind, StartReplication, open, open_stream,
};
use walrelay::source::sql;
use walrelay_harness::free_port;

const SOON: Duration = Duration::from_secs(20);

/// Logs in on both sides and proves that each answers.
async fn both_sides(parameters: &str) -> Result<(), ConnectError> {
    let info = info(parameters);
    let mut control = open(&info).await?;
    let rows = control.query("IDENTIFY_SYSTEM").await?;
    let identity: Vec<&str> = rows[0].iter().filter_map(Option::as_deref).collect();
    assert!(identity[0].parse::<u64>().unwrap() > 0);
    assert_eq!((identity[1], identity[3]), ("1", "app"));
    let sql = sql::connect(&info).await?;
    let row = sql.client.query_one("SELECT current_user::text", &[]).await.unwrap();
    assert_eq!(row.get::<_, String>(0), info.user);
    Ok(())
}

fn no_canary(error: &ConnectError, parameters: &str) {
    let fault = error.fault(&info(parameters), "s", "p");
    let told = format!("{error} {error:?} {fault} {fault:?} {:?}", info(parameters));
    assert!(!told.contains("canary"), "{told}");
}

#[tokio::test]
async fn every_login_works_on_every_kind_of_link() {
    for login in [
        "trusted",
        "clear password=canary",
        "hashed password=canary",
        "scrammed password=canary",
        "unicode password=canär²",
    ] {
        for link in ["sslmode=disable", "sslmode=prefer", "sslmode=require"] {
            both_sides(&format!("user={login} {link}"))
                .await
                .unwrap_or_else(|e| panic!("{login} {link}: {e}"));
        }
    }
    both_sides("user=certified sslmode=verify-full sslrootcert=@/ca.crt sslcert=@/certified.crt sslkey=@/certified.key")
        .await
        .unwrap();
    both_sides("host=@ user=trusted sslmode=require").await.unwrap();
    both_sides("host=@ user=scrammed password=canary").await.unwrap();
}

#[tokio::test]
async fn a_wrong_or_missing_password_is_fatal_on_both_sides_and_stays_secret() {
    for user in ["clear", "hashed", "scrammed"] {
        let parameters = format!("user={user} password=wrongcanary");
        let info = info(&parameters);
        for error in [open(&info).await.unwrap_err(), sql::connect(&info).await.unwrap_err()] {
            assert_eq!(error.sqlstate(), Some("28P01"), "{error}");
            assert_eq!(error.kind(), ConnectErrorKind::Fatal);
            assert_eq!(error.fault(&info, "s", "p").code, "source.password");
            no_canary(&error, &parameters);
        }
        let parameters = format!("user={user}");
        let info = cluster::info(&parameters);
        for error in [open(&info).await.unwrap_err(), sql::connect(&info).await.unwrap_err()] {
            assert!(matches!(error.cause, ConnectCause::NoPassword), "{error}");
        }
    }
}

#[tokio::test]
async fn refusals_carry_their_sqlstate_and_what_mends_them() {
    let cases = [
        ("user=stranger sslmode=disable", "28000", "source.pg-hba"),
        ("user=trusted dbname=nowhere", "3D000", "source.no-database"),
        ("user=plain password=canary", "42501", "source.not-permitted"),
        ("user=unencrypted sslmode=require", "28000", "source.pg-hba"),
    ];
    for (parameters, sqlstate, code) in cases {
        let error = open(&info(parameters)).await.unwrap_err();
        assert_eq!(error.sqlstate(), Some(sqlstate), "{error}");
        assert_eq!(error.kind(), ConnectErrorKind::Fatal);
        let fault = error.fault(&info(parameters), "s", "p");
        assert_eq!(fault.code, code);
        no_canary(&error, parameters);
        if code == "source.pg-hba" {
            assert!(fault.mend.contains("127.0.0.1/32"), "{}", fault.mend);
        }
    }
    // As libpq, `prefer` falls back to plain when the server only refuses TLS.
    both_sides("user=unencrypted sslmode=prefer").await.unwrap();
}

#[tokio::test]
async fn a_database_that_is_closed_for_a_while_may_take_a_connection_later() {
    let admin = sql::connect(&info("host=@ user=postgres")).await.unwrap();
    let made = "CREATE DATABASE closed ALLOW_CONNECTIONS false";
    admin.client.batch_execute(made).await.unwrap();
    let info = info("user=trusted dbname=closed");
    for error in [open(&info).await.unwrap_err(), sql::connect(&info).await.unwrap_err()] {
        assert_eq!((error.sqlstate(), error.kind()), (Some("55000"), ConnectErrorKind::Retry));
        let fault = error.fault(&info, "s", "p");
        let mend = "ALTER DATABASE \"closed\" ALLOW_CONNECTIONS true;";
        assert_eq!((fault.code, fault.mend.as_str()), ("source.refused", mend));
    }
}

#[tokio::test]
async fn refusals_of_one_sqlstate_are_told_apart() {
    let admin = sql::connect(&info("host=@ user=postgres")).await.unwrap();
    for made in [
        "CREATE DATABASE revoked",
        "REVOKE CONNECT ON DATABASE revoked FROM PUBLIC",
        "CREATE DATABASE limited CONNECTION LIMIT 0",
        "CREATE DATABASE invalid",
        "UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'invalid'",
        "CREATE ROLE limited LOGIN CONNECTION LIMIT 0",
    ] {
        admin.client.batch_execute(made).await.unwrap();
    }
    let key = "sslmode=require sslcert=@/server.crt sslkey=@/server.key";
    let of_another = format!("user=certified {key}");
    let cases = [
        ("host=@ user=peered", "source.login", "as the operating-system user"),
        (&of_another, "source.login", "the common name of sslcert must be the role"),
        ("user=certified sslmode=require", "source.login", "sslcert="),
        // Without TLS the refusal would be another one, and its mend would not help.
        ("user=certified sslmode=prefer", "source.login", "sslcert="),
        ("user=stranger sslmode=prefer", "source.pg-hba", "hostssl \"app\" \"stranger\""),
        ("user=trusted dbname=revoked", "source.not-permitted", "GRANT CONNECT ON DATABASE"),
        (
            "user=trusted dbname=limited",
            "source.full",
            "ALTER DATABASE \"limited\" CONNECTION LIMIT",
        ),
        ("host=@ user=limited", "source.full", "ALTER ROLE \"limited\" CONNECTION LIMIT"),
        ("user=trusted dbname=invalid", "source.refused", "DROP DATABASE"),
    ];
    for (parameters, code, mend) in cases {
        let info = info(parameters);
        let error = sql::connect(&info).await.unwrap_err();
        let fault = error.fault(&info, "s", "p");
        assert_eq!(fault.code, code, "{fault}");
        assert!(fault.mend.contains(mend), "{fault}");
    }
}

#[tokio::test]
async fn tls_verification_is_enforced_on_both_sides() {
    both_sides("user=trusted sslmode=verify-full sslrootcert=@/ca.crt").await.unwrap();
    both_sides("user=trusted host=localhost sslmode=verify-ca sslrootcert=@/ca.crt").await.unwrap();
    for parameters in [
        "user=trusted sslmode=verify-ca sslrootcert=@/other.crt",
        "user=trusted host=localhost sslmode=verify-full sslrootcert=@/ca.crt",
    ] {
        let info = info(parameters);
        for error in [open(&info).await.unwrap_err(), sql::connect(&info).await.unwrap_err()] {
            let fault = error.fault(&info, "s", "p");
            assert_eq!(fault.code, "source.tls-untrusted", "{fault}");
            assert_eq!(error.kind(), ConnectErrorKind::Fatal);
        }
    }
    let nobody = info("user=certified sslmode=require");
    assert_eq!(open(&nobody).await.unwrap_err().kind(), ConnectErrorKind::Fatal);
}

#[tokio::test]
async fn no_schema_but_that_of_postgres_is_searched_whatever_is_set() {
    let admin = sql::connect(&info("host=@ user=postgres")).await.unwrap();
    let set = "ALTER ROLE scrammed IN DATABASE app SET search_path = public, pg_catalog";
    admin.client.batch_execute(set).await.unwrap();
    let parameters = "user=scrammed password=canary";
    for options in ["", " options='-c search_path=public,pg_catalog'"] {
        let info = info(&format!("{parameters}{options}"));
        let sql = sql::connect(&info).await.unwrap();
        let row = sql.client.query_one("SHOW search_path", &[]).await.unwrap();
        assert_eq!(row.get::<_, &str>(0), "", "SQL{options}");
        let mut control = open(&info).await.unwrap();
        let path = control.query("SHOW search_path").await.unwrap();
        assert_eq!(path, [[Some(String::new())]], "replication{options}");
    }
}

#[tokio::test]
async fn dead_hosts_are_passed_over() {
    let (port, dead) = (cluster().port, free_port().unwrap());
    both_sides(&format!("host=127.0.0.1,127.0.0.1 port={dead},{port} user=trusted")).await.unwrap();
    let found =
        open(&info(&format!("host=/nowhere,127.0.0.1 port={port} user=trusted"))).await.unwrap();
    assert_eq!(found.host().name, "127.0.0.1");
    let error = open(&info(&format!("host=127.0.0.1,127.0.0.1 port={dead},{dead} user=trusted")))
        .await
        .unwrap_err();
    assert!(matches!(&error.cause, ConnectCause::All(each) if each.len() == 2), "{error}");
    assert_eq!(error.kind(), ConnectErrorKind::Retry);
    let error = open(&info("host=no..host user=trusted")).await.unwrap_err();
    assert!(matches!(error.cause, ConnectCause::Resolve(_)), "{error}");
    assert_eq!(error.kind(), ConnectErrorKind::Retry);
}

#[tokio::test]
async fn a_standby_beside_a_dead_primary_is_no_reason_to_give_up() {
    let (standby, dead) = (cluster().standby_port, free_port().unwrap());
    let info = info(&format!("host=127.0.0.1,127.0.0.1 port={dead},{standby} user=trusted"));
    for error in [open(&info).await.unwrap_err(), sql::connect(&info).await.unwrap_err()] {
        assert!(error.is_wrong_role(), "{error}");
        assert_eq!(error.kind(), ConnectErrorKind::Retry);
        assert_eq!(error.fault(&info, "s", "p").code, "source.unfit");
    }
}

#[tokio::test]
async fn target_session_attrs_picks_the_right_server() {
    let (primary, standby) = (cluster().port, cluster().standby_port);
    for (wanted, port) in [
        ("any", standby),
        ("primary", primary),
        ("read-write", primary),
        ("standby", standby),
        ("read-only", standby),
        ("prefer-standby", standby),
    ] {
        // The wrong one first, where there is a wrong one.
        let first = if wanted == "any" || port == primary { standby } else { primary };
        let order = format!("{first},{port}");
        let info = info(&format!(
            "host=127.0.0.1,127.0.0.1 port={order} user=trusted target_session_attrs={wanted}"
        ));
        assert_eq!(open(&info).await.unwrap().host().port, port, "{wanted}");
        assert_eq!(sql::connect(&info).await.unwrap().server.port, port, "{wanted}");
    }
    let only = |wanted: &str| info(&format!("user=trusted target_session_attrs={wanted}"));
    let error = open(&only("standby")).await.unwrap_err();
    assert!(matches!(error.cause, ConnectCause::WrongRole(_)), "{error}");
    assert_eq!(error.kind(), ConnectErrorKind::Retry);
    open(&only("prefer-standby")).await.unwrap();
    let read_only = "user=trusted target_session_attrs=read-write options='-c default_transaction_read_only=on'";
    assert!(sql::connect(&info(read_only)).await.is_err());
}

/// Reads whole messages until one is a change of kind `wanted`.
fn until_change(transport: &mut Transport, wanted: u8) {
    let (mut bytes, mut buf) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        match transport.read(&mut buf) {
            Ok(0) => panic!("the stream ended"),
            Ok(n) => bytes.extend_from_slice(&buf[..n]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                assert!(transport.wait(SOON, false).unwrap(), "nothing came");
            }
            Err(error) => panic!("{error}"),
        }
        while let Some(length) = bytes.get(1..5) {
            let length = 1 + u32::from_be_bytes(length.try_into().unwrap()) as usize;
            if bytes.len() < length {
                break;
            }
            let message = bytes.drain(..length).collect::<Vec<_>>();
            assert_eq!(message[0], b'd');
            // CopyData header, then XLogData header of 25 bytes, then the change.
            if message[5] == b'w' && message[30] == wanted {
                return;
            }
        }
    }
}

#[tokio::test]
async fn the_stream_flows_in_plain_in_tls_and_on_a_unix_socket_and_a_slot_serves_one() {
    let links = ["sslmode=disable", "sslmode=verify-full sslrootcert=@/ca.crt", "host=@"];
    for (id, link) in links.into_iter().enumerate() {
        let info = info(&format!("user=trusted {link}"));
        let start = StartReplication {
            slot: format!("s{id}"),
            publication: "p\"q".to_owned(),
            messages: true,
            binary: true,
        };
        // GIVEN a slot made by hand
        let mut control = open(&info).await.unwrap();
        let made = format!("CREATE_REPLICATION_SLOT s{id} LOGICAL pgoutput");
        assert_eq!(control.query(&made).await.unwrap()[0][0].as_deref(), Some(&*start.slot));
        assert_eq!(control.query(&made).await.unwrap_err().sqlstate(), Some("42710"));
        assert_eq!(control.query("SELECT 1, NULL").await.unwrap(), [[Some("1".to_owned()), None]]);
        // WHEN it streams and a row comes
        let mut session = control.start(&start).await.unwrap();
        assert_eq!(session.timeline, 1);
        assert!(session.transport.is_loopback());
        let sql = sql::connect(&info).await.unwrap();
        sql.client.execute("INSERT INTO public.t VALUES ($1, 'x')", &[&(id as i32)]).await.unwrap();
        // THEN it arrives, and the walsender is the one we were told
        until_change(&mut session.transport, b'C');
        let active =
            format!("SELECT active_pid FROM pg_replication_slots WHERE slot_name = 's{id}'");
        let pid: i32 = sql.client.query_one(&active, &[]).await.unwrap().get(0);
        assert_eq!(pid, session.backend_pid);
        // AND nobody else gets the slot
        let error = open_stream(&info, &start).await.unwrap_err();
        assert_eq!((error.sqlstate(), error.kind()), (Some("55006"), ConnectErrorKind::Busy));
        session.transport.shutdown().unwrap();
    }
    let missing = StartReplication {
        slot: "none".to_owned(),
        publication: "p".to_owned(),
        messages: false,
        binary: false,
    };
    let error = open_stream(&info("user=trusted"), &missing).await.unwrap_err();
    assert_eq!((error.sqlstate(), error.kind()), (Some("42704"), ConnectErrorKind::Fatal));
    assert_eq!(error.fault(&info("user=trusted"), "none", "p").code, "slot.missing");
}

#[tokio::test]
async fn a_large_transaction_comes_through_tls_whole() {
    let info = info("user=trusted sslmode=require");
    let start = StartReplication {
        slot: "large".to_owned(),
        publication: "p\"q".to_owned(),
        messages: false,
        binary: false,
    };
    let mut control = open(&info).await.unwrap();
    control.query("CREATE_REPLICATION_SLOT large LOGICAL pgoutput").await.unwrap();
    let mut session = control.start(&start).await.unwrap();
    let sql = sql::connect(&info).await.unwrap();
    let insert =
        "INSERT INTO public.t SELECT i, repeat('x', 500) FROM generate_series(1000, 11000) i";
    sql.client.execute(insert, &[]).await.unwrap();
    until_change(&mut session.transport, b'C');
}
