//! What needs no server: commands, rows, versions, and the verdict on every kind of refusal.

use super::super::conninfo;
use super::*;
use crate::error::Exit;

fn info() -> ConnInfo {
    conninfo::parse("postgres://me:canary@db:5433/app", &|_| None).unwrap()
}

fn refusal(sqlstate: &str, routine: &str, message: &str) -> ConnectError {
    let error = ServerError {
        sqlstate: sqlstate.to_owned(),
        routine: routine.to_owned(),
        message: message.to_owned(),
        ..ServerError::default()
    };
    ConnectError::Server { at: "db:5433".to_owned(), error: Box::new(error) }
}

#[test]
fn names_are_quoted_once_for_identifiers_and_twice_in_the_publication_list() {
    let mut start = StartReplication {
        slot: "s".to_owned(),
        publication: r#"o'b"x"#.to_owned(),
        messages: false,
        binary: false,
    };
    assert_eq!(
        start.command(),
        r#"START_REPLICATION SLOT "s" LOGICAL 0/0 (proto_version '1', publication_names '"o''b""x"')"#
    );
    start.messages = true;
    start.binary = true;
    assert!(start.command().ends_with(", messages 'true', binary 'true')"));
}

#[test]
fn versions_are_numbers_as_in_server_version_num() {
    assert_eq!(version("17.11 (Debian 17.11-1.pgdg12+1)"), Some(170_011));
    assert_eq!(version("15.18"), Some(150_018));
    assert_eq!(version("18beta1"), Some(180_000));
    assert_eq!(version("9.6.24"), Some(90_624));
    assert_eq!(version(""), None);
}

#[test]
fn a_row_is_read_or_refused() {
    let row = [0, 2, 0, 0, 0, 1, b'x', 255, 255, 255, 255];
    assert_eq!(cells(&row), Some(vec![Some("x".to_owned()), None]));
    for cut in 0..row.len() {
        assert_eq!(cells(&row[..cut]), None);
    }
}

#[test]
fn every_sqlstate_has_its_kind() {
    let kind = |sqlstate: &str| refusal(sqlstate, "", "").kind();
    assert_eq!(kind("55006"), Kind::Busy);
    for stopping in ["57P01", "57P02", "57P03"] {
        assert_eq!(kind(stopping), Kind::Stopping);
    }
    for retry in ["08006", "53300", "53400", "58030", "40001", "XX000", "57014"] {
        assert_eq!(kind(retry), Kind::Retry, "{retry}");
    }
    for fatal in
        ["28000", "28P01", "3D000", "42704", "42501", "42601", "55000", "0A000", "58P01", "57P04", "?", ""]
    {
        assert_eq!(kind(fatal), Kind::Fatal, "{fatal}");
    }
    let at = || "h".to_owned();
    let refused = ConnectError::Io { at: at(), why: at() };
    assert_eq!(refused.kind(), Kind::Retry);
    assert_eq!(ConnectError::Resolve { at: at(), why: at() }.kind(), Kind::Retry);
    let tls = ConnectError::Tls { at: at(), why: at(), untrusted: true };
    assert_eq!(tls.kind(), Kind::Fatal);
    let both = |last| ConnectError::All(vec![refused.clone(), refusal(last, "", "")]);
    assert_eq!(both("57P03").kind(), Kind::Retry);
    assert_eq!(ConnectError::All(vec![refusal("57P03", "", ""); 2]).kind(), Kind::Stopping);
}

#[test]
fn every_fault_says_what_mends_it_and_none_shows_the_password() {
    let hba = r#"no pg_hba.conf entry for host "10.1.2.3", user "me", database "app", no encryption"#;
    let cases = [
        (refusal("28P01", "auth_failed", "x"), Exit::Source, "source.password", "source.url or PGPASSWORD"),
        (refusal("28000", "ClientAuthentication", hba), Exit::Source, "source.pg-hba", "\nhost \"app\" \"me\" 10.1.2.3/32 scram-sha-256"),
        (refusal("28000", "InitializeSessionUserId", "x"), Exit::Source, "source.login", "CREATE ROLE \"me\""),
        (refusal("3D000", "", "x"), Exit::Source, "source.no-database", "createdb app"),
        (refusal("42501", "", "x"), Exit::Source, "source.not-permitted", "ALTER ROLE \"me\" REPLICATION;"),
        (refusal("42704", "ReplicationSlotAcquire", "x"), Exit::Slot, "slot.missing", "walrelay slot create"),
        (refusal("42704", "get_publication_oid", "x"), Exit::Source, "publication.missing", "walrelay init"),
        (refusal("55006", "", "x"), Exit::Slot, "slot.busy", "slot_name = 'sl'"),
        (refusal("55000", "CheckLogicalDecodingRequirements", "x"), Exit::Source, "source.wal-level", "wal_level"),
        (refusal("55000", "", "x"), Exit::Slot, "slot.unusable", "walrelay slot drop"),
        (refusal("53300", "", "x"), Exit::Source, "source.full", "max_wal_senders"),
        (refusal("57P03", "", "x"), Exit::Source, "source.stopping", "pg_isready -h db -p 5433"),
        (ConnectError::NoPassword { at: "h".to_owned() }, Exit::Source, "source.no-password", "db:5433:app:me:PASSWORD"),
        (ConnectError::Unfit { at: "h".to_owned(), wanted: super::super::settings::TargetSessionAttrs::Primary }, Exit::Source, "source.unfit", "target_session_attrs=primary"),
    ];
    for (error, exit, code, words) in cases {
        let fault = error.fault(&info(), "sl", "pb");
        assert_eq!((fault.code, fault.exit), (code, exit));
        assert!(fault.mend.contains(words), "{}", fault.mend);
        assert!(!format!("{fault} {fault:?}").contains("canary"));
    }
    let all = ConnectError::All(vec![refusal("3D000", "", "x"), refusal("53300", "", "y")]);
    let fault = all.fault(&info(), "sl", "pb");
    assert_eq!(fault.code, "source.full");
    assert!(fault.what.contains('x') && fault.what.contains('y'));
}
