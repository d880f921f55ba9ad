//! An HTTP/1.1 answer, read from bytes. Pure.
//!
//! Only what the management API sends: a status line, headers, and a body with a length, in chunks,
//! or up to the end of the connection.

use std::io;

const HEAD_BYTES_MAX: usize = 64 << 10;

/// Status and body.
pub(super) type Answer = (u16, Vec<u8>);

enum Length {
    Known(usize),
    Chunked,
    /// Up to the end of the connection.
    Open,
}

struct Head {
    status: u16,
    length: Length,
    /// Where the body begins.
    body: usize,
}

/// The answer, when the bytes hold all of it.
pub(super) fn complete(bytes: &[u8]) -> io::Result<Option<Answer>> {
    let Some(head) = head(bytes)? else {
        let endless = bytes.len() > HEAD_BYTES_MAX;
        return if endless { Err(invalid("its answer is no HTTP")) } else { Ok(None) };
    };
    let body = &bytes[head.body..];
    Ok(match head.length {
        Length::Known(length) => body.get(..length).map(|body| (head.status, body.to_vec())),
        Length::Chunked => unchunked(body)?.map(|body| (head.status, body)),
        Length::Open => None,
    })
}

/// The answer, when the connection has ended after these bytes.
pub(super) fn at_end(bytes: &[u8]) -> io::Result<Answer> {
    match head(bytes)? {
        Some(Head { status, length: Length::Open, body }) => Ok((status, bytes[body..].to_vec())),
        _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "its answer was cut short")),
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn head(bytes: &[u8]) -> io::Result<Option<Head>> {
    let bad = || invalid("its answer is no HTTP");
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Ok(None);
    };
    let text = std::str::from_utf8(&bytes[..end]).map_err(|_| bad())?;
    let mut lines = text.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let version = first.next().unwrap_or_default();
    let status = first.next().and_then(|status| status.parse().ok());
    let status = status.filter(|_| version.starts_with("HTTP/1.")).ok_or_else(bad)?;
    let mut length = Length::Open;
    for line in lines {
        let (name, value) = line.split_once(':').ok_or_else(bad)?;
        let value = value.trim();
        if name.eq_ignore_ascii_case("transfer-encoding") {
            if !value.eq_ignore_ascii_case("chunked") {
                return Err(invalid("its answer is encoded in a way not known here"));
            }
            length = Length::Chunked;
        } else if name.eq_ignore_ascii_case("content-length") && !matches!(length, Length::Chunked)
        {
            length = Length::Known(value.parse().map_err(|_| bad())?);
        }
    }
    Ok(Some(Head { status, length, body: end + 4 }))
}

/// The body behind its chunks, when the last one is there.
fn unchunked(mut rest: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let bad = || invalid("its answer has a broken chunk");
    let mut body = Vec::new();
    loop {
        let Some(end) = rest.windows(2).position(|window| window == b"\r\n") else {
            return Ok(None);
        };
        let line = std::str::from_utf8(&rest[..end]).map_err(|_| bad())?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).map_err(|_| bad())?;
        if size == 0 {
            return Ok(Some(body));
        }
        let begin = end + 2;
        let after = begin.checked_add(size).ok_or_else(bad)?;
        let Some(chunk) = rest.get(begin..after) else { return Ok(None) };
        let Some(mark) = rest.get(after..after + 2) else { return Ok(None) };
        if mark != b"\r\n" {
            return Err(bad());
        }
        body.extend_from_slice(chunk);
        rest = &rest[after + 2..];
    }
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
