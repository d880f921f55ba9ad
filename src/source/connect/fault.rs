//! A failed connection, told with what mends it.

use super::error::{ConnectError, Kind, ServerError, wanted_text};
use super::{identifier, literal};
use crate::base::error::{Exit, Fault};
use crate::doctor::source::slot::renewal;
use crate::source::require_auth::{self, Unanswered};
use crate::source::settings::{ConnInfo, TargetSessionAttrs};

/// Code, exit and hint; the rest is the same for all.
type Told = (&'static str, Exit, String);

impl ConnectError {
    /// The failure with its mending hint. `slot` and `publication` are those that were asked for.
    #[must_use]
    pub fn fault(&self, info: &ConnInfo, slot: &str, publication: &str) -> Fault {
        if let ConnectError::All(each) = self {
            // The hint of the last server; the sentence names them all.
            let mut fault = match each.last() {
                Some(last) => last.fault(info, slot, publication),
                None => Fault::new(
                    Exit::Source,
                    "source.unreachable",
                    "",
                    "",
                    "name at least one host in source.url",
                ),
            };
            fault.what = self.to_string();
            return fault;
        }
        let (code, exit, mend) = match self {
            ConnectError::Server { at, error } => {
                Asked { info, slot, publication, at }.server(error)
            }
            other => other.own(info),
        };
        let place = format!("source.url, user {}, database {}", info.user, info.dbname);
        Fault::new(exit, code, self.to_string(), place, mend)
    }

    /// What we found out ourselves.
    fn own(&self, info: &ConnInfo) -> Told {
        let (code, mend) = match self {
            ConnectError::Resolve { .. } => {
                ("source.dns", "check the host name in source.url (or PGHOST): getent hosts NAME".to_owned())
            }
            ConnectError::Io { at, .. } => (
                "source.unreachable",
                format!("check that Postgres listens there and no firewall is between: {}", ready(at)),
            ),
            ConnectError::Timeout { at, .. } => (
                "source.timeout",
                format!("check the network, or raise connect_timeout in source.url: {}", ready(at)),
            ),
            ConnectError::TlsSettings(_) => {
                ("source.tls-settings", "correct the file or its path in source.url".to_owned())
            }
            ConnectError::Tls { untrusted: true, .. } => ("source.tls-untrusted", untrusted(info)),
            ConnectError::Tls { .. } => (
                "source.tls",
                "check ssl_cert_file and ssl_min_protocol_version of the server; a server that asks for a \
                 client certificate needs sslcert and sslkey in source.url"
                    .to_owned(),
            ),
            ConnectError::NoTls { .. } => (
                "source.no-tls",
                "ALTER SYSTEM SET ssl = on; SELECT pg_catalog.pg_reload_conf();  -- or sslmode=prefer in source.url"
                    .to_owned(),
            ),
            ConnectError::NoPassword { .. } => ("source.no-password", give_password(info)),
            ConnectError::Unanswered { refused, .. } => unanswered(*refused),
            ConnectError::Login { .. } => (
                "source.login",
                "let pg_hba.conf use scram-sha-256 for this role, then SELECT pg_catalog.pg_reload_conf();".to_owned(),
            ),
            ConnectError::Protocol { .. } => (
                "source.protocol",
                "check that host and port are those of Postgres itself, not of a pooler or a proxy".to_owned(),
            ),
            ConnectError::Unfit { wanted, .. } => ("source.unfit", unfit(*wanted)),
            // Both are told by the caller.
            ConnectError::Server { .. } | ConnectError::All(_) => ("source.refused", String::new()),
        };
        (code, Exit::Source, mend)
    }
}

const WAL_SENDERS_MEND: &str = "ALTER SYSTEM SET max_wal_senders = 10; then restart Postgres, or end a client listed by \
     SELECT pid, application_name, client_addr FROM pg_catalog.pg_stat_replication;";

/// What was asked of the server that refused.
struct Asked<'a> {
    info: &'a ConnInfo,
    slot: &'a str,
    publication: &'a str,
    at: &'a str,
}

impl Asked<'_> {
    fn server(&self, error: &ServerError) -> Told {
        let (info, slot) = (self.info, self.slot);
        let role = identifier(&info.user);
        let source = |code, mend| (code, Exit::Source, mend);
        match error.sqlstate.as_str() {
            "28P01" => source("source.password", self.password()),
            "28000" if error.routine == "ClientAuthentication" => {
                source("source.pg-hba", self.pg_hba(error))
            }
            "28000" => source("source.login", format!("CREATE ROLE {role} LOGIN REPLICATION;  -- or ALTER ROLE")),
            "3D000" => source(
                "source.no-database",
                format!("createdb {}, or correct the database in source.url", info.dbname),
            ),
            "42501" => source("source.not-permitted", format!("ALTER ROLE {role} REPLICATION;")),
            "42704" if error.is_missing_publication() => source(
                "publication.missing",
                format!("walrelay init, then a new slot, because one that is older than its publication {} cannot be used: {}; publish by hand what it has not delivered (docs/operations.md)", identifier(self.publication), renewal(slot)),
            ),
            "42704" => ("slot.missing", Exit::Slot, format!("walrelay slot create  # makes {slot}; events before it must be published by hand (docs/operations.md)")),
            "55006" => ("slot.busy", Exit::Slot, self.busy()),
            "55000" if error.routine == "CheckLogicalDecodingRequirements" => source(
                "source.wal-level",
                "ALTER SYSTEM SET wal_level = 'logical';  -- then restart Postgres".to_owned(),
            ),
            "55000" | "58P01" => (
                "slot.unusable",
                Exit::Slot,
                format!("SELECT * FROM pg_catalog.pg_replication_slots WHERE slot_name = {};  -- a lost slot must be dropped and made anew: walrelay slot drop, walrelay slot create, and see docs/operations.md", literal(slot)),
            ),
            // The message may be translated; the setting's name never is.
            "53300" if error.message.contains("max_wal_senders") => {
                source("source.wal-senders", WAL_SENDERS_MEND.to_owned())
            }
            "53300" => source("source.full", "raise max_connections and max_wal_senders, then restart Postgres; see who is connected: SELECT * FROM pg_catalog.pg_stat_activity;".to_owned()),
            "0A000" => source("source.unsupported", "use the primary, or Postgres 16 or newer on a standby; the relay needs Postgres 14 or newer".to_owned()),
            _ => match error.kind() {
                Kind::Stopping => source("source.stopping", format!("wait until Postgres is up: {}", ready(self.at))),
                _ => source("source.refused", error.hint.clone()),
            },
        }
    }

    fn password(&self) -> String {
        let origin = match (&self.info.password, self.has_passfile_password()) {
            (Some(_), _) => "the password came from source.url or PGPASSWORD",
            (None, true) => "the password came from the passfile (PGPASSFILE or ~/.pgpass)",
            (None, false) => "no password was given",
        };
        format!(
            "{origin}; correct it there, or set it in Postgres: ALTER ROLE {} PASSWORD '…';",
            identifier(&self.info.user)
        )
    }

    fn has_passfile_password(&self) -> bool {
        self.info.hosts.iter().any(|host| host.password.is_some())
    }

    fn pg_hba(&self, error: &ServerError) -> String {
        let (database, role) = (identifier(&self.info.dbname), identifier(&self.info.user));
        let line = if self.at.starts_with('/') {
            format!("local {database} {role} scram-sha-256")
        } else {
            // The server names the address it saw, which behind NAT is not the one we have.
            let address = error
                .message
                .split('"')
                .nth(1)
                .filter(|text| text.parse::<std::net::IpAddr>().is_ok());
            let address = match address {
                Some(v6) if v6.contains(':') => format!("{v6}/128"),
                Some(v4) => format!("{v4}/32"),
                None => "CLIENT_ADDRESS/32".to_owned(),
            };
            format!("host {database} {role} {address} scram-sha-256")
        };
        format!("add to pg_hba.conf, then SELECT pg_catalog.pg_reload_conf();\n{line}")
    }

    fn busy(&self) -> String {
        format!(
            "stop the other relay, or end its walsender: SELECT pg_catalog.pg_terminate_backend(active_pid) FROM \
             pg_catalog.pg_replication_slots WHERE slot_name = {} AND active;",
            literal(self.slot)
        )
    }
}

fn ready(at: &str) -> String {
    match at.rsplit_once(if at.starts_with('/') { "/.s.PGSQL." } else { ":" }) {
        Some((host, port)) => {
            format!("pg_isready -h {} -p {port}", host.trim_matches(['[', ']']))
        }
        None => "pg_isready".to_owned(),
    }
}

fn give_password(info: &ConnInfo) -> String {
    format!(
        "set PGPASSWORD, or add to ~/.pgpass (mode 0600): {}:{}:{}:{}:PASSWORD",
        info.hosts.first().map_or("*", |host| host.name.as_str()),
        info.hosts.first().map_or(5432, |host| host.port),
        info.dbname,
        info.user
    )
}

fn unanswered(refused: Unanswered) -> (&'static str, String) {
    let word = require_auth::word(refused.asked);
    if !refused.in_clear {
        let mend = format!(
            "let pg_hba.conf ask this role for what require_auth names, or add {word} to require_auth= in source.url (or PGREQUIREAUTH)"
        );
        return ("source.require-auth", mend);
    }
    let mend = format!(
        "let the server speak TLS (ALTER SYSTEM SET ssl = on;) and write sslmode=verify-full in source.url; or let pg_hba.conf \
         use scram-sha-256 for this role. If everybody on the way may know the password: require_auth={word} in source.url"
    );
    ("source.password-in-clear", mend)
}

fn untrusted(info: &ConnInfo) -> String {
    let root = match &info.sslrootcert {
        Some(path) => format!("sslrootcert={} must hold the CA that signed it", path.display()),
        None => "sslrootcert must name the CA that signed it".to_owned(),
    };
    format!(
        "{root}; with verify-full its subjectAltName must name the host (a common name does not count): \
         openssl s_client -starttls postgres -connect HOST:PORT"
    )
}

fn unfit(wanted: TargetSessionAttrs) -> String {
    format!(
        "add the right server to the hosts of source.url, or change target_session_attrs={}: SELECT \
         pg_catalog.pg_is_in_recovery();",
        wanted_text(wanted)
    )
}
