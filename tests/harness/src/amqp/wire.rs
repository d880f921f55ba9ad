//! Frames on a socket, gathered until they are flushed, and the properties of a message.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use amq_protocol::frame::{AMQPFrame, WriteContext, gen_frame, parse_frame};
use amq_protocol::protocol::{AMQPClass, BasicProperties, connection};
use amq_protocol::types::{AMQPValue, FieldTable, LongString, ShortString};

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Bytes(Vec<u8>),
    Number(i64),
    Flag(bool),
    Other(AMQPValue),
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

impl From<&AMQPValue> for Value {
    fn from(value: &AMQPValue) -> Value {
        match value {
            AMQPValue::LongString(text) => Value::Bytes(text.as_bytes().to_vec()),
            AMQPValue::ByteArray(bytes) => Value::Bytes(bytes.as_slice().to_vec()),
            AMQPValue::LongLongInt(number) => Value::Number(*number),
            AMQPValue::Boolean(flag) => Value::Flag(*flag),
            other => Value::Other(other.clone()),
        }
    }
}

impl From<Value> for AMQPValue {
    fn from(value: Value) -> AMQPValue {
        match value {
            Value::Bytes(bytes) => AMQPValue::LongString(LongString::from(bytes)),
            Value::Number(number) => AMQPValue::LongLongInt(number),
            Value::Flag(flag) => AMQPValue::Boolean(flag),
            Value::Other(other) => other,
        }
    }
}

pub(crate) fn table(entries: impl IntoIterator<Item = (String, Value)>) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in entries {
        table.insert(name.into(), value.into());
    }
    table
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Properties {
    pub content_type: Option<String>,
    pub headers: Vec<(String, Value)>,
    /// 2 is persistent.
    pub delivery_mode: Option<u8>,
    pub message_id: Option<String>,
    pub timestamp_s: Option<u64>,
    pub kind: Option<String>,
    pub app_id: Option<String>,
}

impl Properties {
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        let found = self.headers.iter().find(|(known, _)| known == name)?;
        match &found.1 {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
}

impl From<BasicProperties> for Properties {
    fn from(read: BasicProperties) -> Properties {
        let text = |text: &Option<ShortString>| text.as_ref().map(ShortString::to_string);
        let headers = read.headers().iter().flat_map(|headers| headers.inner());
        Properties {
            content_type: text(read.content_type()),
            headers: headers.map(|(name, value)| (name.to_string(), value.into())).collect(),
            delivery_mode: *read.delivery_mode(),
            message_id: text(read.message_id()),
            timestamp_s: *read.timestamp(),
            kind: text(read.kind()),
            app_id: text(read.app_id()),
        }
    }
}

impl From<&Properties> for BasicProperties {
    fn from(own: &Properties) -> BasicProperties {
        let mut all = BasicProperties::default();
        if let Some(content_type) = &own.content_type {
            all = all.with_content_type(content_type.as_str().into());
        }
        if !own.headers.is_empty() {
            all = all.with_headers(table(own.headers.iter().cloned()));
        }
        if let Some(mode) = own.delivery_mode {
            all = all.with_delivery_mode(mode);
        }
        if let Some(id) = &own.message_id {
            all = all.with_message_id(id.as_str().into());
        }
        if let Some(seconds) = own.timestamp_s {
            all = all.with_timestamp(seconds);
        }
        if let Some(kind) = &own.kind {
            all = all.with_type(kind.as_str().into());
        }
        if let Some(app_id) = &own.app_id {
            all = all.with_app_id(app_id.as_str().into());
        }
        all
    }
}

/// Bytes as they come, whole frames as they are complete.
#[derive(Default)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
    at: usize,
}

impl Frames {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.at));
        self.bytes.extend(bytes);
    }

    /// The next whole frame; an error when it is none.
    pub(crate) fn next(&mut self) -> io::Result<Option<AMQPFrame>> {
        let unread = &self.bytes[self.at..];
        match parse_frame(unread) {
            Ok((rest, frame)) => {
                self.at += unread.len() - rest.len();
                Ok(Some(frame))
            }
            Err(error) if error.is_incomplete() => Ok(None),
            Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, format!("{error:?}"))),
        }
    }
}

/// One end of a connection. What is written is gathered until it is flushed.
pub struct Wire {
    socket: TcpStream,
    input: Frames,
    output: Vec<u8>,
    silent: bool,
}

impl Drop for Wire {
    /// Somebody else may keep a handle of the socket: closing this one would not end it.
    fn drop(&mut self) {
        if !self.silent {
            drop(self.socket.shutdown(Shutdown::Both));
        }
    }
}

impl Wire {
    pub fn new(socket: TcpStream) -> io::Result<Wire> {
        socket.set_nodelay(true)?;
        Ok(Wire { socket, input: Frames::default(), output: Vec::new(), silent: false })
    }

    pub(crate) fn buffered(&mut self) -> io::Result<Option<AMQPFrame>> {
        self.input.next()
    }

    /// The next frame; nothing when none is whole in time.
    pub fn read(&mut self, patience: Duration) -> io::Result<Option<AMQPFrame>> {
        let began = Instant::now();
        let mut part = [0; 64 * 1024];
        loop {
            if let Some(frame) = self.input.next()? {
                return Ok(Some(frame));
            }
            // Zero would wait for ever.
            let left = patience.saturating_sub(began.elapsed()).max(Duration::from_millis(1));
            self.socket.set_read_timeout(Some(left))?;
            match self.socket.read(&mut part) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.input.push(&part[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub fn write(&mut self, frame: &AMQPFrame) {
        let context = WriteContext::from(std::mem::take(&mut self.output));
        let written = gen_frame(frame)(context).expect("memory takes everything");
        self.output = written.into_inner().0;
    }

    pub fn connection(&mut self, method: connection::AMQPMethod) {
        self.write(&AMQPFrame::Method(0, AMQPClass::Connection(method)));
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.socket.write_all(&std::mem::take(&mut self.output))
    }

    pub fn fall_silent(&mut self) {
        self.silent = true;
    }
}
