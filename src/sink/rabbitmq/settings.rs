//! The `[sink.rabbitmq]` section, typed.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;

pub use super::management::Management;
use super::message::NAME_BYTES_MAX;
use super::url::{self, AmqpUrl, UrlError};
use crate::base::secret::Secret;
use crate::sink::Broker;
use crate::sink::settings::{Misfit, Section};

/// Who logs in when the URL names nobody: the broker's own default, which it takes from loopback only.
const USER_DEFAULT: &str = "guest";

/// The `[sink.rabbitmq]` section.
#[derive(Clone, Debug)]
pub struct RabbitSettings {
    /// Tried in order.
    pub hosts: Vec<Host>,
    /// Virtual host.
    pub vhost: String,
    /// How to log in.
    pub login: Login,
    /// `amqps`: how to trust and be trusted.
    pub tls: Option<TlsSettings>,
    /// The exchange (`sink.rabbitmq.exchange`), where it does not come from the row; the default one is empty.
    pub exchange: Option<String>,
    /// Its type (`sink.rabbitmq.exchange_type`, `topic`).
    pub exchange_type: String,
    /// Queues that `init` makes and binds, and that `check` and `run` insist on: name and binding key
    /// (`sink.rabbitmq.queues`).
    pub queues: BTreeMap<String, String>,
    /// Type of the queues that `init` makes (`sink.rabbitmq.queue_type`, `quorum`).
    pub queue_type: String,
    /// A connection on which nothing was heard for twice as long is dead
    /// (`sink.rabbitmq.heartbeat`, 10s).
    pub heartbeat: Duration,
    /// Deadline for one connection attempt to one host (`sink.rabbitmq.connect_timeout`, 5s).
    pub connect_timeout: Duration,
    /// The management API, which `check` asks for bindings (`sink.rabbitmq.management_url`).
    pub management: Option<Management>,
}

/// One server of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Name or address.
    pub name: String,
    /// Port.
    pub port: u16,
}

/// How to log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    /// User and password.
    Plain {
        /// User.
        user: String,
        /// Password.
        password: Secret,
    },
    /// The client certificate says who it is.
    External,
}

impl Login {
    /// User and password, where there are any.
    pub(super) fn password(&self) -> Option<(&str, &Secret)> {
        match self {
            Login::Plain { user, password } => Some((user, password)),
            Login::External => None,
        }
    }
}

/// How to trust the server, and be trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// Roots (`sink.rabbitmq.ca_file`); the system's when absent.
    pub ca_file: Option<PathBuf>,
    /// Client certificate chain (`sink.rabbitmq.cert_file`).
    pub cert_file: Option<PathBuf>,
    /// Its key (`sink.rabbitmq.key_file`).
    pub key_file: Option<PathBuf>,
    /// The name that the server's certificate must bear, and SNI (`sink.rabbitmq.server_name`); the
    /// host when absent.
    pub server_name: Option<String>,
}

pub(in crate::sink) fn configure(section: &dyn Section) -> Result<Arc<dyn Broker>, Vec<Misfit>> {
    Ok(Arc::new(RabbitSettings::read(section)?))
}

impl RabbitSettings {
    /// Reads the section.
    pub fn read(section: &dyn Section) -> Result<RabbitSettings, Vec<Misfit>> {
        let mut reader = Reader { section, misfits: Vec::new() };
        let settings = reader.settings();
        match settings {
            Some(settings) if reader.misfits.is_empty() => Ok(settings),
            Some(_) | None => Err(reader.misfits),
        }
    }

    /// Where it is, for people: no login in it.
    #[must_use]
    pub fn place(&self) -> String {
        let scheme = if self.tls.is_some() { "amqps" } else { "amqp" };
        let hosts: Vec<String> = self.hosts.iter().map(ToString::to_string).collect();
        format!("{scheme}://{}, virtual host {}", hosts.join(","), self.vhost)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Host { name, port } = self;
        if name.contains(':') { write!(f, "[{name}]:{port}") } else { write!(f, "{name}:{port}") }
    }
}

/// Gathers every misfit before it gives up.
struct Reader<'a> {
    section: &'a dyn Section,
    misfits: Vec<Misfit>,
}

impl Reader<'_> {
    fn refuse(&mut self, key: &'static str, what: impl Into<String>, mend: impl Into<String>) {
        self.misfits.push(Misfit { key, what: what.into(), mend: mend.into() });
    }

    fn settings(&mut self) -> Option<RabbitSettings> {
        let section = self.section;
        let url = section.secret("url").unwrap_or_default();
        let url = self.kept("url", url::parse(url.expose()));
        let management = section.secret("management_url").and_then(|url| {
            let parsed = Management::parse(url.expose(), self.path("ca_file"));
            self.kept("management_url", parsed)
        });
        let exchange = section.constant("exchange");
        if exchange.as_ref().is_some_and(|name| name.len() > NAME_BYTES_MAX) {
            self.refuse("exchange", "has more than 255 bytes", "AMQP carries names of 255 bytes");
        }
        let queues = section.texts_below("queues");
        self.check_queues(&queues, exchange.as_deref());
        let url = url?;
        let secured_api = management.as_ref().is_some_and(|management| management.tls);
        let tls = self.tls(&url, secured_api);
        let login = self.login(&url, tls.as_ref());
        Some(RabbitSettings {
            hosts: url.hosts,
            vhost: url.vhost,
            login,
            tls,
            exchange,
            exchange_type: section.text("exchange_type"),
            queues,
            queue_type: section.text("queue_type"),
            heartbeat: section.duration("heartbeat"),
            connect_timeout: section.duration("connect_timeout"),
            management,
        })
    }

    fn kept<T>(&mut self, key: &'static str, read: Result<T, UrlError>) -> Option<T> {
        read.map_err(|error| self.refuse(key, error.what, error.mend)).ok()
    }

    fn path(&self, key: &str) -> Option<PathBuf> {
        self.section.optional_text(key).map(PathBuf::from)
    }

    fn check_queues(&mut self, queues: &BTreeMap<String, String>, exchange: Option<&str>) {
        const KEY: &str = "queues";
        if exchange.is_none() && !queues.is_empty() {
            let what = "cannot be bound: the exchange comes from the row";
            self.refuse(KEY, what, "write an exchange without ${…}, or make the bindings yourself");
        }
        for (queue, key) in queues {
            if queue.is_empty() || queue.len() > NAME_BYTES_MAX {
                let what = "has a queue whose name is not 1 to 255 bytes";
                self.refuse(KEY, what, "write queues = { \"name\" = \"binding key\" }");
            } else if exchange == Some("") && !key.is_empty() && key != queue {
                let what = format!("binds queue {queue:?} by {key:?} to the default exchange");
                let mend = format!(
                    "the default exchange reaches a queue by its name only: write {queue:?} = \"\", or name an exchange"
                );
                self.refuse(KEY, what, mend);
            }
        }
    }

    fn tls(&mut self, url: &AmqpUrl, secured_api: bool) -> Option<TlsSettings> {
        let settings = TlsSettings {
            ca_file: self.path("ca_file"),
            cert_file: self.path("cert_file"),
            key_file: self.path("key_file"),
            server_name: self.section.optional_text("server_name"),
        };
        let given = [
            ("ca_file", settings.ca_file.is_some() && !secured_api),
            ("cert_file", settings.cert_file.is_some()),
            ("key_file", settings.key_file.is_some()),
            ("server_name", settings.server_name.is_some()),
        ];
        if !url.tls {
            for (key, _) in given.into_iter().filter(|(_, given)| *given) {
                let what = "has no effect: the URL begins with amqp://, without TLS";
                self.refuse(
                    key,
                    what,
                    "write amqps:// and the TLS port (5671) in url, or remove it",
                );
            }
            return None;
        }
        match (&settings.cert_file, &settings.key_file) {
            (Some(_), None) => {
                self.refuse("cert_file", "needs key_file beside it", "key_file = \"client.key\"");
            }
            (None, Some(_)) => {
                self.refuse("key_file", "needs cert_file beside it", "cert_file = \"client.pem\"");
            }
            _ => {}
        }
        let valid = |name: &str| ServerName::try_from(name).is_ok();
        match &settings.server_name {
            Some(name) if !valid(name) => {
                let what = format!("{name:?} is no host name or address");
                self.refuse("server_name", what, "write the name that is in the certificate");
            }
            None if !url.hosts.iter().all(|host| valid(&host.name)) => {
                let mend = "set server_name to the name that is in the certificate";
                self.refuse("url", "has a host that no certificate can name", mend);
            }
            _ => {}
        }
        Some(settings)
    }

    fn login(&mut self, url: &AmqpUrl, tls: Option<&TlsSettings>) -> Login {
        if self.section.text("auth") != "external" {
            let guest = || (USER_DEFAULT.to_owned(), Secret::new(USER_DEFAULT));
            let named = url.user.clone().map(|user| (user, url.password.clone()));
            let (user, password) =
                named.map_or_else(guest, |(user, password)| (user, password.unwrap_or_default()));
            return Login::Plain { user, password };
        }
        match tls {
            None => {
                let what = "\"external\" needs TLS: the certificate is the login";
                self.refuse("auth", what, "write amqps:// in url, with cert_file and key_file");
            }
            Some(tls) if tls.cert_file.is_none() => {
                let what = "\"external\" needs a client certificate";
                let mend = "cert_file = \"client.pem\" and key_file = \"client.key\"";
                self.refuse("auth", what, mend);
            }
            Some(_) => {}
        }
        if url.user.is_some() || url.password.is_some() {
            let what = "names a user, and auth = \"external\" would ignore it";
            self.refuse(
                "url",
                what,
                "write amqps://host:5671/vhost: the certificate says who it is",
            );
        }
        Login::External
    }
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
