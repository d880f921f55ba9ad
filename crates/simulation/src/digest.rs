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
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.number(u64::from_le_bytes(word));
        }
    }

    /// A record that the broker has stored, and when.
    pub(crate) fn record(&mut self, record: &Record) {
        self.bytes(record.topic.as_bytes());
        self.bytes(record.key.as_deref().unwrap_or_default());
        self.bytes(record.value.as_deref().unwrap_or_default());
        self.bytes(record.id.as_bytes());
        for (name, value) in record.headers.iter() {
            self.bytes(name.as_bytes());
            self.bytes(value);
        }
        let (relay, sink) = record.by;
        let times = [record.stored_unix_us as u64, record.commit_unix_us as u64];
        let place = [record.partition as u64, relay as u64, sink];
        times.into_iter().chain(place).for_each(|number| self.number(number));
    }
}
