//! Frames on a socket: gathered until they are flushed, so that a script decides what arrives as one.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use amq_protocol::frame::{AMQPFrame, WriteContext, gen_frame, parse_frame};
use amq_protocol::protocol::{AMQPClass, connection};

pub(super) struct Wire {
    socket: TcpStream,
    input: Vec<u8>,
    /// Where the first unread byte is.
    at: usize,
    output: Vec<u8>,
    silent: bool,
}

impl Drop for Wire {
    /// The server keeps a handle of every socket: closing this one would not end the connection.
    fn drop(&mut self) {
        if !self.silent {
            drop(self.socket.shutdown(Shutdown::Both));
        }
    }
}

impl Wire {
    pub(super) fn new(socket: TcpStream) -> io::Result<Wire> {
        socket.set_nodelay(true)?;
        Ok(Wire { socket, input: Vec::new(), at: 0, output: Vec::new(), silent: false })
    }

    /// The next frame; nothing when none is whole in time.
    pub(super) fn read(&mut self, patience: Duration) -> io::Result<Option<AMQPFrame>> {
        // Zero would wait for ever.
        self.socket.set_read_timeout(Some(patience.max(Duration::from_millis(1))))?;
        loop {
            if let Some(frame) = self.parse()? {
                return Ok(Some(frame));
            }
            let mut part = [0; 64 * 1024];
            match self.socket.read(&mut part) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    self.input.drain(..self.at);
                    self.at = 0;
                    self.input.extend_from_slice(&part[..read]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn parse(&mut self) -> io::Result<Option<AMQPFrame>> {
        let unread = &self.input[self.at..];
        match parse_frame(unread) {
            Ok((rest, frame)) => {
                self.at += unread.len() - rest.len();
                Ok(Some(frame))
            }
            Err(error) if error.is_incomplete() => Ok(None),
            Err(error) => panic!("the client sent what is no frame: {error:?}"),
        }
    }

    pub(super) fn write(&mut self, frame: &AMQPFrame) {
        let context = WriteContext::from(std::mem::take(&mut self.output));
        let written = gen_frame(frame)(context).expect("memory takes everything");
        self.output = written.into_inner().0;
    }

    pub(super) fn connection(&mut self, method: connection::AMQPMethod) {
        self.write(&AMQPFrame::Method(0, AMQPClass::Connection(method)));
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.socket.write_all(&std::mem::take(&mut self.output))
    }

    /// Leaves the connection open when this is dropped.
    pub(super) fn fall_silent(&mut self) {
        self.silent = true;
    }
}
