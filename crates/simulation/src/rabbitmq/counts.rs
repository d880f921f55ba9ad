//! How often the interesting things have happened between relays and RabbitMQ.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RabbitCounts {
    /// Connections that were lost, and those that only one end knew to be.
    pub lost: u64,
    pub half_open: u64,
    /// Channels closed over a message.
    pub closed: u64,
    pub returned: u64,
    pub nacked: u64,
    /// Answers to several messages.
    pub several: u64,
    /// Answers behind a close.
    pub late: u64,
    pub blocked: u64,
    /// Messages stored whose confirm was lost, or which another queue has refused.
    pub explained: u64,
}

impl RabbitCounts {
    /// Each with its name.
    #[must_use]
    pub fn states(&self) -> [(&'static str, u64); 9] {
        [
            ("RabbitMQ: connections lost", self.lost),
            ("RabbitMQ: half-open connections", self.half_open),
            ("RabbitMQ: channels closed", self.closed),
            ("RabbitMQ: returned", self.returned),
            ("RabbitMQ: nacked", self.nacked),
            ("RabbitMQ: several answered at once", self.several),
            ("RabbitMQ: answers behind a close", self.late),
            ("RabbitMQ: blocked", self.blocked),
            ("RabbitMQ: stored, confirm lost", self.explained),
        ]
    }
}
