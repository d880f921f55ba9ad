//! Column values in the two forms Postgres sends, as the bytes an event carries.
//!
//! Whatever needs no decoding stays where it lies on the wire. What does need it (a binary uuid or
//! integer, a `\x` bytea) goes into an arena whose memory is kept from row to row. Text and binary
//! form give the same bytes, so that a relay may change between them at any reconnect.

use crate::pgoutput::message::Value;

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

const HEX: &[u8; 16] = b"0123456789abcdef";

fn read_uuid(bytes: &[u8], arena: &mut Vec<u8>) -> Result<Cell<'static>, &'static str> {
    let uuid: &[u8; 16] = bytes.try_into().map_err(|_| "a uuid")?;
    let mut text = [b'-'; 36];
    let mut at = 0;
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            at += 1;
        }
        text[at] = HEX[usize::from(byte >> 4)];
        text[at + 1] = HEX[usize::from(byte & 0xF)];
        at += 2;
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

fn push_unhexed(hex: &[u8], arena: &mut Vec<u8>) -> Option<()> {
    let (pairs, []) = hex.as_chunks::<2>() else { return None };
    arena.reserve(pairs.len());
    for [high, low] in pairs {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        arena.push((digit(*high)? << 4 | digit(*low)?) as u8);
    }
    Some(())
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
mod tests {
    use super::*;

    fn read(kind: Kind, value: Value<'_>) -> Result<Option<Vec<u8>>, &'static str> {
        let mut arena = b"earlier".to_vec();
        let cell = kind.read(value, &mut arena)?;
        Ok(cell.bytes(&arena).map(<[u8]>::to_vec))
    }

    #[test]
    fn both_forms_give_the_same_bytes() {
        let uuid: Vec<u8> = (0..16).map(|n| n * 17).collect();
        for (oid, binary, text, expected) in [
            (25, &b"abc"[..], &b"abc"[..], &b"abc"[..]),
            (2950, &uuid, b"00112233-4455-6677-8899-aabbccddeeff", b"00112233-4455-6677-8899-aabbccddeeff"),
            (3802, b"\x01{}", b"{}", b"{}"),
            (17, b"\x00\xffz", b"\\x00ff7a", b"\x00\xffz"),
            (17, b"\x00\\z", b"\\000\\\\z", b"\x00\\z"),
            (17, b"", b"\\x", b""),
            (21, &[0xFF, 0xFF], b"-1", b"-1"),
            (23, &[0x7F, 0xFF, 0xFF, 0xFF], b"2147483647", b"2147483647"),
            (20, &[0x80, 0, 0, 0, 0, 0, 0, 0], b"-9223372036854775808", b"-9223372036854775808"),
            (23, &[0; 4], b"0", b"0"),
            (16, &[1], b"t", b"true"),
            (16, &[0], b"f", b"false"),
        ] {
            let kind = Kind::of(oid);
            assert_eq!(read(kind, Value::Binary(binary)), Ok(Some(expected.to_vec())), "{oid}");
            assert_eq!(read(kind, Value::Text(text)), Ok(Some(expected.to_vec())), "{oid}");
            assert_eq!(read(kind, Value::Null), Ok(None));
        }
    }

    #[test]
    fn what_is_not_of_its_type_is_refused() {
        for (oid, value) in [
            (2950, Value::Binary(b"short")),
            (3802, Value::Binary(b"")),
            (3802, Value::Binary(b"\x02{}")),
            (17, Value::Text(b"\\x0")),
            (17, Value::Text(b"\\xzz")),
            (17, Value::Text(b"\\9")),
            (21, Value::Binary(b"1234")),
            (23, Value::Binary(b"")),
            (16, Value::Binary(&[2])),
            (16, Value::Text(b"yes")),
            (1184, Value::Binary(&[0; 8])),
            (25, Value::Unchanged),
        ] {
            assert!(read(Kind::of(oid), value).is_err(), "{oid} {value:?}");
        }
        assert_eq!(read(Kind::of(1184), Value::Text(b"2026")), Ok(Some(b"2026".to_vec())));
    }
}
