//! The effective configuration.

use crate::delivery::settings::{DeadLetterSettings, DeliverySettings};
use crate::sink::settings::SinkSettings;
use crate::source::settings::SourceSettings;

/// Everything the relay obeys, typed and checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// `[source]`, with `[route]` folded into each outbox.
    pub source: SourceSettings,
    /// `[sink]`.
    pub sink: SinkSettings,
    /// `[delivery]`.
    pub delivery: DeliverySettings,
    /// `[dead_letter]`.
    pub dead_letter: DeadLetterSettings,
    /// `[admin]`.
    pub admin: AdminSettings,
}

/// The `[admin]` section.
#[derive(Clone, Debug)]
pub struct AdminSettings {
    /// Where `/metrics`, `/livez` and `/readyz` listen. Default `127.0.0.1:9464`.
    pub listen: std::net::SocketAddr,
}
