//! Findings of `check` about a connection to the cluster that others can read, or pose as the end
//! of.

use std::collections::BTreeMap;

use super::settings::KafkaSettings;
use crate::base::finding::Finding;
use crate::base::host;
use crate::base::secret::Secret;

const TOPIC: &str = "sink.link";

pub(super) fn warnings(settings: &KafkaSettings) -> Vec<Finding> {
    let KafkaSettings { brokers, properties, .. } = settings;
    let is = |name: &str, value: &str| property(properties, name).eq_ignore_ascii_case(value);
    let to_others = brokers.split(',').find(|broker| !host::is_own(host_of(broker)));
    let mut found = Vec::new();
    if let Some(broker) = to_others.filter(|_| is("security.protocol", "sasl_plaintext")) {
        let what = match property(properties, "sasl.mechanism").to_ascii_uppercase().as_str() {
            "" | "PLAIN" => "the password and the events",
            _ => "the events, and the exchange that proves the password,",
        };
        found.push(format!(
            "SASL_PLAINTEXT to {broker} is not encrypted: {what} can be read on the way; set \"security.protocol\" = \"SASL_SSL\" in sink.kafka.properties"
        ));
    }
    let over_tls = is("security.protocol", "ssl") || is("security.protocol", "sasl_ssl");
    let unverified =
        ["0", "f", "false"].iter().any(|no| is("enable.ssl.certificate.verification", no));
    if over_tls && unverified {
        found.push(format!(
            "the certificates of {brokers} are not verified, so whoever is on the way can pose as the cluster; remove \"enable.ssl.certificate.verification\" from sink.kafka.properties"
        ));
    } else if over_tls && is("ssl.endpoint.identification.algorithm", "none") {
        found.push(format!(
            "any certificate of a trusted authority passes for those of {brokers}; remove \"ssl.endpoint.identification.algorithm\" from sink.kafka.properties"
        ));
    }
    found.into_iter().map(|text| Finding::warn(TOPIC, text)).collect()
}

/// Reads a property. The mechanism has two names in librdkafka.
fn property<'a>(properties: &'a BTreeMap<String, Secret>, name: &str) -> &'a str {
    let plural = (name == "sasl.mechanism").then_some("sasl.mechanisms");
    let names = [Some(name), plural];
    let given = names.into_iter().flatten().find_map(|name| properties.get(name));
    given.map_or("", |value| value.expose().trim())
}

fn host_of(broker: &str) -> &str {
    let address = broker.rsplit_once("://").map_or(broker, |(_, address)| address).trim();
    match address.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => address,
    }
}

#[cfg(test)]
#[path = "link_security_tests.rs"]
mod tests;
