//! Tests that need no server: commands, rows, versions, and the verdict on every kind of refusal.

use super::super::conninfo;
use super::super::settings::TargetSessionAttrs;
use super::*;
use walrelay_base::error::Exit;
use walrelay_base::tls::{TlsCause, TlsFailure};

fn info() -> ConnInfo {
    conninfo::parse("postgres://me:canary@db:5433/app", &|_| None).unwrap()
}

fn at(server: &str, cause: ConnectCause) -> ConnectError {
    ConnectError::new(server, cause)
}

fn refusal(sqlstate: &str, routine: &str, message: &str) -> ConnectError {
    let error = ServerError {
        sqlstate: sqlstate.to_owned(),
        routine: routine.to_owned(),
        message: message.to_owned(),
        ..ServerError::default()
    };
    ConnectError::new("db:5433", ConnectCause::Server(Box::new(error)))
}

#[test]
fn names_are_quoted_once_for_identifiers_and_twice_in_the_publication_list() {
    let mut start = StartReplication {
        slot: "s".to_owned(),
        publication: r#"o'b"x"#.to_owned(),
        ..StartReplication::default()
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
fn connecting_can_be_spawned_and_is_small() {
    fn sendable<T: Send>(value: T) -> T {
        value
    }
    let (info, start) = (info(), StartReplication::default());
    let stream = sendable(open_stream(&info, &start));
    let sql = sendable(super::super::sql::connect(&info));
    assert!(size_of_val(&stream).max(size_of_val(&sql)) < 4096);
}

#[test]
fn a_row_is_read_or_refused() {
    let row = [0, 2, 0, 0, 0, 1, b'x', 255, 255, 255, 255];
    assert_eq!(values(&row), Some(vec![Some("x".to_owned()), None]));
    for cut in 0..row.len() {
        assert_eq!(values(&row[..cut]), None);
    }
}

#[test]
fn every_sqlstate_has_its_kind() {
    let kind = |sqlstate: &str| refusal(sqlstate, "", "").kind();
    assert_eq!(kind("55006"), ConnectErrorKind::Busy);
    for stopping in ["57P01", "57P02", "57P03"] {
        assert_eq!(kind(stopping), ConnectErrorKind::Stopping);
    }
    for retry in
        ["08006", "53300", "53400", "58030", "40001", "XX000", "57014", "25P03", "25P04", "55P03"]
    {
        assert_eq!(kind(retry), ConnectErrorKind::Retry, "{retry}");
    }
    for fatal in [
        "28000", "28P01", "3D000", "42704", "42501", "42601", "55000", "0A000", "58P01", "57P04",
        "?", "",
    ] {
        assert_eq!(kind(fatal), ConnectErrorKind::Fatal, "{fatal}");
    }
    let standby = refusal("55000", "StandbySlotsHaveCaughtup", "");
    assert_eq!(standby.kind(), ConnectErrorKind::Retry);
    let closed = refusal("55000", "CheckMyDatabase", "");
    assert_eq!(closed.kind(), ConnectErrorKind::Retry);
    let why = || "why".to_owned();
    let refused = at("h", ConnectCause::Io(why()));
    assert_eq!(refused.kind(), ConnectErrorKind::Retry);
    assert_eq!(at("h", ConnectCause::Resolve(why())).kind(), ConnectErrorKind::Retry);
    let expired = TlsFailure { text: why(), cause: TlsCause::Dates };
    assert_eq!(at("h", ConnectCause::Tls(expired)).kind(), ConnectErrorKind::Fatal);
    let all = |each| at("", ConnectCause::All(each));
    let both = |last| all(vec![refused.clone(), refusal(last, "", "")]);
    // localhost is two addresses; that one refuses must not hide that the other shuts down.
    assert_eq!(both("57P03").kind(), ConnectErrorKind::Stopping);
    assert_eq!(both("55006").kind(), ConnectErrorKind::Busy);
    assert_eq!(both("53300").kind(), ConnectErrorKind::Retry);
    assert_eq!(all(vec![refusal("57P03", "", ""); 2]).kind(), ConnectErrorKind::Stopping);
    // The one that is full may have the stream.
    let full = vec![refusal("53300", "", ""), refusal("57P03", "", "")];
    assert_eq!(all(full).kind(), ConnectErrorKind::Retry);
}

/// The fault of `error` has this code and exit, its
/// hint says `words`, and nothing shows the password.
fn told(error: &ConnectError, exit: Exit, code: &str, words: &str) {
    let fault = error.fault(&info(), "sl", "pb");
    assert_eq!((fault.code, fault.exit), (code, exit));
    assert!(fault.mend.contains(words), "{}", fault.mend);
    assert!(!format!("{fault} {fault:?}").contains("canary"));
}

#[test]
fn a_server_that_is_too_old_is_refused_by_its_version() {
    let role = |version: &'static str| {
        let row = [None, Some("f"), Some("off"), Some("1"), None, Some(version)];
        ServerRole::of(|at| row[at])
    };
    assert_eq!((role("140000").too_old, role("180004").too_old), (None, None));
    assert_eq!(role("130020").too_old, Some(130_020));
    let error = at("db:5433", ConnectCause::TooOld(130_020));
    assert_eq!(error.kind(), ConnectErrorKind::Fatal);
    assert!(error.to_string().contains("PostgreSQL 13 is too old"), "{error}");
    told(&error, Exit::Source, "source.version", "PostgreSQL 14");
}

#[test]
fn a_refused_login_says_what_mends_it() {
    let source = |error: ConnectError, code, words| told(&error, Exit::Source, code, words);
    let hba =
        r#"no pg_hba.conf entry for host "10.1.2.3", user "me", database "app", no encryption"#;
    let line = "\nhost \"app\" \"me\" 10.1.2.3/32 scram-sha-256";
    let wrong = refusal("28P01", "auth_failed", "x");
    source(wrong.clone(), "source.password", "source.url or PGPASSWORD");
    source(wrong, "source.password", "in psql: \\password \"me\"");
    let above = "above a line that rejects the connection";
    source(refusal("28000", "ClientAuthentication", hba), "source.pg-hba", line);
    source(refusal("28000", "ClientAuthentication", hba), "source.pg-hba", above);
    let nobody = refusal("28000", "InitializeSessionUserId", "x");
    source(nobody, "source.login", "CREATE ROLE \"me\"");
    let no_login = r#"role "me" is not permitted to log in"#;
    let no_login = refusal("28000", "InitializeSessionUserId", no_login);
    source(no_login, "source.login", "ALTER ROLE \"me\" LOGIN;");
    source(refusal("3D000", "", "x"), "source.no-database", "createdb app");
    source(refusal("42501", "", "x"), "source.not-permitted", "ALTER ROLE \"me\" REPLICATION;");
    source(refusal("53300", "", "x"), "source.full", "max_connections");
    let senders = r#"la valeur de « max_wal_senders » (actuellement 1)"#;
    source(refusal("53300", "InitProcess", senders), "source.wal-senders", "max_wal_senders = 6;");
    let senders = "max_wal_senders";
    source(refusal("53300", "InitProcess", senders), "source.wal-senders", "max_wal_senders = …;");
    source(refusal("57P03", "", "x"), "source.stopping", "pg_isready -h db -p 5433");
    let closed = refusal("55000", "CheckMyDatabase", "x");
    source(closed, "source.refused", "ALTER DATABASE \"app\" ALLOW_CONNECTIONS true;");
    source(refusal("55000", "InitPostgres", "x"), "source.refused", "");
    let peer = refusal("28000", "auth_failed", "x");
    source(peer.clone(), "source.login", "as the operating-system user");
    source(peer, "source.login", "\nhost \"app\" \"me\" CLIENT_ADDRESS/32 scram-sha-256");
    let pooler = refusal("08P01", "", "unsupported startup parameter: replication");
    source(pooler, "source.protocol", "the address of Postgres itself");
    let revoked = refusal("42501", "CheckMyDatabase", "x");
    source(revoked, "source.not-permitted", "GRANT CONNECT ON DATABASE \"app\" TO \"me\";");
    let of_role = refusal("53300", "InitializeSessionUserId", "x");
    source(of_role, "source.full", "ALTER ROLE \"me\" CONNECTION LIMIT");
    let of_database = refusal("53300", "CheckMyDatabase", "x");
    source(of_database, "source.full", "ALTER DATABASE \"app\" CONNECTION LIMIT");
    let none = at("h", ConnectCause::NoPassword);
    source(none, "source.no-password", "db:5433:app:me:PASSWORD");
    let wrong_role = at("h", ConnectCause::WrongRole(TargetSessionAttrs::Primary));
    source(wrong_role, "source.unfit", "target_session_attrs=primary");
}

#[test]
fn the_advice_on_pg_hba_keeps_tls() {
    let mend = |error: &ConnectError, parameters: &str| {
        let url = format!("postgres://me@db:5433/app?{parameters}");
        let info = conninfo::parse(&url, &|_| None).unwrap();
        error.fault(&info, "sl", "pb").mend
    };
    let no_line = refusal("28000", "ClientAuthentication", "no entry for \"x\"");
    let told = mend(&no_line, "sslmode=disable");
    assert!(told.contains("has a hostssl line for this role, write sslmode=verify-full"), "{told}");
    assert!(told.contains("\nhost \"app\""), "{told}");
    for mode in ["require", "verify-ca", "verify-full"] {
        let told = mend(&no_line, &format!("sslmode={mode}"));
        assert!(told.starts_with("add to pg_hba.conf") && told.contains("\nhostssl \""), "{told}");
    }
    // WHEN the client has a certificate THEN the method may be cert
    let of_method = refusal("28000", "auth_failed", "x");
    let told = mend(&of_method, "sslmode=verify-full&sslcert=/c.crt&sslkey=/c.key");
    assert!(told.starts_with("with cert, the common name of sslcert must be the role"), "{told}");
}

#[test]
fn a_failure_of_tls_says_which_side_is_to_be_mended() {
    let mend = |cause, parameters: &str| {
        let url = format!("postgres://me@db:5433/app?sslmode=verify-full{parameters}");
        let info = conninfo::parse(&url, &|_| None).unwrap();
        let failure = TlsFailure { text: "why".to_owned(), cause };
        let fault = at("db:5433", ConnectCause::Tls(failure)).fault(&info, "sl", "pb");
        (fault.code, fault.mend)
    };
    for (cause, parameters, code, words) in [
        (TlsCause::Authority, "&sslrootcert=/ca", "source.tls-untrusted", "sslrootcert=/ca must"),
        (TlsCause::Authority, "&sslrootcert=system", "source.tls-untrusted", "sslrootcert=FILE"),
        (TlsCause::Authority, "", "source.tls-untrusted", "sslrootcert=FILE"),
        (TlsCause::Name, "", "source.tls-untrusted", "subjectAltName"),
        (TlsCause::Dates, "", "source.tls-untrusted", "renew the server's certificate"),
        (TlsCause::Version, "", "source.tls-untrusted", "-extfile"),
        (TlsCause::ClientCertificate, "&sslcert=/c&sslkey=/k", "source.tls", "ssl_ca_file"),
        (TlsCause::ClientCertificate, "", "source.tls", "needs sslcert and sslkey"),
        (TlsCause::Handshake, "", "source.tls", "ssl_min_protocol_version"),
    ] {
        let (found, told) = mend(cause, parameters);
        assert_eq!(found, code, "{told}");
        assert!(told.contains(words), "{told}");
    }
}

#[test]
fn a_refused_slot_says_what_mends_it() {
    let missing = refusal("42704", "ReplicationSlotAcquire", "x");
    told(&missing, Exit::Slot, "slot.missing", "walrelay slot create");
    let option = refusal("42704", "find_option", "unrecognized configuration parameter");
    told(&option, Exit::Source, "source.refused", "PGOPTIONS");
    for sqlstate in ["42601", "22023"] {
        told(&refusal(sqlstate, "", "x"), Exit::Source, "source.refused", "PGOPTIONS");
    }
    let iterations = at("db:5433", ConnectCause::Login("SCRAM iteration count exceeds".to_owned()));
    told(&iterations, Exit::Source, "source.login", "scram_iterations");
    let unpublished = refusal("42704", "get_publication_oid", "x");
    told(&unpublished, Exit::Source, "publication.missing", "walrelay init");
    told(&refusal("55006", "", "x"), Exit::Slot, "slot.busy", "slot_name = 'sl'");
    let level = refusal("55000", "CheckLogicalDecodingRequirements", "x");
    told(&level, Exit::Source, "source.wal-level", "wal_level");
    let aurora = refusal("55000", "x", "wal_level must be set to 'logical' at server start.");
    told(&aurora, Exit::Source, "source.wal-level", "rds.logical_replication");
    told(&refusal("55000", "", "x"), Exit::Slot, "slot.unusable", "walrelay slot drop");
}

#[test]
fn the_fault_of_many_servers_names_them_all_and_mends_the_last() {
    let each = vec![refusal("57P03", "", "x"), refusal("53300", "", "y")];
    let all = at("", ConnectCause::All(each));
    let fault = all.fault(&info(), "sl", "pb");
    assert_eq!(fault.code, "source.full");
    assert!(fault.what.contains('x') && fault.what.contains('y'));
}

#[test]
fn an_error_about_a_value_does_not_show_it() {
    let error = |sqlstate: &str, detail: &str| {
        let fields = format!("SERROR\0C{sqlstate}\0Mrefused\0D{detail}\0\0");
        at("db:5433", ConnectCause::server(fields.as_bytes()))
    };
    for of_a_value in ["23514", "23502", "22P02"] {
        let text = format!("{:?}", error(of_a_value, "Failing row contains (canary)."));
        assert!(text.contains("refused") && !text.contains("canary"), "{text}");
    }
    let context = "Wwhile parsing: canary\nfunction of the table";
    let parsed = |routine: &str| {
        ServerError::parse(format!("C42P01\0R{routine}\0{context}\0\0").as_bytes()).context
    };
    assert_eq!(parsed("json_errsave_error"), "function of the table");
    assert_eq!(parsed("exec_stmt"), "function of the table");
    let connections = error("53300", "This happened.").to_string();
    assert_eq!(connections, "db:5433: refused (SQLSTATE 53300); This happened.");
}
