//! Which dead letter a record is about, and which key, also where the text that says so was cut.

use sha2::{Digest, Sha256};

use crate::base::encoding::push_unhexed;
use crate::base::text::{escaped, shown};
use crate::dead_letter::writer::{self, KeyHash};

/// Which dead letter: what two records have in common that are about the same one. Two tables may
/// use the same ids, so the place in the transaction belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeadLetterId([u64; 2]);

impl DeadLetterId {
    /// An id that was cut is its hash, and may stand whole in another letter of the event.
    pub(super) fn of(event_id: &str, lsn: &str, ordinal: u64) -> DeadLetterId {
        let cut = writer::hash_in(event_id).and_then(read_hex);
        let id: [u8; 32] = cut.unwrap_or_else(|| Sha256::digest(event_id).into());
        let hash = Sha256::new().chain_update(id).chain_update(lsn);
        let hash = hash.chain_update(ordinal.to_be_bytes()).finalize();
        let part = |at: usize| {
            hash[at..at + 8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        DeadLetterId([part(0), part(8)])
    }

    /// Half of it, for whoever knows very many.
    #[must_use]
    pub fn hash(self) -> u64 {
        self.0[0]
    }
}

fn read_hex(hex: &str) -> Option<[u8; 32]> {
    let mut bytes = Vec::new();
    push_unhexed(hex.as_bytes(), &mut bytes)?;
    bytes.first_chunk().copied()
}

/// A value or a key that was too large for the topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Truncated {
    /// Its size before.
    pub size_bytes: u64,
    /// Its hash before, in hexadecimal.
    pub sha256: String,
}

/// Which key: the same for one that is whole and for one that was cut.
#[must_use]
pub fn key_id(key: &[u8], cut: Option<&Truncated>) -> KeyHash {
    let hashed = cut.and_then(|cut| KeyHash::of_sha256(&cut.sha256));
    hashed.unwrap_or_else(|| KeyHash::of(key))
}

/// A key as it is shown, and as a person names it: one that was cut by its hash.
#[must_use]
pub fn key_name(key: &[u8], cut: Option<&Truncated>) -> String {
    cut.map_or_else(|| shown(key), |cut| escaped(&writer::named_by_hash(&cut.sha256)))
}
