//! The `[sink.rabbitmq]` section, typed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;

use super::connection_loss::AmqpAddress;
use super::message::NAME_BYTES_MAX;
use super::rights::rights;
use super::uri::{AmqpUri, RabbitHost};
use walrelay_base::secret::{Secret, SecretFile as _};
use walrelay_base::settings::kind::{FILLED, TextRule};
use walrelay_base::settings::{
    Choice, HOUR_MS, SECOND_MS, choice, duration, flattened, map, name_of, settings, template,
    text, url, word,
};
use walrelay_base::template::Template;
use walrelay_core::dead_letter::writer::DeadLetterAddress;
use walrelay_sink::broker::{Broker, SinkSettings};
use walrelay_sink::settings::{InvalidSetting, Surroundings};

/// RabbitMQ's own default user, which may log in over loopback only.
const GUEST: &str = "guest";

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
    /// The `[sink.rabbitmq]` section. The fields below the keys are what its URL says, and
    /// where dead letters go.
    #[derive(Clone, Debug)]
    pub(super) struct RabbitSettings {
        /// Where RabbitMQ is: `amqps://user:password@mq1:5671,mq2:5671/vhost`; hosts are tried in
        /// order, no path is the virtual host `/`. A secret: it may hold a password.
        pub(super) url: Secret = url().required("amqps://relay@localhost/%2f"),
        /// Exchange that events are published to; `${column}` takes it from the row. Empty is the
        /// default exchange, where the routing key is a queue's name.
        pub(super) exchange: Template = template().default("outbox.events"),
        /// Type of the exchange that `init` creates and that `check` and `run` require: `topic`,
        /// `direct`, `fanout`, `headers` or one that begins with `x-`.
        pub(super) exchange_type: String = text(EXCHANGE_TYPE).default("topic"),
        /// Queues that `init` creates and binds, and that `check` and `run` require: name and
        /// binding key.
        pub(super) queues: BTreeMap<String, String> = map(text(BINDING_KEY)),
        /// Type of the queues that `init` creates. They are always durable.
        pub(super) queue_type: String
            = word(vec!["quorum", "classic", "stream"]).default("quorum"),
        /// How to log in: `plain` by user and password of the URL, `external` by the client
        /// certificate.
        pub(super) auth: RabbitAuth = choice().default("plain"),
        pub(super) tls_files: RabbitTls = flattened(),
        /// Interval of the heartbeats, in whole seconds. A connection on which nothing arrives for
        /// twice this time is closed.
        pub(super) heartbeat: Duration = duration(SECOND_MS, HOUR_MS).default("10s"),
        /// Maximum time to connect to one address of a host, and to log in there.
        pub(super) connect_timeout: Duration = duration(SECOND_MS / 10, HOUR_MS).default("5s"),

        pub(super) is_encrypted: bool,
        pub(super) hosts: Vec<RabbitHost>,
        pub(super) vhost: String,
        pub(super) login: RabbitLogin,
        pub(super) dead_letters: DeadLetterAddress,
    }
}

settings! {
    #[derive(Clone, Debug)]
    pub(super) struct RabbitTls {
        /// PEM file of the certificate authorities that are trusted to sign the server's
        /// certificate.
        pub(super) ca_file: Option<PathBuf> = text(FILLED).or_none("the system's roots"),
        /// PEM file of the client certificate and its chain.
        pub(super) cert_file: Option<PathBuf> = text(FILLED).or_none("no client certificate"),
        /// PEM file of the client certificate's key, unencrypted.
        pub(super) key_file: Option<PathBuf> = text(FILLED).or_none("no client certificate"),
        /// Name that the server's certificate must have. It is also sent as SNI.
        pub(super) server_name: Option<String> = text(FILLED).or_none("the host of the URL"),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RabbitAuth {
    Plain,
    External,
}

impl Choice for RabbitAuth {
    const WORDS: &'static [(&'static str, RabbitAuth)] =
        &[("plain", RabbitAuth::Plain), ("external", RabbitAuth::External)];
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum RabbitLogin {
    /// User and password.
    Plain(String, Secret),
    /// The broker takes the user from the client certificate.
    #[default]
    External,
}

impl RabbitLogin {
    fn of(auth: RabbitAuth, user: Option<String>, password: Option<Secret>) -> RabbitLogin {
        match (auth, user) {
            (RabbitAuth::External, _) => RabbitLogin::External,
            (RabbitAuth::Plain, Some(user)) => {
                RabbitLogin::Plain(user, password.unwrap_or_default())
            }
            (RabbitAuth::Plain, None) => RabbitLogin::Plain(GUEST.to_owned(), Secret::new(GUEST)),
        }
    }
}

/// AMQP carries a routing key of any bytes, up to this many.
pub(super) fn check_routing_key(key: &str) -> Result<(), (String, String)> {
    let bytes = key.len();
    if bytes <= NAME_BYTES_MAX {
        return Ok(());
    }
    let what = format!("the routing key has {bytes} bytes, and AMQP carries 255");
    Err((what, "write a shorter one".to_owned()))
}

const URL: &str = name_of!(RabbitSettings, url);
pub(super) const EXCHANGE: &str = name_of!(RabbitSettings, exchange);
const QUEUES: &str = name_of!(RabbitSettings, queues);
const AUTH: &str = name_of!(RabbitSettings, auth);
const CA: &str = name_of!(RabbitTls, ca_file);
const CERT: &str = name_of!(RabbitTls, cert_file);
const KEY: &str = name_of!(RabbitTls, key_file);
const NAME: &str = name_of!(RabbitTls, server_name);

impl SinkSettings for RabbitSettings {
    /// Sets what the URL says.
    fn complete(&mut self, around: &Surroundings<'_>) -> Vec<InvalidSetting> {
        let mut invalid = self.invalid_names();
        match AmqpUri::parse(self.url.expose()) {
            Err(error) => invalid.push(bad_value(URL, error.what, error.mend)),
            Ok(uri) => {
                invalid.extend(self.contradictions(&uri));
                self.login = RabbitLogin::of(self.auth, uri.user, uri.password);
                self.is_encrypted = uri.tls;
                (self.hosts, self.vhost) = (uri.hosts, uri.vhost);
            }
        }
        self.dead_letters = around.dead_letters.clone();
        let dead_letters = &around.dead_letters.exchange;
        if !dead_letters.is_empty() && self.exchange.constant() == Some(dead_letters) {
            let taken = InvalidSetting::taken_by_dead_letters;
            invalid.push(taken(EXCHANGE, dead_letters, "dead_letter.exchange"));
        }
        let topic = &around.dead_letters.topic;
        if self.queues.contains_key(topic) {
            invalid.push(InvalidSetting::taken_by_dead_letters(QUEUES, topic, "dead_letter.topic"));
        }
        invalid
    }

    fn into_broker(self) -> Arc<dyn Broker> {
        Arc::new(self)
    }
}

impl RabbitSettings {
    /// User and password as they are now: a URL that is in a file is read again. The error never
    /// quotes it.
    pub(super) fn current_login(&self) -> Result<RabbitLogin, String> {
        if !self.url.is_of_file() || self.auth == RabbitAuth::External {
            return Ok(self.login.clone());
        }
        let url = self.url.current().map_err(|unread| unread.to_string())?;
        let uri = AmqpUri::parse(url.expose())
            .map_err(|error| format!("the file of sink.rabbitmq.url {}", error.what))?;
        Ok(RabbitLogin::of(self.auth, uri.user, uri.password))
    }

    /// The scheme of the URL.
    pub(super) fn scheme(&self) -> &'static str {
        if self.is_encrypted { "amqps" } else { "amqp" }
    }

    /// The addresses and the virtual host, without the login.
    pub(super) fn place(&self) -> String {
        let hosts: Vec<String> = self.hosts.iter().map(ToString::to_string).collect();
        format!("{}://{}, virtual host {}", self.scheme(), hosts.join(","), self.vhost)
    }

    /// The broker as faults name it.
    pub(super) fn address(&self) -> AmqpAddress {
        let user = match &self.login {
            RabbitLogin::Plain(user, _) => Some(user.clone()),
            RabbitLogin::External => None,
        };
        let rights = rights(&self.exchange, &[&self.dead_letters]);
        AmqpAddress { place: self.place(), vhost: self.vhost.clone(), user, rights }
    }

    fn invalid_names(&self) -> Vec<InvalidSetting> {
        let (exchange, queues) = (self.exchange.constant(), &self.queues);
        let mut invalid = Vec::new();
        if exchange.is_some_and(|name| name.len() > NAME_BYTES_MAX) {
            let mend = "AMQP carries names of 255 bytes";
            invalid.push(bad_value(EXCHANGE, "has more than 255 bytes", mend));
        }
        if exchange.is_none() && !queues.is_empty() {
            let what = "cannot be bound: the exchange comes from the row";
            let mend = "write an exchange without ${…}, or make the bindings yourself";
            invalid.push(bad_value(QUEUES, what, mend));
        }
        for (queue, key) in queues {
            if queue.is_empty() || queue.len() > NAME_BYTES_MAX {
                let what = "has a queue whose name is not 1 to 255 bytes";
                let mend = "write queues = { \"name\" = \"binding key\" }";
                invalid.push(bad_value(QUEUES, what, mend));
            } else if exchange == Some("") && !key.is_empty() && key != queue {
                let what = format!("binds queue {queue:?} by {key:?} to the default exchange");
                let mend = format!(
                    "the default exchange reaches a queue by its name only: write {queue:?} = \"\", or name an exchange"
                );
                invalid.push(bad_value(QUEUES, what, mend));
            }
        }
        invalid
    }

    /// Keys that contradict the URL or each other.
    fn contradictions(&self, uri: &AmqpUri) -> Vec<InvalidSetting> {
        const NO_EFFECT: &str = "has no effect: the URL begins with amqp://, without TLS";
        const USE_AMQPS: &str = "write amqps:// and the TLS port (5671) in url, or remove it";
        let RabbitTls { ca_file, cert_file, key_file, server_name } = &self.tls_files;
        let (tls, external) = (uri.tls, self.auth == RabbitAuth::External);
        let (cert, key) = (cert_file.is_some(), key_file.is_some());
        let names_user = uri.user.is_some() || uri.password.is_some();
        let is_valid = |name: &str| ServerName::try_from(name).is_ok();
        let bad_name = server_name.as_deref().filter(|name| !is_valid(name));
        let bad_host = server_name.is_none() && !uri.hosts.iter().all(|it| is_valid(&it.name));
        let bad_name_is = format!("{:?} is no host name or address", bad_name.unwrap_or_default());
        let checks = [
            (!tls && ca_file.is_some(), CA, NO_EFFECT, USE_AMQPS),
            (!tls && cert, CERT, NO_EFFECT, USE_AMQPS),
            (!tls && key, KEY, NO_EFFECT, USE_AMQPS),
            (!tls && server_name.is_some(), NAME, NO_EFFECT, USE_AMQPS),
            (tls && cert && !key, CERT, "needs key_file beside it", "key_file = \"client.key\""),
            (tls && key && !cert, KEY, "needs cert_file beside it", "cert_file = \"client.pem\""),
            (
                tls && bad_name.is_some(),
                NAME,
                bad_name_is.as_str(),
                "write the name that is in the certificate",
            ),
            (
                tls && bad_host,
                URL,
                "has a host that no certificate can name",
                "set server_name to the name that is in the certificate",
            ),
            (
                external && !tls,
                AUTH,
                "\"external\" needs TLS: the certificate is the login",
                "write amqps:// in url, with cert_file and key_file",
            ),
            (
                external && tls && !cert,
                AUTH,
                "\"external\" needs a client certificate",
                "cert_file = \"client.pem\" and key_file = \"client.key\"",
            ),
            (
                external && names_user,
                URL,
                "names a user, and auth = \"external\" would ignore it",
                "write amqps://host:5671/vhost: the certificate says who it is",
            ),
        ];
        let found = checks.into_iter().filter(|(is_wrong, ..)| *is_wrong);
        found.map(|(_, key, what, mend)| bad_value(key, what, mend)).collect()
    }
}

fn bad_value(
    key: &'static str,
    what: impl Into<String>,
    mend: impl Into<String>,
) -> InvalidSetting {
    InvalidSetting::new("config.bad-value", key, what, mend)
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
