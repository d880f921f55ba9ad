//! The methods that a publisher sends, and those that it gets.

use std::borrow::Cow;

use crate::frame::{self, FrameKind};
use crate::wire::{Malformed, Reader, find_string, put_length, put_numbers, put_short, put_string};

/// The name of a property with which a server introduces itself.
const CLUSTER_NAME: &str = "cluster_name";
const LOCALE: &[u8] = b"en_US";
/// The capabilities that let the server send more to this client: the reason of a refused login,
/// confirms of all kinds, and that it is short of memory or disk.
const CAPABILITIES: [&[u8]; 4] =
    [b"authentication_failure_close", b"basic.nack", b"connection.blocked", b"publisher_confirms"];
const MANDATORY: u8 = 1;

/// A reply code with its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    pub code: u16,
    pub text: Cow<'a, str>,
}

impl<'a> Reply<'a> {
    fn read(arguments: &mut Reader<'a>) -> Result<Reply<'a>, Malformed> {
        let (code, text) = (arguments.u16()?, arguments.short()?);
        Ok(Reply { code, text: String::from_utf8_lossy(text) })
    }
}

/// A method that a server sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerMethod<'a> {
    Start {
        /// The name of the cluster, which is empty where the server names none.
        cluster_name: Cow<'a, str>,
    },
    Tune(Tuning),
    OpenOk,
    Close(Reply<'a>),
    Blocked(Cow<'a, str>),
    Unblocked,
    ChannelOpenOk,
    ChannelClose(Reply<'a>),
    ChannelCloseOk,
    ExchangeDeclareOk,
    /// The properties and the body of the message follow.
    Return(Reply<'a>),
    /// An ack, or a nack where `acked` is false.
    Confirm {
        tag: u64,
        multiple: bool,
        acked: bool,
    },
    ConfirmSelectOk,
    /// A method that a publisher does not expect.
    Other(u16, u16),
}

/// The limits that a login agrees on. 0 is no limit, or no heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    pub channel_max: u16,
    pub frame_max: u32,
    pub heartbeat_s: u16,
}

impl<'a> ServerMethod<'a> {
    /// Reads the payload of a method's frame.
    pub fn read(payload: &'a [u8]) -> Result<ServerMethod<'a>, Malformed> {
        let mut arguments = Reader(payload);
        // A method has two numbers: that of its class, and its own.
        Ok(match (arguments.u16()?, arguments.u16()?) {
            (10, 10) => {
                let _version = arguments.u16()?;
                let name = find_string(arguments.long()?, CLUSTER_NAME).unwrap_or_default();
                ServerMethod::Start { cluster_name: String::from_utf8_lossy(name) }
            }
            (10, 30) => ServerMethod::Tune(Tuning {
                channel_max: arguments.u16()?,
                frame_max: arguments.u32()?,
                heartbeat_s: arguments.u16()?,
            }),
            (10, 41) => ServerMethod::OpenOk,
            (10, 50) => ServerMethod::Close(Reply::read(&mut arguments)?),
            (10, 60) => ServerMethod::Blocked(String::from_utf8_lossy(arguments.short()?)),
            (10, 61) => ServerMethod::Unblocked,
            (20, 11) => ServerMethod::ChannelOpenOk,
            (20, 40) => ServerMethod::ChannelClose(Reply::read(&mut arguments)?),
            (20, 41) => ServerMethod::ChannelCloseOk,
            (40, 11) => ServerMethod::ExchangeDeclareOk,
            (60, 50) => ServerMethod::Return(Reply::read(&mut arguments)?),
            (60, method @ (80 | 120)) => {
                let (tag, bits) = (arguments.u64()?, arguments.u8()?);
                ServerMethod::Confirm { tag, multiple: bits & 1 != 0, acked: method == 80 }
            }
            (85, 11) => ServerMethod::ConfirmSelectOk,
            (class, method) => ServerMethod::Other(class, method),
        })
    }
}

/// How a client says who it is.
#[derive(Clone, PartialEq, Eq)]
pub enum Mechanism {
    /// User and password.
    Plain(String, String),
    /// The server takes the user from the certificate.
    External,
}

impl std::fmt::Debug for Mechanism {
    /// Without the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Mechanism::Plain(user, _) => f.debug_tuple("Plain").field(user).finish(),
            Mechanism::External => f.write_str("External"),
        }
    }
}

/// A method that a publisher sends.
#[derive(Clone, Copy, Debug)]
pub enum ClientMethod<'a> {
    StartOk {
        mechanism: &'a Mechanism,
        /// As the server's own tools show the connection.
        connection_name: &'a str,
    },
    TuneOk(Tuning),
    Open {
        vhost: &'a str,
    },
    /// Ends the connection in good order.
    Close,
    CloseOk,
    ChannelOpen,
    ChannelClose,
    ChannelCloseOk,
    /// Asks whether the exchange exists.
    ExchangeDeclarePassive {
        exchange: &'a str,
    },
    ConfirmSelect,
    /// A message that is returned if no queue takes it. Its properties and body follow.
    Publish {
        exchange: &'a str,
        routing_key: &'a str,
    },
}

impl ClientMethod<'_> {
    pub fn put(&self, channel: u16, out: &mut Vec<u8>) {
        frame::put(out, FrameKind::Method, channel, |out| {
            put_numbers(out, self.numbers());
            self.put_arguments(out);
        });
    }

    /// The number of its class, and its own.
    fn numbers(&self) -> [u16; 2] {
        match self {
            ClientMethod::StartOk { .. } => [10, 11],
            ClientMethod::TuneOk(_) => [10, 31],
            ClientMethod::Open { .. } => [10, 40],
            ClientMethod::Close => [10, 50],
            ClientMethod::CloseOk => [10, 51],
            ClientMethod::ChannelOpen => [20, 10],
            ClientMethod::ChannelClose => [20, 40],
            ClientMethod::ChannelCloseOk => [20, 41],
            ClientMethod::ExchangeDeclarePassive { .. } => [40, 10],
            ClientMethod::ConfirmSelect => [85, 10],
            ClientMethod::Publish { .. } => [60, 40],
        }
    }

    fn put_arguments(&self, out: &mut Vec<u8>) {
        match self {
            ClientMethod::StartOk { mechanism, connection_name } => {
                put_length(out, |out| put_client_properties(out, connection_name));
                let (name, response): (&[u8], _) = match mechanism {
                    Mechanism::Plain(user, password) => {
                        (b"PLAIN", format!("\0{user}\0{password}").into_bytes())
                    }
                    Mechanism::External => (b"EXTERNAL", Vec::new()),
                };
                put_short(out, name);
                put_length(out, |out| out.extend_from_slice(&response));
                put_short(out, LOCALE);
            }
            ClientMethod::TuneOk(Tuning { channel_max, frame_max, heartbeat_s }) => {
                put_numbers(out, [*channel_max]);
                out.extend_from_slice(&frame_max.to_be_bytes());
                put_numbers(out, [*heartbeat_s]);
            }
            ClientMethod::Open { vhost } => {
                put_short(out, vhost.as_bytes());
                // Two arguments that have no meaning any more.
                out.extend_from_slice(&[0, 0]);
            }
            ClientMethod::Close | ClientMethod::ChannelClose => {
                put_numbers(out, [200]);
                put_short(out, b"");
                put_numbers(out, [0, 0]);
            }
            ClientMethod::CloseOk | ClientMethod::ChannelCloseOk => {}
            ClientMethod::ChannelOpen | ClientMethod::ConfirmSelect => out.push(0),
            ClientMethod::ExchangeDeclarePassive { exchange } => {
                put_numbers(out, [0]);
                put_short(out, exchange.as_bytes());
                put_short(out, b"topic");
                // Passive, and no other flag; without arguments.
                out.extend_from_slice(&[1, 0, 0, 0, 0]);
            }
            ClientMethod::Publish { exchange, routing_key } => {
                put_numbers(out, [0]);
                put_short(out, exchange.as_bytes());
                put_short(out, routing_key.as_bytes());
                out.push(MANDATORY);
            }
        }
    }
}

fn put_client_properties(out: &mut Vec<u8>, connection_name: &str) {
    put_short(out, b"capabilities");
    out.push(b'F');
    put_length(out, |out| {
        for name in CAPABILITIES {
            put_short(out, name);
            out.extend_from_slice(b"t\x01");
        }
    });
    for (name, value) in [
        ("connection_name", connection_name),
        ("platform", "rust"),
        ("product", "walrelay"),
        ("version", env!("CARGO_PKG_VERSION")),
    ] {
        put_string(out, name.as_bytes(), value.as_bytes());
    }
}
