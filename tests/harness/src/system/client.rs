//! A client of the order service. It keeps its connection, and repeats what got no answer.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::kit::wait_at_most;
use crate::{HarnessError, Result};

const TIMEOUT: Duration = Duration::from_secs(10);
/// For a request with all its repetitions.
const LIMIT: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(50);

pub struct OrderClient {
    address: SocketAddr,
    connection: Option<BufReader<TcpStream>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    /// How often it was asked; more than 1 after a failure.
    pub requests: u64,
}

impl OrderClient {
    pub fn new(address: SocketAddr) -> OrderClient {
        OrderClient { address, connection: None }
    }

    /// Posts until the service says that it is done, now or before.
    pub fn post(&mut self, path: &str, body: &str) -> Result<Reply> {
        let (mut requests, mut last) = (0, String::new());
        let reply = wait_at_most(LIMIT, PAUSE, || {
            requests += 1;
            last = match self.try_post(path, body) {
                Ok(status @ 200..=299) => return Ok(Some(Reply { status, requests })),
                Ok(status @ 400..=499) => {
                    return Err(HarnessError::Other(format!("POST {path}: {status}")));
                }
                Ok(status) => status.to_string(),
                Err(error) => error.to_string(),
            };
            Ok(None)
        })?;
        reply.ok_or_else(|| {
            let what = format!("POST {path}, last: {last}");
            HarnessError::Late { what, limit: LIMIT }
        })
    }

    fn try_post(&mut self, path: &str, body: &str) -> std::io::Result<u16> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let stream = TcpStream::connect(self.address)?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                stream.set_nodelay(true)?;
                BufReader::new(stream)
            }
        };
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        connection.get_mut().write_all(head.as_bytes())?;
        let status = read(&mut connection)?;
        self.connection = Some(connection);
        Ok(status)
    }
}

/// Reads an answer to its end; its status.
fn read(connection: &mut BufReader<TcpStream>) -> std::io::Result<u16> {
    let broken = || std::io::Error::from(std::io::ErrorKind::InvalidData);
    let mut line = || {
        let mut line = String::new();
        connection.read_line(&mut line)?;
        Ok::<_, std::io::Error>(line.trim_end().to_ascii_lowercase())
    };
    let first = line()?;
    let status = first.split(' ').nth(1).and_then(|word| word.parse().ok()).ok_or_else(broken)?;
    let mut length = 0;
    loop {
        let header = line()?;
        if header.is_empty() {
            break;
        }
        if let Some(text) = header.strip_prefix("content-length:") {
            length = text.trim().parse().map_err(|_| broken())?;
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body)?;
    Ok(status)
}
