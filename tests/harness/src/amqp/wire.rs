//! The types of AMQP on the wire: numbers, names, tables, and the properties of a message.

/// A value in a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text or bytes.
    Bytes(Vec<u8>),
    /// A whole number or a time, however many bits it had.
    Number(i64),
    /// True or false.
    Flag(bool),
    /// A number with a fraction.
    Real(f64),
    /// Several values.
    List(Vec<Value>),
    /// Values by name, such as an entry of `x-death`.
    Table(Vec<(String, Value)>),
    /// No value.
    Nothing,
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Bytes(text.into())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value::Number(number)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Value {
        Value::Flag(flag)
    }
}

/// What comes with a message; AMQP's other properties are read over.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Properties {
    /// `content_type`.
    pub content_type: Option<String>,
    /// `headers`, in order.
    pub headers: Vec<(String, Value)>,
    /// `delivery_mode`; 2 is persistent.
    pub delivery_mode: Option<u8>,
    /// `message_id`.
    pub message_id: Option<String>,
    /// `timestamp`, in whole seconds.
    pub timestamp_s: Option<u64>,
    /// `type`.
    pub kind: Option<String>,
    /// `app_id`.
    pub app_id: Option<String>,
}

// The bits of the properties that are kept, in the order of their fields.
const CONTENT_TYPE: u16 = 1 << 15;
const CONTENT_ENCODING: u16 = 1 << 14;
const HEADERS: u16 = 1 << 13;
const DELIVERY_MODE: u16 = 1 << 12;
const PRIORITY: u16 = 1 << 11;
const CORRELATION_ID: u16 = 1 << 10;
const REPLY_TO: u16 = 1 << 9;
const EXPIRATION: u16 = 1 << 8;
const MESSAGE_ID: u16 = 1 << 7;
const TIMESTAMP: u16 = 1 << 6;
const KIND: u16 = 1 << 5;
const USER_ID: u16 = 1 << 4;
const APP_ID: u16 = 1 << 3;

impl Properties {
    /// The first header of that name, as bytes.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        let found = self.headers.iter().find(|(known, _)| known == name)?;
        match &found.1 {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// From behind the body's size in a header frame.
    pub(super) fn read(reader: &mut Reader<'_>) -> Option<Properties> {
        let flags = reader.u16()?;
        let has = |flag: u16| flags & flag != 0;
        let mut properties = Properties::default();
        let name = |flag: u16, reader: &mut Reader<'_>| {
            if has(flag) { reader.short().map(Some) } else { Some(None) }
        };
        properties.content_type = name(CONTENT_TYPE, reader)?;
        name(CONTENT_ENCODING, reader)?;
        if has(HEADERS) {
            properties.headers = reader.table()?;
        }
        if has(DELIVERY_MODE) {
            properties.delivery_mode = Some(reader.u8()?);
        }
        if has(PRIORITY) {
            reader.u8()?;
        }
        for flag in [CORRELATION_ID, REPLY_TO, EXPIRATION] {
            name(flag, reader)?;
        }
        properties.message_id = name(MESSAGE_ID, reader)?;
        if has(TIMESTAMP) {
            properties.timestamp_s = Some(reader.u64()?);
        }
        properties.kind = name(KIND, reader)?;
        name(USER_ID, reader)?;
        properties.app_id = name(APP_ID, reader)?;
        Some(properties)
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let at = out.len();
        let mut flags = 0;
        out.extend([0, 0]);
        if let Some(content_type) = &self.content_type {
            flags |= CONTENT_TYPE;
            put_short(out, content_type);
        }
        if !self.headers.is_empty() {
            flags |= HEADERS;
            let entries = self.headers.iter().map(|(name, value)| (name.as_str(), value));
            put_table(out, entries);
        }
        if let Some(mode) = self.delivery_mode {
            flags |= DELIVERY_MODE;
            out.push(mode);
        }
        if let Some(id) = &self.message_id {
            flags |= MESSAGE_ID;
            put_short(out, id);
        }
        if let Some(seconds) = self.timestamp_s {
            flags |= TIMESTAMP;
            out.extend(seconds.to_be_bytes());
        }
        for (flag, text) in [(KIND, &self.kind), (APP_ID, &self.app_id)] {
            if let Some(text) = text {
                flags |= flag;
                put_short(out, text);
            }
        }
        out[at..at + 2].copy_from_slice(&flags.to_be_bytes());
    }
}

/// Reads what a frame holds; nothing when it ends too early.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A name of at most 255 bytes.
    pub(super) fn short(&mut self) -> Option<String> {
        let length = self.u8()?;
        Some(String::from_utf8_lossy(self.take(length.into())?).into_owned())
    }

    pub(super) fn long(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    pub(super) fn table(&mut self) -> Option<Vec<(String, Value)>> {
        let mut inner = Reader(self.long()?);
        let mut entries = Vec::new();
        while !inner.0.is_empty() {
            entries.push((inner.short()?, inner.value()?));
        }
        Some(entries)
    }

    fn value(&mut self) -> Option<Value> {
        Some(match self.u8()? {
            b't' => Value::Flag(self.u8()? != 0),
            b'b' => Value::Number(i64::from(i8::from_be_bytes(self.array()?))),
            b'B' => Value::Number(self.u8()?.into()),
            b's' => Value::Number(i64::from(i16::from_be_bytes(self.array()?))),
            b'u' => Value::Number(self.u16()?.into()),
            b'I' => Value::Number(i64::from(i32::from_be_bytes(self.array()?))),
            b'i' => Value::Number(self.u32()?.into()),
            b'l' | b'L' | b'T' => Value::Number(i64::from_be_bytes(self.array()?)),
            b'f' => Value::Real(f32::from_be_bytes(self.array()?).into()),
            b'd' => Value::Real(f64::from_be_bytes(self.array()?)),
            b'D' => {
                let scale = self.u8()?;
                Value::Real(f64::from(self.u32()?) / 10_f64.powi(scale.into()))
            }
            b'S' | b'x' => Value::Bytes(self.long()?.to_vec()),
            b'A' => {
                let mut inner = Reader(self.long()?);
                let mut values = Vec::new();
                while !inner.0.is_empty() {
                    values.push(inner.value()?);
                }
                Value::List(values)
            }
            b'F' => Value::Table(self.table()?),
            b'V' => Value::Nothing,
            _ => return None,
        })
    }
}

/// A name; what is beyond 255 bytes is cut off.
pub(crate) fn put_short(out: &mut Vec<u8>, text: &str) {
    let bytes = &text.as_bytes()[..text.len().min(255)];
    out.push(bytes.len() as u8);
    out.extend(bytes);
}

pub(super) fn put_long(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u32).to_be_bytes());
    out.extend(bytes);
}

pub(crate) fn put_table<'a>(
    out: &mut Vec<u8>,
    entries: impl IntoIterator<Item = (&'a str, &'a Value)>,
) {
    let at = out.len();
    out.extend([0; 4]);
    for (name, value) in entries {
        put_short(out, name);
        put_value(out, value);
    }
    end_length(out, at);
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Bytes(bytes) => {
            out.push(b'S');
            put_long(out, bytes);
        }
        Value::Number(number) => {
            out.push(b'l');
            out.extend(number.to_be_bytes());
        }
        Value::Flag(flag) => out.extend([b't', u8::from(*flag)]),
        Value::Real(real) => {
            out.push(b'd');
            out.extend(real.to_be_bytes());
        }
        Value::List(values) => {
            out.push(b'A');
            let at = out.len();
            out.extend([0; 4]);
            values.iter().for_each(|value| put_value(out, value));
            end_length(out, at);
        }
        Value::Table(entries) => {
            out.push(b'F');
            put_table(out, entries.iter().map(|(name, value)| (name.as_str(), value)));
        }
        Value::Nothing => out.push(b'V'),
    }
}

/// Writes the length of all that follows into the four bytes at `at`.
fn end_length(out: &mut [u8], at: usize) {
    let length = (out.len() - at - 4) as u32;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_read_as_they_were_written() {
        let death = Value::Table(vec![("count".into(), 3.into()), ("queue".into(), "q".into())]);
        let properties = Properties {
            content_type: Some("application/json".into()),
            headers: vec![
                ("key".into(), Value::Bytes(vec![0, 255, 10])),
                ("x-death".into(), Value::List(vec![death, Value::Nothing])),
                ("flag".into(), true.into()),
                ("half".into(), Value::Real(0.5)),
            ],
            delivery_mode: Some(2),
            message_id: Some("id".into()),
            timestamp_s: Some(1_700_000_000),
            kind: Some("created".into()),
            app_id: None,
        };
        let mut out = Vec::new();
        properties.write(&mut out);
        let mut reader = Reader(&out);
        assert_eq!(Properties::read(&mut reader), Some(properties.clone()));
        assert!(reader.0.is_empty());
        assert_eq!(properties.header("key"), Some(&[0, 255, 10][..]));
        assert_eq!(properties.header("flag"), None);
        // And what is cut short is no message.
        assert_eq!(Properties::read(&mut Reader(&out[..out.len() - 1])), None);
    }
}
