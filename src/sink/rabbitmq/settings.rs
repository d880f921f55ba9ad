//! The `[sink.rabbitmq]` section, typed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::secret::Secret;
use crate::sink::Broker;
use crate::sink::settings::{Misfit, Section};

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
    /// The exchange, where it does not come from the row.
    pub exchange: Option<String>,
    /// Its type (`sink.rabbitmq.exchange_type`, `topic`).
    pub exchange_type: String,
    /// Queues that `init` makes and that `check` and `run` insist on: name and binding key.
    pub queues: BTreeMap<String, String>,
    /// Type of the queues that `init` makes (`sink.rabbitmq.queue_type`, `quorum`).
    pub queue_type: String,
    /// A connection on which nothing was heard for twice as long is dead (`sink.rabbitmq.heartbeat`, 10s).
    pub heartbeat: Duration,
    /// Deadline for one connection attempt to one host (`sink.rabbitmq.connect_timeout`, 5s).
    pub connect_timeout: Duration,
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

/// How to trust the server, and be trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// Roots (`sink.rabbitmq.ca_file`); the system's when absent.
    pub ca_file: Option<PathBuf>,
    /// Client certificate chain (`sink.rabbitmq.cert_file`).
    pub cert_file: Option<PathBuf>,
    /// Its key (`sink.rabbitmq.key_file`).
    pub key_file: Option<PathBuf>,
    /// The name that the server's certificate must bear, and SNI (`sink.rabbitmq.server_name`); the host when absent.
    pub server_name: Option<String>,
}

pub(in crate::sink) fn configure(section: &dyn Section) -> Result<Arc<dyn Broker>, Vec<Misfit>> {
    Ok(Arc::new(RabbitSettings::read(section)?))
}

impl RabbitSettings {
    /// Reads the section.
    pub fn read(section: &dyn Section) -> Result<RabbitSettings, Vec<Misfit>> {
        let url = section.secret("url").unwrap_or_default();
        let uri: lapin::uri::AMQPUri = url.expose().parse().map_err(|_| {
            vec![Misfit {
                key: "url",
                what: "is no AMQP URL".to_owned(),
                mend: "write amqps://user:password@host:5671/vhost".to_owned(),
            }]
        })?;
        let authority = uri.authority;
        Ok(RabbitSettings {
            hosts: vec![Host { name: authority.host, port: authority.port }],
            vhost: uri.vhost,
            login: Login::Plain {
                user: authority.userinfo.username,
                password: Secret::new(authority.userinfo.password),
            },
            tls: None,
            exchange: Some(section.text("exchange")).filter(|text| !text.contains("${")),
            exchange_type: "topic".to_owned(),
            queues: section.texts_below("queues"),
            queue_type: "quorum".to_owned(),
            heartbeat: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
        })
    }

    /// Where it is, for people: no login in it.
    #[must_use]
    pub fn place(&self) -> String {
        let scheme = if self.tls.is_some() { "amqps" } else { "amqp" };
        let hosts: Vec<String> =
            self.hosts.iter().map(|host| format!("{}:{}", host.name, host.port)).collect();
        format!("{scheme}://{}, virtual host {}", hosts.join(","), self.vhost)
    }
}
