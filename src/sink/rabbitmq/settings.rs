//! The `[sink.rabbitmq]` section, typed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use rustls::pki_types::ServerName;

use super::uri::{AmqpUri, NAME_BYTES_MAX, UriError};
pub use super::uri::{ManagementUri, RabbitHost};
use crate::base::secret::Secret;
use crate::sink::settings::{InvalidSetting, Section};

/// Who logs in when the URL names nobody: the broker's own default, which it takes from loopback only.
const USER_DEFAULT: &str = "guest";

/// The `[sink.rabbitmq]` section.
#[derive(Clone, Debug, Default)]
pub struct RabbitSettings {
    /// Tried in order.
    pub hosts: Vec<RabbitHost>,
    /// Virtual host.
    pub vhost: String,
    /// How to log in.
    pub login: RabbitLogin,
    /// `amqps`: how to trust and be trusted.
    pub tls: Option<RabbitTls>,
    /// `exchange`, where it does not come from the row; the default one is empty.
    pub exchange: Option<String>,
    /// `exchange_type`.
    pub exchange_type: String,
    /// `queues` that `init` makes and binds, and that `check` and `run` insist on: name and binding key.
    pub queues: BTreeMap<String, String>,
    /// `queue_type` of those that `init` makes.
    pub queue_type: String,
    /// `heartbeat`: a connection on which nothing was heard for twice as long is dead.
    pub heartbeat: Duration,
    /// `connect_timeout`, for one attempt to one host.
    pub connect_timeout: Duration,
    /// `management_url`: the API that `check` asks for bindings.
    pub management: Option<ManagementUri>,
}

/// How to log in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RabbitLogin {
    /// User and password.
    Plain(String, Secret),
    /// The client certificate says who it is.
    #[default]
    External,
}

/// How to trust the server, and be trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RabbitTls {
    /// Roots; the system's when absent.
    pub ca_file: Option<PathBuf>,
    /// Client certificate chain.
    pub cert_file: Option<PathBuf>,
    /// Its key.
    pub key_file: Option<PathBuf>,
    /// The name that the server's certificate must bear, and SNI; the host when absent.
    pub server_name: Option<String>,
}

impl RabbitSettings {
    /// Reads the section.
    pub(crate) fn read(section: &dyn Section) -> Result<RabbitSettings, Vec<InvalidSetting>> {
        let mut reader = SectionReader { section, invalid: Vec::new() };
        let settings = reader.settings().filter(|_| reader.invalid.is_empty());
        settings.ok_or(reader.invalid)
    }

    /// Where it is, for people: no login in it.
    #[must_use]
    pub fn place(&self) -> String {
        let scheme = if self.tls.is_some() { "amqps" } else { "amqp" };
        let hosts: Vec<String> = self.hosts.iter().map(ToString::to_string).collect();
        format!("{scheme}://{}, virtual host {}", hosts.join(","), self.vhost)
    }
}

/// Gathers everything that is invalid before it gives up.
struct SectionReader<'a> {
    section: &'a dyn Section,
    invalid: Vec<InvalidSetting>,
}

impl SectionReader<'_> {
    fn refuse_if(
        &mut self,
        refused: bool,
        key: &'static str,
        what: impl Into<String>,
        mend: impl Into<String>,
    ) {
        if refused {
            self.invalid.push(InvalidSetting::new("config.bad-value", key, what, mend));
        }
    }

    fn settings(&mut self) -> Option<RabbitSettings> {
        let section = self.section;
        let uri = section.secret("url").unwrap_or_default();
        let uri = self.valid("url", AmqpUri::parse(uri.expose()));
        let management = section.secret("management_url").and_then(|uri| {
            let parsed = ManagementUri::parse(uri.expose(), self.path("ca_file"));
            self.valid("management_url", parsed)
        });
        let exchange = section.constant("exchange");
        let too_long = exchange.as_ref().is_some_and(|name| name.len() > NAME_BYTES_MAX);
        let mend = "AMQP carries names of 255 bytes";
        self.refuse_if(too_long, "exchange", "has more than 255 bytes", mend);
        let queues = section.texts_below("queues");
        self.check_queues(&queues, exchange.as_deref());
        let uri = uri?;
        let tls = self.tls(&uri, management.as_ref().is_some_and(|api| api.tls));
        let login = self.login(&uri, tls.as_ref());
        Some(RabbitSettings {
            hosts: uri.hosts,
            vhost: uri.vhost,
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

    fn valid<T>(&mut self, key: &'static str, parsed: Result<T, UriError>) -> Option<T> {
        parsed.map_err(|error| self.refuse_if(true, key, error.what, error.mend)).ok()
    }

    fn path(&self, key: &str) -> Option<PathBuf> {
        self.section.optional_text(key).map(PathBuf::from)
    }

    fn check_queues(&mut self, queues: &BTreeMap<String, String>, exchange: Option<&str>) {
        const KEY: &str = "queues";
        let what = "cannot be bound: the exchange comes from the row";
        let mend = "write an exchange without ${…}, or make the bindings yourself";
        self.refuse_if(exchange.is_none() && !queues.is_empty(), KEY, what, mend);
        for (queue, key) in queues {
            if queue.is_empty() || queue.len() > NAME_BYTES_MAX {
                let what = "has a queue whose name is not 1 to 255 bytes";
                self.refuse_if(true, KEY, what, "write queues = { \"name\" = \"binding key\" }");
            } else if exchange == Some("") && !key.is_empty() && key != queue {
                let what = format!("binds queue {queue:?} by {key:?} to the default exchange");
                let mend = format!(
                    "the default exchange reaches a queue by its name only: write {queue:?} = \"\", or name an exchange"
                );
                self.refuse_if(true, KEY, what, mend);
            }
        }
    }

    fn tls(&mut self, uri: &AmqpUri, management_over_tls: bool) -> Option<RabbitTls> {
        let (ca_file, server_name) =
            (self.path("ca_file"), self.section.optional_text("server_name"));
        let (cert_file, key_file) = (self.path("cert_file"), self.path("key_file"));
        let (cert, key) = (cert_file.is_some(), key_file.is_some());
        if !uri.tls {
            let what = "has no effect: the URL begins with amqp://, without TLS";
            let mend = "write amqps:// and the TLS port (5671) in url, or remove it";
            self.refuse_if(ca_file.is_some() && !management_over_tls, "ca_file", what, mend);
            self.refuse_if(cert, "cert_file", what, mend);
            self.refuse_if(key, "key_file", what, mend);
            self.refuse_if(server_name.is_some(), "server_name", what, mend);
            return None;
        }
        let (needs_key, needs_cert) = ("needs key_file beside it", "needs cert_file beside it");
        self.refuse_if(cert && !key, "cert_file", needs_key, "key_file = \"client.key\"");
        self.refuse_if(key && !cert, "key_file", needs_cert, "cert_file = \"client.pem\"");
        let is_valid = |name: &str| ServerName::try_from(name).is_ok();
        if let Some(name) = &server_name {
            let what = format!("{name:?} is no host name or address");
            let mend = "write the name that is in the certificate";
            self.refuse_if(!is_valid(name), "server_name", what, mend);
        } else {
            let what = "has a host that no certificate can name";
            let mend = "set server_name to the name that is in the certificate";
            let all_valid = uri.hosts.iter().all(|host| is_valid(&host.name));
            self.refuse_if(!all_valid, "url", what, mend);
        }
        Some(RabbitTls { ca_file, cert_file, key_file, server_name })
    }

    fn login(&mut self, uri: &AmqpUri, tls: Option<&RabbitTls>) -> RabbitLogin {
        if self.section.text("auth") != "external" {
            return match &uri.user {
                Some(user) => {
                    RabbitLogin::Plain(user.clone(), uri.password.clone().unwrap_or_default())
                }
                None => RabbitLogin::Plain(USER_DEFAULT.to_owned(), Secret::new(USER_DEFAULT)),
            };
        }
        let what = "\"external\" needs TLS: the certificate is the login";
        let mend = "write amqps:// in url, with cert_file and key_file";
        self.refuse_if(tls.is_none(), "auth", what, mend);
        let no_certificate = tls.is_some_and(|tls| tls.cert_file.is_none());
        let mend = "cert_file = \"client.pem\" and key_file = \"client.key\"";
        self.refuse_if(no_certificate, "auth", "\"external\" needs a client certificate", mend);
        let what = "names a user, and auth = \"external\" would ignore it";
        let mend = "write amqps://host:5671/vhost: the certificate says who it is";
        self.refuse_if(uri.user.is_some() || uri.password.is_some(), "url", what, mend);
        RabbitLogin::External
    }
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
