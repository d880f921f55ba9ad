//! RFC 3339 times in UTC.

const DAY_US: i64 = 86_400_000_000;

/// Appends `unix_us` with microseconds: `2026-01-02T03:04:05.678000Z`.
pub fn push_rfc3339(out: &mut Vec<u8>, unix_us: i64) {
    let (year, month, day) = civil_from_days(unix_us.div_euclid(DAY_US));
    let of_day_us = unix_us.rem_euclid(DAY_US);
    let seconds = of_day_us / 1_000_000;
    if year < 0 {
        out.push(b'-');
    }
    push_digits(out, year.unsigned_abs(), 4);
    let mut rest = *b"-00-00T00:00:00.000000Z";
    for (place, number) in [
        (1..3, month),
        (4..6, day),
        (7..9, seconds / 3600),
        (10..12, seconds / 60 % 60),
        (13..15, seconds % 60),
        (16..22, of_day_us % 1_000_000),
    ] {
        let mut left = number.unsigned_abs();
        for digit in rest[place].iter_mut().rev() {
            *digit = b'0' + (left % 10) as u8;
            left /= 10;
        }
    }
    out.extend_from_slice(&rest);
}

pub fn rfc3339(unix_us: i64) -> String {
    let mut text = Vec::with_capacity(27);
    push_rfc3339(&mut text, unix_us);
    String::from_utf8(text).unwrap_or_default()
}

/// Reads `2026-01-02T03:04:05.678Z`, `2026-01-02 03:04+01:00` or `2026-01-02` as microseconds since
/// the Unix epoch. Without an offset it is UTC.
pub fn parse_rfc3339(text: &str) -> Option<i64> {
    let (date, rest) = text.split_at_checked(10)?;
    let mut parts = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let days = days_from_civil(year, month, day);
    if civil_from_days(days) != (year, month, day) {
        return None;
    }
    let of_day_us =
        if rest.is_empty() { 0 } else { parse_of_day(rest.strip_prefix(['T', 't', ' '])?)? };
    days.checked_mul(DAY_US)?.checked_add(of_day_us)
}

/// `03:04:05.678+01:00` as microseconds since midnight UTC.
fn parse_of_day(text: &str) -> Option<i64> {
    let zone_at = text.find(['Z', 'z', '+', '-']).unwrap_or(text.len());
    let (clock, zone) = text.split_at(zone_at);
    let (hour, rest) = two_digits(clock)?;
    let (minute, rest) = two_digits(rest.strip_prefix(':')?)?;
    let (second, rest) = match rest.strip_prefix(':') {
        Some(rest) => two_digits(rest)?,
        None => (0, rest),
    };
    let fraction = match rest.strip_prefix('.') {
        Some(digits) if (1..=9).contains(&digits.len()) => {
            format!("{digits:0<6}").get(..6)?.parse::<u32>().ok()?
        }
        None if rest.is_empty() => 0,
        _ => return None,
    };
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let offset_minutes = match zone {
        "" | "Z" | "z" => 0,
        zone => {
            let (sign, clock) = zone.split_at(1);
            let (hours, rest) = two_digits(clock)?;
            let (minutes, rest) = two_digits(rest.strip_prefix(':').unwrap_or(rest))?;
            let minutes =
                (rest.is_empty() && hours < 24 && minutes < 60).then_some(hours * 60 + minutes)?;
            if sign == "-" { -minutes } else { minutes }
        }
    };
    let seconds = (hour * 60 + minute - offset_minutes) * 60 + second;
    Some(seconds * 1_000_000 + i64::from(fraction))
}

fn two_digits(text: &str) -> Option<(i64, &str)> {
    let (digits, rest) = text.split_at_checked(2)?;
    let plain = digits.bytes().all(|digit| digit.is_ascii_digit());
    Some((digits.parse().ok().filter(|_| plain)?, rest))
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

/// The inverse of [`civil_from_days`].
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let year_of_cycle = year.rem_euclid(400);
    let month_from_march = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let of_cycle = year_of_cycle * 365 + year_of_cycle / 4 - year_of_cycle / 100 + of_year;
    year.div_euclid(400) * 146_097 + of_cycle - 719_468
}

#[cfg(test)]
#[path = "time_tests.rs"]
mod tests;
