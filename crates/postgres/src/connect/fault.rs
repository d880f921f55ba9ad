//! A failed connection as a fault with its mending hint.

use std::net::IpAddr;
use std::path::Path;

use super::error::{ConnectCause, ConnectError};
use super::{ConnectErrorKind, ServerError};
use crate::faults::{
    SET_WAL_LEVEL, end_reader_sql, is_over_wal_level, last_number, new_slot_commands,
    raise_wal_senders, slot_missing,
};
use crate::quote::{quote_ident, quote_literal};
use crate::require_auth::RefusedAuth;
use crate::settings::{ConnInfo, SslMode};
use walrelay_base::error::{Exit, Fault};
use walrelay_base::tls::{NEW_CERTIFICATE, TlsCause};

impl ConnectError {
    /// `slot` and `publication` are those of the configuration.
    pub fn fault(&self, info: &ConnInfo, slot: &str, publication: &str) -> Fault {
        let (code, mend) = match &self.cause {
            // The hint of the last server; the sentence names them all.
            ConnectCause::All(each) => match each.last() {
                Some(last) => {
                    return Fault { what: self.to_string(), ..last.fault(info, slot, publication) };
                }
                None => ("source.unreachable", "name at least one host in source.url".to_owned()),
            },
            ConnectCause::Server(error) => server(error, &self.at, info, slot, publication),
            cause => own(cause, &self.at, info),
        };
        let exit = if code.starts_with("slot.") { Exit::Slot } else { Exit::Source };
        let place = format!("source.url, user {}, database {}", info.user, info.dbname);
        Fault::new(exit, code, self.to_string(), place, mend)
    }
}

/// Code and hint for an error that was found here.
fn own(cause: &ConnectCause, at: &str, info: &ConnInfo) -> (&'static str, String) {
    match cause {
        ConnectCause::Resolve(_) => (
            "source.dns",
            "check the host name in source.url (or PGHOST): getent hosts NAME".into(),
        ),
        ConnectCause::TlsSettings(_) => {
            ("source.tls-settings", "correct the file or its path in source.url".into())
        }
        ConnectCause::Tls(failure) => tls(failure.cause, info),
        ConnectCause::NoTls => (
            "source.no-tls",
            "the server has no TLS: install its certificate and key first (ssl_cert_file, ssl_key_file), then ALTER SYSTEM SET \
             ssl = on; SELECT pg_catalog.pg_reload_conf(); with ssl = on and no certificate Postgres does not start again; in a \
             network that you trust: sslmode=disable in source.url (nothing is encrypted)"
                .into(),
        ),
        ConnectCause::LoginUnread(_) => (
            "source.login-unread",
            "let the user of the relay read that file; it is read for each connection".into(),
        ),
        ConnectCause::Login(why) if why.contains("iteration") => (
            "source.login",
            format!(
                "set the password of the role again, in psql: SET scram_iterations = 4096; then: {}",
                set_password(info)
            ),
        ),
        ConnectCause::Login(_) => (
            "source.login",
            "let pg_hba.conf use scram-sha-256 for this role, then SELECT pg_catalog.pg_reload_conf();".into(),
        ),
        ConnectCause::Protocol(_) => (
            "source.protocol",
            "check that host and port are those of Postgres itself, not of a pooler or a proxy".into(),
        ),
        ConnectCause::TooOld(_) => {
            ("source.version", "upgrade the server to PostgreSQL 14 or later".into())
        }
        ConnectCause::Value(_) => (
            "source.protocol",
            "where walrelay check says that the database is SQL_ASCII, correct the ids that are not UTF-8; otherwise \
             report it with the server's version"
                .into(),
        ),
        ConnectCause::Io(_) => {
            let check = "check that Postgres listens there and no firewall is between";
            ("source.unreachable", format!("{check}: {}", pg_isready(at)))
        }
        ConnectCause::Timeout(_) => {
            let check = "check the network, or raise connect_timeout in source.url";
            ("source.timeout", format!("{check}: {}", pg_isready(at)))
        }
        ConnectCause::NoPassword => ("source.no-password", give_password(info)),
        ConnectCause::Refused(refused) => refused_auth(*refused),
        ConnectCause::WrongRole(wanted) => (
            "source.unfit",
            format!(
                "add the right server to the hosts of source.url, or change target_session_attrs={wanted}: \
                 SELECT pg_catalog.pg_is_in_recovery();"
            ),
        ),
        // Judged by the caller.
        ConnectCause::Server(_) | ConnectCause::All(_) => ("source.refused", String::new()),
    }
}

/// Code and hint for an error of the server.
fn server(
    error: &ServerError,
    at: &str,
    info: &ConnInfo,
    slot: &str,
    publication: &str,
) -> (&'static str, String) {
    match error.sqlstate.as_str() {
        "42704" if error.is_missing_publication() => (
            "publication.missing",
            format!(
                "first stop jobs that delete outbox rows; walrelay init, then a new slot, because one that is older than its \
                 publication {} cannot be used: {}; publish by hand what it has not delivered (docs/operations.md)",
                quote_ident(publication),
                new_slot_commands(slot)
            ),
        ),
        // A parameter in the options of the connection has it, too.
        "42704" if error.routine.is_empty() || error.routine.starts_with("ReplicationSlot") => {
            ("slot.missing", slot_missing(slot).mend)
        }
        "55006" => (
            "slot.busy",
            format!("stop the other relay, or end its walsender: {}", end_reader_sql(slot)),
        ),
        "55000"
            if error.routine == "CheckLogicalDecodingRequirements"
                || is_over_wal_level(&error.sqlstate, &error.message) =>
        {
            ("source.wal-level", SET_WAL_LEVEL.into())
        }
        "55000" | "58P01" if !is_of_login(error) => (
            "slot.unusable",
            format!(
                "SELECT * FROM pg_catalog.pg_replication_slots WHERE slot_name = {};  -- a lost slot must be \
                 dropped and made anew: walrelay slot drop, walrelay slot create, and see docs/operations.md",
                quote_literal(slot)
            ),
        ),
        "0A000" => {
            ("source.unsupported", "use the primary; the relay needs Postgres 14 or newer".into())
        }
        _ => login(error, at, info),
    }
}

/// Raised before the first statement, so it says nothing of the slot.
fn is_of_login(error: &ServerError) -> bool {
    error.is_closed_database() || error.routine == "InitPostgres"
}

/// Code and hint for an error of the server that is not about the slot or the publication.
fn login(error: &ServerError, at: &str, info: &ConnInfo) -> (&'static str, String) {
    let (role, database) = (quote_ident(&info.user), quote_ident(&info.dbname));
    match error.sqlstate.as_str() {
        // PgBouncer has it for all that it refuses, and names no routine.
        "08P01" => (
            "source.protocol",
            "where a pooler answers (PgBouncer, Neon): it carries no replication; write the address of \
             Postgres itself into source.url (for polling, PgBouncer with pool_mode = session needs \
             ignore_startup_parameters = search_path, before 1.20 options)"
                .into(),
        ),
        "42704" | "42601" | "22023" => {
            ("source.refused", "correct options in source.url (or PGOPTIONS)".into())
        }
        "28P01" => ("source.password", wrong_password(info)),
        "28000" if lacks_certificate(error, at, info) => (
            "source.login",
            "add sslcert=… and sslkey=… to source.url (or set PGSSLCERT and PGSSLKEY): pg_hba.conf asks this role for a \
             client certificate"
                .into(),
        ),
        "28000" if error.routine == "ClientAuthentication" => {
            ("source.pg-hba", pg_hba(error, at, info))
        }
        "28000" if error.routine == "auth_failed" => {
            ("source.login", other_method(error, at, info))
        }
        // SQLSTATE and routine are those of a role that does not exist. A translated message has the hint for both.
        "28000" if error.message.ends_with("is not permitted to log in") => {
            ("source.login", format!("ALTER ROLE {role} LOGIN;"))
        }
        "28000" => ("source.login", format!("CREATE ROLE {role} LOGIN REPLICATION;  -- or ALTER ROLE")),
        "3D000" => (
            "source.no-database",
            format!("createdb {}, or correct the database in source.url", info.dbname),
        ),
        "42501" if error.routine == "CheckMyDatabase" => {
            ("source.not-permitted", format!("GRANT CONNECT ON DATABASE {database} TO {role};"))
        }
        "42501" => ("source.not-permitted", format!("ALTER ROLE {role} REPLICATION;")),
        "55000" if error.is_closed_database() => {
            ("source.refused", format!("ALTER DATABASE {database} ALLOW_CONNECTIONS true;"))
        }
        // The message may be translated; the setting's name never is.
        "53300" if error.message.contains("max_wal_senders") => {
            ("source.wal-senders", raise_wal_senders(last_number(&error.message)))
        }
        "53300" if error.routine == "InitializeSessionUserId" => {
            ("source.full", raise_limit(&format!("ROLE {role}")))
        }
        "53300" if error.routine == "CheckMyDatabase" => {
            ("source.full", raise_limit(&format!("DATABASE {database}")))
        }
        "53300" => (
            "source.full",
            "raise max_connections and max_wal_senders, then restart Postgres; see who is connected: \
             SELECT * FROM pg_catalog.pg_stat_activity;"
                .into(),
        ),
        _ if error.kind() == ConnectErrorKind::Stopping => {
            ("source.stopping", format!("wait until Postgres is up: {}", pg_isready(at)))
        }
        _ => ("source.refused", error.hint.clone()),
    }
}

/// The message may be translated. One about a missing line of `pg_hba.conf` quotes the address of the client.
fn lacks_certificate(error: &ServerError, at: &str, info: &ConnInfo) -> bool {
    error.routine == "ClientAuthentication"
        && !error.message.contains(['"', '«', '»', '„', '“', '”', '「'])
        && !at.starts_with('/')
        && info.sslcert.is_none()
}

fn wrong_password(info: &ConnInfo) -> String {
    let in_passfile = info.hosts.iter().any(|host| host.password.is_some());
    let origin = match (&info.password, in_passfile) {
        _ if info.login_files.url.is_some() => "the password came from the file of source.url",
        (Some(_), _) => "the password came from source.url or PGPASSWORD",
        (None, true) => "the password came from the passfile (PGPASSFILE or ~/.pgpass)",
        (None, false) => "no password was given",
    };
    format!("{origin}; correct it there, or set it in psql: {}", set_password(info))
}

/// A command of psql, because the log of the server may have the text of an ALTER ROLE.
fn set_password(info: &ConnInfo) -> String {
    format!("\\password {}", quote_ident(&info.user))
}

/// `of` is a role or a database.
fn raise_limit(of: &str) -> String {
    format!(
        "ALTER {of} CONNECTION LIMIT -1;  -- or a higher one; see who is connected: \
         SELECT * FROM pg_catalog.pg_stat_activity;"
    )
}

fn pg_hba(error: &ServerError, at: &str, info: &ConnInfo) -> String {
    let line = hba_line(error, at, info);
    let without_tls = info.sslmode == SslMode::Disable && !at.starts_with('/');
    let or = if without_tls {
        "if pg_hba.conf has a hostssl line for this role, write sslmode=verify-full in source.url instead of sslmode=disable; or "
    } else {
        ""
    };
    format!(
        "{or}add to pg_hba.conf, above a line that rejects the connection, then SELECT pg_catalog.pg_reload_conf();\n{line}"
    )
}

/// The server does not say which method of pg_hba.conf has failed, except in a text that may be translated.
fn other_method(error: &ServerError, at: &str, info: &ConnInfo) -> String {
    let line = hba_line(error, at, info);
    let present = if at.starts_with('/') || info.sslcert.is_none() {
        "with peer or ident, run the command as the operating-system user of the role"
    } else {
        "with cert, the common name of sslcert must be the role, or a map of pg_ident.conf must allow it"
    };
    format!(
        "{present}; or let pg_hba.conf use another method for it, in a line above the present one, \
         then SELECT pg_catalog.pg_reload_conf();\n{line}"
    )
}

fn hba_line(error: &ServerError, at: &str, info: &ConnInfo) -> String {
    let (database, role) = (quote_ident(&info.dbname), quote_ident(&info.user));
    if at.starts_with('/') {
        return format!("local {database} {role} scram-sha-256");
    }
    // The server names the address it saw, which behind NAT is not the one we have.
    let seen = error.message.split('"').nth(1).and_then(|text| text.parse::<IpAddr>().ok());
    let address = match seen {
        Some(IpAddr::V6(v6)) => format!("{v6}/128"),
        Some(IpAddr::V4(v4)) => format!("{v4}/32"),
        None => "CLIENT_ADDRESS/32".to_owned(),
    };
    // With prefer, only the server says whether the connection has TLS.
    let has_tls = !matches!(info.sslmode, SslMode::Disable | SslMode::Prefer)
        || error.message.contains("SSL encryption");
    let kind = if has_tls { "hostssl" } else { "host" };
    format!("{kind} {database} {role} {address} scram-sha-256")
}

fn pg_isready(at: &str) -> String {
    match at.rsplit_once(if at.starts_with('/') { "/.s.PGSQL." } else { ":" }) {
        Some((host, port)) => {
            format!("pg_isready -h {} -p {port}", host.trim_matches(['[', ']']))
        }
        None => "pg_isready".to_owned(),
    }
}

fn give_password(info: &ConnInfo) -> String {
    let (host, port) = info.hosts.first().map_or(("*", 5432), |host| (&*host.name, host.port));
    format!(
        "set PGPASSWORD, or add to ~/.pgpass (mode 0600): {host}:{port}:{}:{}:PASSWORD",
        info.dbname, info.user
    )
}

fn refused_auth(refused: RefusedAuth) -> (&'static str, String) {
    let word = refused.asked.word();
    if !refused.in_clear {
        let mend = format!(
            "let pg_hba.conf ask this role for what require_auth names, or add {word} to require_auth= in source.url (or PGREQUIREAUTH)"
        );
        return ("source.require-auth", mend);
    }
    let mend = format!(
        "let the server speak TLS (install its certificate and key, then ALTER SYSTEM SET ssl = on;) and write sslmode=verify-full in source.url; or let pg_hba.conf \
         use scram-sha-256 for this role. If everybody on the way may know the password: require_auth={word} in source.url"
    );
    ("source.password-in-clear", mend)
}

/// Code and hint for a failure of TLS.
fn tls(cause: TlsCause, info: &ConnInfo) -> (&'static str, String) {
    const LOOK: &str = "openssl s_client -starttls postgres -connect HOST:PORT";
    let untrusted = "source.tls-untrusted";
    match cause {
        TlsCause::Authority => (untrusted, format!("{}: {LOOK}", name_authority(info))),
        TlsCause::Name => (
            untrusted,
            format!(
                "write a name of the certificate as the host in source.url, or make a certificate whose subjectAltName \
                 names the host (a common name does not count): {LOOK}"
            ),
        ),
        TlsCause::Dates => (
            untrusted,
            "renew the server's certificate, or correct this machine's clock".to_owned(),
        ),
        TlsCause::Version => (untrusted, NEW_CERTIFICATE.to_owned()),
        TlsCause::ClientCertificate if info.sslcert.is_some() => (
            "source.tls",
            "the server refuses sslcert: it must not have expired or been revoked, and must be fit for a client (clientAuth); ssl_ca_file of the server must hold the CA that signed it"
                .to_owned(),
        ),
        TlsCause::ClientCertificate | TlsCause::NoTls | TlsCause::Handshake => (
            "source.tls",
            "check ssl_cert_file and ssl_min_protocol_version of the server; a server that asks for a \
             client certificate needs sslcert and sslkey in source.url"
                .to_owned(),
        ),
    }
}

fn name_authority(info: &ConnInfo) -> String {
    match info.sslrootcert.as_deref().filter(|path| *path != Path::new("system")) {
        Some(path) => format!("sslrootcert={} must hold the CA that signed it", path.display()),
        None => "the authorities of the system do not include the CA that signed it: write sslrootcert=FILE in source.url".to_owned(),
    }
}
