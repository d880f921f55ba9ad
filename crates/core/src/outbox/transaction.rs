//! Texts that all events of one transaction share, made once when it begins.

use crate::base::lsn::Lsn;
use crate::base::time::push_rfc3339;

/// The commit of the transaction that is being read.
#[derive(Clone, Debug, Default)]
pub struct CommitStamp {
    commit_unix_us: i64,
    lsn_text: Vec<u8>,
    time_text: Vec<u8>,
}

impl CommitStamp {
    /// A Begin was received; its numbers are those of the commit.
    pub fn begin(&mut self, final_lsn: Lsn, commit_unix_us: i64) {
        self.commit_unix_us = commit_unix_us;
        self.lsn_text.clear();
        let number = final_lsn.to_wire();
        push_hex(&mut self.lsn_text, (number >> 32) as u32);
        self.lsn_text.push(b'/');
        push_hex(&mut self.lsn_text, number as u32);
        self.time_text.clear();
        push_rfc3339(&mut self.time_text, commit_unix_us);
    }

    pub const fn commit_unix_us(&self) -> i64 {
        self.commit_unix_us
    }

    /// `16/B374D848`.
    pub fn lsn_text(&self) -> &[u8] {
        &self.lsn_text
    }

    /// `2026-01-02T03:04:05.678901Z`.
    pub fn time_text(&self) -> &[u8] {
        &self.time_text
    }
}

/// Faster than `write!`: every event of a transaction of one row pays for it.
fn push_hex(out: &mut Vec<u8>, number: u32) {
    let digits = (8 - number.leading_zeros() / 4).max(1);
    for digit in (0..digits).rev() {
        out.push(b"0123456789ABCDEF"[(number >> (4 * digit) & 0xF) as usize]);
    }
}

#[cfg(test)]
#[path = "transaction_tests.rs"]
mod tests;
