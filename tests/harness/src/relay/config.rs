//! The configuration file of a relay under test.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::{HarnessError, Result};

#[derive(Clone, Debug)]
pub struct RelayConfig {
    pub url: String,
    pub slot: String,
    pub publication: String,
    pub table: String,
    pub topic: String,
    /// `route.key`, where it is not the default.
    pub key: Option<String>,
    /// `sink.kafka.brokers`; the memory sink when empty.
    pub brokers: String,
    pub properties: Vec<(String, String)>,
    pub source_extra: String,
    pub kafka_extra: String,
    pub rabbitmq: Option<RabbitTarget>,
    /// Whole sections, as TOML: `[delivery]`, `[dead_letter]`.
    pub extra: String,
    pub env: Vec<(String, String)>,
}

#[derive(Clone, Debug)]
pub struct RabbitTarget {
    pub url: String,
    pub exchange: String,
    pub extra: String,
}

impl RelayConfig {
    /// Everything by its default name, to Kafka.
    pub fn new(url: impl Into<String>, brokers: impl Into<String>) -> RelayConfig {
        RelayConfig {
            url: url.into(),
            slot: "walrelay".into(),
            publication: "walrelay".into(),
            table: "public.outbox".into(),
            topic: "outbox.event.${aggregatetype}".into(),
            key: None,
            brokers: brokers.into(),
            properties: Vec::new(),
            source_extra: String::new(),
            kafka_extra: String::new(),
            rabbitmq: None,
            extra: String::new(),
            env: Vec::new(),
        }
    }

    /// Everything by its default name, to an exchange of RabbitMQ.
    pub fn rabbitmq(
        url: impl Into<String>,
        amqp_url: impl Into<String>,
        exchange: impl Into<String>,
    ) -> RelayConfig {
        let extra = String::new();
        let target = RabbitTarget { url: amqp_url.into(), exchange: exchange.into(), extra };
        RelayConfig { rabbitmq: Some(target), ..RelayConfig::new(url, "") }
    }

    /// Writes `walrelay.toml` into `folder`, which is made if missing; says where it is.
    pub fn write(&self, folder: &Path, admin: SocketAddr) -> Result<PathBuf> {
        std::fs::create_dir_all(folder).map_err(HarnessError::io("make the relay's folder"))?;
        let file = folder.join("walrelay.toml");
        std::fs::write(&file, self.toml(admin)).map_err(HarnessError::io("write walrelay.toml"))?;
        Ok(file)
    }

    pub fn toml(&self, admin: SocketAddr) -> String {
        let mut text = format!(
            "[source]\nurl = {}\nslot = {}\npublication = {}\n{}\n\n[[source.outbox]]\ntable = {}\n\n\
             [route]\ntopic = {}\n\n",
            quoted(&self.url),
            quoted(&self.slot),
            quoted(&self.publication),
            self.source_extra.trim_end(),
            quoted(&self.table),
            quoted(&self.topic),
        );
        if let Some(key) = &self.key {
            text.truncate(text.trim_end().len());
            text.push_str(&format!("\nkey = {}\n\n", quoted(key)));
        }
        text.push_str(&self.sink());
        text.push_str(&format!("[admin]\nlisten = \"{admin}\"\n\n{}\n", self.extra.trim_end()));
        text
    }

    fn sink(&self) -> String {
        if let Some(RabbitTarget { url, exchange, extra }) = &self.rabbitmq {
            let (url, exchange, extra) = (quoted(url), quoted(exchange), extra.trim_end());
            return format!(
                "[sink]\nkind = \"rabbitmq\"\n\n[sink.rabbitmq]\nurl = {url}\nexchange = {exchange}\n{extra}\n\n"
            );
        }
        if self.brokers.is_empty() {
            return "[sink]\nkind = \"memory\"\n\n".to_owned();
        }
        let pair =
            |(name, value): &(String, String)| format!("{} = {}", quoted(name), quoted(value));
        let properties: Vec<String> = self.properties.iter().map(pair).collect();
        format!(
            "[sink]\nkind = \"kafka\"\n\n[sink.kafka]\nbrokers = {}\nproperties = {{ {} }}\n{}\n\n",
            quoted(&self.brokers),
            properties.join(", "),
            self.kafka_extra.trim_end(),
        )
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
