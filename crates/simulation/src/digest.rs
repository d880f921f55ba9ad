//! A fingerprint of all that the relays of a schedule have done.

use crate::broker::Record;

/// Whether a change to the simulation or to the core has changed a schedule is seen by this number.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Digest(u64);

impl Digest {
    pub(crate) fn value(self) -> u64 {
        self.0
    }

    pub(crate) fn number(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 29);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.number(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            self.number(rest.iter().rfold(0, |word, byte| word << 8 | u64::from(*byte)));
        }
    }

    /// A record that the broker has stored, and when.
    pub(crate) fn record(&mut self, record: &Record) {
        self.bytes(record.topic.as_bytes());
        self.bytes(record.key.unwrap_or_default());
        self.bytes(record.value.unwrap_or_default());
        self.bytes(record.id.as_bytes());
        for (name, value) in record.headers.parts() {
            self.bytes(name);
            self.bytes(value);
        }
        let (relay, sink) = record.by;
        let times = [record.stored_unix_us as u64, record.commit_unix_us as u64];
        let place = [record.partition as u64, relay as u64, sink];
        times.into_iter().chain(place).for_each(|number| self.number(number));
    }
}
