//! What all events of one transaction share, as text, made once when it begins.

use crate::lsn::Lsn;

/// The commit of the transaction that is being read.
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    commit_lsn: Lsn,
    commit_unix_us: i64,
    lsn_text: Vec<u8>,
    time_text: Vec<u8>,
}

impl Transaction {
    /// A Begin came. Its numbers are those of the commit.
    pub fn begin(&mut self, final_lsn: Lsn, commit_unix_us: i64) {
        self.commit_lsn = final_lsn;
        self.commit_unix_us = commit_unix_us;
        self.lsn_text.clear();
        let number = final_lsn.to_wire();
        push_hex(&mut self.lsn_text, (number >> 32) as u32);
        self.lsn_text.push(b'/');
        push_hex(&mut self.lsn_text, number as u32);
        self.time_text.clear();
        push_rfc3339(&mut self.time_text, commit_unix_us);
    }

    /// Where the commit record begins.
    #[must_use]
    pub const fn commit_lsn(&self) -> Lsn {
        self.commit_lsn
    }

    /// Commit time, microseconds since the Unix epoch.
    #[must_use]
    pub const fn commit_unix_us(&self) -> i64 {
        self.commit_unix_us
    }

    /// `16/B374D848`.
    #[must_use]
    pub fn lsn_text(&self) -> &[u8] {
        &self.lsn_text
    }

    /// `2026-01-02T03:04:05.678901Z`.
    #[must_use]
    pub fn time_text(&self) -> &[u8] {
        &self.time_text
    }
}

/// By hand, because one-row transactions pay for it on every event.
fn push_hex(out: &mut Vec<u8>, number: u32) {
    let digits = (8 - number.leading_zeros() / 4).max(1);
    for digit in (0..digits).rev() {
        out.push(b"0123456789ABCDEF"[(number >> (4 * digit) & 0xF) as usize]);
    }
}

/// Appends `unix_us` as RFC 3339 in UTC with microseconds.
pub(crate) fn push_rfc3339(out: &mut Vec<u8>, unix_us: i64) {
    const DAY_US: i64 = 86_400_000_000;
    let (year, month, day) = civil_from_days(unix_us.div_euclid(DAY_US));
    let of_day_us = unix_us.rem_euclid(DAY_US);
    let seconds = of_day_us / 1_000_000;
    if year < 0 {
        out.push(b'-');
    }
    push_digits(out, year.unsigned_abs(), 4);
    for (mark, number, width) in [
        (b'-', month, 2),
        (b'-', day, 2),
        (b'T', seconds / 3600, 2),
        (b':', seconds / 60 % 60, 2),
        (b':', seconds % 60, 2),
        (b'.', of_day_us % 1_000_000, 6),
    ] {
        out.push(mark);
        push_digits(out, number.unsigned_abs(), width);
    }
    out.push(b'Z');
}

/// At least `width` digits.
fn push_digits(out: &mut Vec<u8>, mut number: u64, width: usize) {
    let start = out.len();
    while number > 0 || out.len() - start < width {
        out.push(b'0' + (number % 10) as u8);
        number /= 10;
    }
    out[start..].reverse();
}

/// The proleptic Gregorian date of a day counted from 1970-01-01. Years begin in March here, so
/// that the leap day is the last of its year; 400 years are one cycle of 146,097 days.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let cycle = shifted.div_euclid(146_097);
    let of_cycle = shifted.rem_euclid(146_097);
    let year_of_cycle =
        (of_cycle - of_cycle / 1_460 + of_cycle / 36_524 - of_cycle / 146_096) / 365;
    let of_year = of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_cycle + cycle * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(unix_us: i64) -> String {
        let mut out = Vec::new();
        push_rfc3339(&mut out, unix_us);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn times_are_rfc_3339_with_microseconds() {
        assert_eq!(text_of(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(text_of(-1), "1969-12-31T23:59:59.999999Z");
        assert_eq!(text_of(946_684_800_000_000), "2000-01-01T00:00:00.000000Z");
        assert_eq!(text_of(951_782_400_000_000), "2000-02-29T00:00:00.000000Z");
        assert_eq!(text_of(4_107_542_400_000_000), "2100-03-01T00:00:00.000000Z");
        assert_eq!(text_of(1_795_266_631_227_183), "2026-11-21T13:10:31.227183Z");
        assert!(text_of(i64::MAX).starts_with("294247-01-10T04:00:54"));
        assert!(text_of(i64::MIN).starts_with("-"));
    }

    #[test]
    fn the_lsn_is_printed_as_everywhere_else() {
        let mut transaction = Transaction::default();
        for number in [0, 1, 0x16_B374_D848, 0xFFFF_FFFF, 0x1_0000_0000, u64::MAX] {
            let lsn = Lsn::from_wire(number);
            transaction.begin(lsn, 0);
            assert_eq!(transaction.lsn_text(), lsn.to_string().as_bytes());
        }
    }
}
