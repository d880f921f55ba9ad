//! As much HTTP and Prometheus text as the relay's own admin server needs.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::{HarnessError, Result};

const ANSWER_BYTES_MAX: u64 = 16 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub body: String,
}

/// GETs a path; the connection is closed afterwards. The timeout holds for each step.
pub fn get(address: SocketAddr, path: &str, timeout: Duration) -> Result<Response> {
    let what = || format!("GET http://{address}{path}");
    let mut stream =
        TcpStream::connect_timeout(&address, timeout).map_err(HarnessError::io(what()))?;
    let timed = stream
        .set_read_timeout(Some(timeout))
        .and_then(|()| stream.set_write_timeout(Some(timeout)));
    timed.map_err(HarnessError::io(what()))?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(HarnessError::io(what()))?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).map_err(HarnessError::io(what()))?;
    parse(&answer).ok_or_else(|| HarnessError::Other(format!("{}: not an HTTP answer", what())))
}

fn parse(answer: &[u8]) -> Option<Response> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(answer.get(..end)?).ok()?;
    let status = head.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()?;
    let body = answer.get(end + 4..)?;
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { unchunk(body)? } else { body.to_vec() };
    Some(Response { status, body: String::from_utf8_lossy(&body).into_owned() })
}

fn unchunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|window| window == b"\r\n")?;
        let size = std::str::from_utf8(rest.get(..end)?).ok()?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(end + 2..end + 2 + size)?);
        rest = rest.get(end + 2 + size + 2..)?;
    }
}

/// Samples by their name with labels. A label's value may hold blanks, so the value is what
/// follows the last one; timestamps are not expected.
pub(crate) fn parse_metrics(text: &str) -> BTreeMap<String, f64> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = samples.filter_map(|line| {
        let (name, value) = line.trim().rsplit_once(' ')?;
        Some((name.trim_end().to_owned(), value.parse().ok()?))
    });
    pairs.collect()
}
