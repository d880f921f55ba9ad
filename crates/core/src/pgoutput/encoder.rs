//! Encodes what the decoder reads; for tests only.

use super::message::Value;

/// A message being written.
pub struct Encoder(pub Vec<u8>);

impl Encoder {
    pub fn tag(tag: u8) -> Encoder {
        Encoder(vec![tag])
    }
    #[inline]
    pub fn u8(mut self, byte: u8) -> Encoder {
        self.0.push(byte);
        self
    }
    #[inline]
    pub fn u16(mut self, number: u16) -> Encoder {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }
    #[inline]
    pub fn u32(mut self, number: u32) -> Encoder {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }
    #[inline]
    pub fn u64(mut self, number: u64) -> Encoder {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }
    #[inline]
    pub fn bytes(mut self, bytes: &[u8]) -> Encoder {
        self.0.extend_from_slice(bytes);
        self
    }
    pub fn cstr(self, text: &str) -> Encoder {
        self.bytes(text.as_bytes()).u8(0)
    }
    pub fn column(self, form: &Form) -> Encoder {
        match form {
            Form::Null => self.u8(b'n'),
            Form::Unchanged => self.u8(b'u'),
            Form::Text(bytes) => self.u8(b't').u32(bytes.len() as u32).bytes(bytes),
            Form::Binary(bytes) => self.u8(b'b').u32(bytes.len() as u32).bytes(bytes),
        }
    }
}

#[derive(Clone, Debug)]
pub enum Form {
    Null,
    Unchanged,
    Text(Vec<u8>),
    Binary(Vec<u8>),
}

impl Form {
    pub fn value(&self) -> Value<'_> {
        match self {
            Form::Null => Value::Null,
            Form::Unchanged => Value::Unchanged,
            Form::Text(bytes) => Value::Text(bytes),
            Form::Binary(bytes) => Value::Binary(bytes),
        }
    }
}

/// An Insert of one row.
pub fn insert(relation: u32, forms: &[Form]) -> Vec<u8> {
    let row = Encoder::tag(b'I').u32(relation).u8(b'N').u16(forms.len() as u16);
    forms.iter().fold(row, Encoder::column).0
}
