//! The `[sink.rabbitmq]` section, typed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use rustls::pki_types::ServerName;

use super::uri::{AmqpUri, NAME_BYTES_MAX, UriError};
pub use super::uri::{ManagementUri, RabbitHost};
use crate::base::secret::Secret;
use crate::base::settings::kind::{FILLED, TextRule};
use crate::base::settings::{
    Choice, HOUR_MS, SECOND_MS, choice, duration, flattened, map, name_of, settings, template,
    text, url, word,
};
use crate::base::template::Template;
use crate::sink::settings::{InvalidSetting, Surroundings};

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

const EXCHANGE_TYPE: TextRule = TextRule {
    pattern: "^(topic|direct|fanout|headers|x-.{1,253})$",
    wanted: "topic, direct, fanout, headers, or a type that begins with x-",
    holds: |text| {
        ["topic", "direct", "fanout", "headers"].contains(&text)
            || (text.starts_with("x-") && (3..=NAME_BYTES_MAX).contains(&text.len()))
    },
};

const BINDING_KEY: TextRule = TextRule {
    pattern: "^.{0,255}$",
    wanted: "a binding key of at most 255 bytes",
    holds: |text| text.len() <= NAME_BYTES_MAX,
};

settings! {
    /// The `[sink.rabbitmq]` section as it is written.
    pub(super) struct RabbitSection {
        /// Where RabbitMQ is: `amqps://user:password@mq1:5671,mq2:5671/vhost`; hosts are tried in
        /// order, no path is the virtual host `/`. A secret: it may hold a password.
        url: Secret = url().required("amqps://relay@localhost/%2f"),
        /// Exchange that events are published to; `${column}` takes it from the row. Empty is the
        /// default exchange, where the routing key is a queue's name.
        pub(super) exchange: Template = template().default("outbox.events"),
        /// Type of the exchange that `init` makes and `check` and `run` insist on: `topic`,
        /// `direct`, `fanout`, `headers` or one that begins with `x-`.
        exchange_type: String = text(EXCHANGE_TYPE).default("topic"),
        /// Queues that `init` makes and binds and that `check` and `run` insist on: name to binding
        /// key.
        queues: BTreeMap<String, String> = map(text(BINDING_KEY)),
        /// Type of a queue that `init` makes; always durable.
        queue_type: String = word(|| vec!["quorum", "classic", "stream"]).default("quorum"),
        /// How to log in: `plain` by user and password of the URL, `external` by the client
        /// certificate.
        auth: RabbitAuth = choice().default("plain"),
        tls: RabbitTls = flattened(),
        /// A connection on which nothing was heard for twice as long is taken for dead. Whole
        /// seconds count.
        heartbeat: Duration = duration(SECOND_MS, HOUR_MS).default("10s"),
        /// Longest attempt to connect to one host, and to log in there.
        connect_timeout: Duration = duration(SECOND_MS / 10, HOUR_MS).default("5s"),
        /// Where `check` can see bindings and policies: `http://user:password@mq:15672`; without a
        /// user, that of `url`. A secret.
        management_url: Option<Secret> = url().or_none("bindings are not looked at"),
    }
}

settings! {
    /// How to trust the server, and be trusted.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct RabbitTls {
        /// PEM file of the certificates that may sign the server's.
        pub ca_file: Option<PathBuf> = text(FILLED).or_none("the system's roots"),
        /// PEM file of the client certificate and its chain.
        pub cert_file: Option<PathBuf> = text(FILLED).or_none("no client certificate"),
        /// PEM file of the client certificate's key, unencrypted.
        pub key_file: Option<PathBuf> = text(FILLED).or_none("no client certificate"),
        /// Name that the server's certificate must bear, also sent as SNI.
        pub server_name: Option<String> = text(FILLED).or_none("the host of the URL"),
    }
}

/// `auth`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RabbitAuth {
    Plain,
    External,
}

impl Choice for RabbitAuth {
    const WORDS: &'static [(&'static str, RabbitAuth)] =
        &[("plain", RabbitAuth::Plain), ("external", RabbitAuth::External)];
}

/// Any bytes will do, as long as AMQP can carry them.
pub(super) fn check_routing_key(key: &str) -> Result<(), (String, String)> {
    let bytes = key.len();
    if bytes <= NAME_BYTES_MAX {
        return Ok(());
    }
    let what = format!("the routing key has {bytes} bytes, and AMQP carries 255");
    Err((what, "write a shorter one".to_owned()))
}

impl RabbitSection {
    /// What the section means; everything that is invalid in it at once.
    pub(super) fn settings(
        self,
        around: &Surroundings<'_>,
    ) -> Result<RabbitSettings, Vec<InvalidSetting>> {
        let letters = &around.dead_letters.exchange;
        let taken = !letters.is_empty() && self.exchange.constant() == Some(letters.as_str());
        let mut reader = SectionReader { section: self, invalid: Vec::new() };
        let settings = reader.settings();
        if taken {
            let key = name_of!(RabbitSection, exchange);
            let key_of_letters = "dead_letter.exchange";
            reader.invalid.push(InvalidSetting::taken_by_dead_letters(
                key,
                letters,
                key_of_letters,
            ));
        }
        settings.filter(|_| reader.invalid.is_empty()).ok_or(reader.invalid)
    }
}

impl RabbitSettings {
    /// Where it is, for people: no login in it.
    #[must_use]
    pub fn place(&self) -> String {
        let scheme = if self.tls.is_some() { "amqps" } else { "amqp" };
        let hosts: Vec<String> = self.hosts.iter().map(ToString::to_string).collect();
        format!("{scheme}://{}, virtual host {}", hosts.join(","), self.vhost)
    }
}

/// Gathers everything that is invalid before it gives up.
struct SectionReader {
    section: RabbitSection,
    invalid: Vec<InvalidSetting>,
}

impl SectionReader {
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
        let section = &self.section;
        let (uri, api) = (section.url.clone(), section.management_url.clone());
        let ca_file = section.tls.ca_file.clone();
        let exchange = section.exchange.constant().map(str::to_owned);
        let uri = self.valid(name_of!(RabbitSection, url), AmqpUri::parse(uri.expose()));
        let management = api.and_then(|uri| {
            let parsed = ManagementUri::parse(uri.expose(), ca_file);
            self.valid(name_of!(RabbitSection, management_url), parsed)
        });
        let too_long = exchange.as_ref().is_some_and(|name| name.len() > NAME_BYTES_MAX);
        let mend = "AMQP carries names of 255 bytes";
        let key = name_of!(RabbitSection, exchange);
        self.refuse_if(too_long, key, "has more than 255 bytes", mend);
        let queues = std::mem::take(&mut self.section.queues);
        self.check_queues(&queues, exchange.as_deref());
        let uri = uri?;
        let tls = self.tls(&uri, management.as_ref().is_some_and(|api| api.tls));
        let login = self.login(&uri, tls.as_ref());
        let RabbitSection { exchange_type, queue_type, heartbeat, connect_timeout, .. } =
            &self.section;
        Some(RabbitSettings {
            hosts: uri.hosts,
            vhost: uri.vhost,
            login,
            tls,
            exchange,
            exchange_type: exchange_type.clone(),
            queues,
            queue_type: queue_type.clone(),
            heartbeat: *heartbeat,
            connect_timeout: *connect_timeout,
            management,
        })
    }

    fn valid<T>(&mut self, key: &'static str, parsed: Result<T, UriError>) -> Option<T> {
        parsed.map_err(|error| self.refuse_if(true, key, error.what, error.mend)).ok()
    }

    fn check_queues(&mut self, queues: &BTreeMap<String, String>, exchange: Option<&str>) {
        const KEY: &str = name_of!(RabbitSection, queues);
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
        let tls = self.section.tls.clone();
        let RabbitTls { ca_file, cert_file, key_file, server_name } = &tls;
        let (cert, key) = (cert_file.is_some(), key_file.is_some());
        if !uri.tls {
            let what = "has no effect: the URL begins with amqp://, without TLS";
            let mend = "write amqps:// and the TLS port (5671) in url, or remove it";
            self.refuse_if(
                ca_file.is_some() && !management_over_tls,
                name_of!(RabbitTls, ca_file),
                what,
                mend,
            );
            self.refuse_if(cert, name_of!(RabbitTls, cert_file), what, mend);
            self.refuse_if(key, name_of!(RabbitTls, key_file), what, mend);
            self.refuse_if(server_name.is_some(), name_of!(RabbitTls, server_name), what, mend);
            return None;
        }
        let (needs_key, needs_cert) = ("needs key_file beside it", "needs cert_file beside it");
        self.refuse_if(
            cert && !key,
            name_of!(RabbitTls, cert_file),
            needs_key,
            "key_file = \"client.key\"",
        );
        self.refuse_if(
            key && !cert,
            name_of!(RabbitTls, key_file),
            needs_cert,
            "cert_file = \"client.pem\"",
        );
        let is_valid = |name: &str| ServerName::try_from(name).is_ok();
        if let Some(name) = server_name {
            let what = format!("{name:?} is no host name or address");
            let mend = "write the name that is in the certificate";
            self.refuse_if(!is_valid(name), name_of!(RabbitTls, server_name), what, mend);
        } else {
            let what = "has a host that no certificate can name";
            let mend = "set server_name to the name that is in the certificate";
            let all_valid = uri.hosts.iter().all(|host| is_valid(&host.name));
            self.refuse_if(!all_valid, name_of!(RabbitSection, url), what, mend);
        }
        Some(tls)
    }

    fn login(&mut self, uri: &AmqpUri, tls: Option<&RabbitTls>) -> RabbitLogin {
        if self.section.auth == RabbitAuth::Plain {
            return match &uri.user {
                Some(user) => {
                    RabbitLogin::Plain(user.clone(), uri.password.clone().unwrap_or_default())
                }
                None => RabbitLogin::Plain(USER_DEFAULT.to_owned(), Secret::new(USER_DEFAULT)),
            };
        }
        let what = "\"external\" needs TLS: the certificate is the login";
        let mend = "write amqps:// in url, with cert_file and key_file";
        self.refuse_if(tls.is_none(), name_of!(RabbitSection, auth), what, mend);
        let no_certificate = tls.is_some_and(|tls| tls.cert_file.is_none());
        let mend = "cert_file = \"client.pem\" and key_file = \"client.key\"";
        self.refuse_if(
            no_certificate,
            name_of!(RabbitSection, auth),
            "\"external\" needs a client certificate",
            mend,
        );
        let what = "names a user, and auth = \"external\" would ignore it";
        let mend = "write amqps://host:5671/vhost: the certificate says who it is";
        self.refuse_if(
            uri.user.is_some() || uri.password.is_some(),
            name_of!(RabbitSection, url),
            what,
            mend,
        );
        RabbitLogin::External
    }
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
