//! Column values in the two forms Postgres sends, as the bytes an event carries.
//!
//! Whatever needs no decoding stays where it lies on the wire. What does need it (a binary uuid or
//! integer, a `\x` bytea) goes into an arena whose memory is kept from row to row. Text and binary
//! form give the same bytes, so that a relay may change between them at any reconnect.

use crate::base::encoding::push_unhexed;
use crate::pgoutput::message::Value;

/// Most columns of a table that a route may use.
pub(super) const COLUMNS_MAX: usize = 32;

/// The values of one row by slot.
pub(super) type Cells<'a> = [Cell<'a>; COLUMNS_MAX];

/// A value ready to be placed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Cell<'a> {
    /// NULL.
    #[default]
    Null,
    /// Bytes that live elsewhere: on the wire, or in the plan.
    Wire(&'a [u8]),
    /// Bytes in the arena.
    Arena { start: usize, end: usize },
}

impl<'a> Cell<'a> {
    /// Its bytes.
    #[inline]
    pub(super) fn bytes(self, arena: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            Cell::Null => None,
            Cell::Wire(bytes) => Some(bytes),
            Cell::Arena { start, end } => arena.get(start..end),
        }
    }

    /// Appends its bytes to the arena; false for NULL.
    #[inline]
    pub(super) fn append_to(self, arena: &mut Vec<u8>) -> bool {
        match self {
            Cell::Null => return false,
            Cell::Wire(bytes) => arena.extend_from_slice(bytes),
            Cell::Arena { start, end } => arena.extend_from_within(start..end),
        }
        true
    }

    /// What was appended to the arena since `start`.
    #[inline]
    pub(super) fn since(start: usize, arena: &[u8]) -> Cell<'static> {
        Cell::Arena { start, end: arena.len() }
    }
}

/// How a column's type is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Both forms are the text itself.
    Text,
    Uuid,
    Jsonb,
    Bytea,
    Int2,
    Int4,
    Int8,
    Bool,
    /// Only its text form is read.
    Other,
}

impl Kind {
    /// The kind of a built-in type; a domain or an extension's type is [`Kind::Other`].
    pub(super) const fn of(type_oid: u32) -> Kind {
        match type_oid {
            16 => Kind::Bool,
            17 => Kind::Bytea,
            // name, text, json, bpchar, varchar
            19 | 25 | 114 | 1042 | 1043 => Kind::Text,
            20 => Kind::Int8,
            21 => Kind::Int2,
            23 => Kind::Int4,
            2950 => Kind::Uuid,
            3802 => Kind::Jsonb,
            _ => Kind::Other,
        }
    }

    /// Reads one value. `Err` names what was expected.
    #[inline]
    pub(super) fn read<'a>(
        self,
        value: Value<'a>,
        arena: &mut Vec<u8>,
    ) -> Result<Cell<'a>, &'static str> {
        match (value, self) {
            (Value::Null, _) => Ok(Cell::Null),
            (Value::Unchanged, _) => Err("a value (an unchanged TOAST value was sent instead)"),
            (Value::Text(bytes) | Value::Binary(bytes), Kind::Text) => Ok(Cell::Wire(bytes)),
            (Value::Binary(bytes), Kind::Uuid) => read_uuid(bytes, arena),
            (Value::Binary(bytes), Kind::Jsonb) => match bytes {
                [1, json @ ..] => Ok(Cell::Wire(json)),
                _ => Err("jsonb of version 1"),
            },
            (Value::Binary(bytes), Kind::Bytea) => Ok(Cell::Wire(bytes)),
            (Value::Text(text), Kind::Bytea) => read_bytea(text, arena),
            (Value::Binary(bytes), Kind::Bool) => match bytes {
                [0] => Ok(Cell::Wire(b"false")),
                [1] => Ok(Cell::Wire(b"true")),
                _ => Err("a boolean"),
            },
            (Value::Text(text), Kind::Bool) => match text {
                b"f" => Ok(Cell::Wire(b"false")),
                b"t" => Ok(Cell::Wire(b"true")),
                _ => Err("a boolean"),
            },
            (Value::Binary(bytes), Kind::Int2) => {
                read_integer(bytes.try_into().map(i16::from_be_bytes).map(i64::from).ok(), arena)
            }
            (Value::Binary(bytes), Kind::Int4) => {
                read_integer(bytes.try_into().map(i32::from_be_bytes).map(i64::from).ok(), arena)
            }
            (Value::Binary(bytes), Kind::Int8) => {
                read_integer(bytes.try_into().map(i64::from_be_bytes).ok(), arena)
            }
            (Value::Text(text), _) => Ok(Cell::Wire(text)),
            (Value::Binary(_), Kind::Other) => Err("a type whose binary form is read"),
        }
    }
}

/// Two digits for every byte.
const HEX: [[u8; 2]; 256] = {
    let digits = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [digits[byte >> 4], digits[byte & 0xF]];
        byte += 1;
    }
    pairs
};

/// Where the digits of each byte of a uuid stand in its text.
const UUID_PLACES: [usize; 16] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];

#[inline]
fn read_uuid(bytes: &[u8], arena: &mut Vec<u8>) -> Result<Cell<'static>, &'static str> {
    let uuid: &[u8; 16] = bytes.try_into().map_err(|_| "a uuid")?;
    let mut text = [b'-'; 36];
    for (byte, at) in uuid.iter().zip(UUID_PLACES) {
        let [high, low] = HEX[usize::from(*byte)];
        text[at] = high;
        text[at + 1] = low;
    }
    let start = arena.len();
    arena.extend_from_slice(&text);
    Ok(Cell::since(start, arena))
}

fn read_integer(number: Option<i64>, arena: &mut Vec<u8>) -> Result<Cell<'static>, &'static str> {
    let number = number.ok_or("an integer")?;
    let mut text = [0; 20];
    let mut at = text.len();
    let mut left = number.unsigned_abs();
    loop {
        at -= 1;
        text[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    let start = arena.len();
    if number < 0 {
        arena.push(b'-');
    }
    arena.extend_from_slice(&text[at..]);
    Ok(Cell::since(start, arena))
}

/// `bytea_output` may be set for the role: `hex` begins with `\x`, which `escape` never does,
/// because it doubles every backslash.
fn read_bytea(text: &[u8], arena: &mut Vec<u8>) -> Result<Cell<'static>, &'static str> {
    let start = arena.len();
    let read = match text {
        [b'\\', b'x', hex @ ..] => push_unhexed(hex, arena),
        escaped => push_unescaped(escaped, arena),
    };
    read.ok_or("bytea in hex or escape form")?;
    Ok(Cell::since(start, arena))
}

fn push_unescaped(mut text: &[u8], arena: &mut Vec<u8>) -> Option<()> {
    while let [first, rest @ ..] = text {
        text = match (first, rest) {
            (b'\\', [b'\\', rest @ ..]) => {
                arena.push(b'\\');
                rest
            }
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', rest @ ..]) => {
                arena.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest
            }
            (b'\\', _) => return None,
            (byte, rest) => {
                arena.push(*byte);
                rest
            }
        };
    }
    Some(())
}

#[cfg(test)]
#[path = "cell_tests.rs"]
mod tests;
