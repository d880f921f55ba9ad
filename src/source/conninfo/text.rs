//! The two grammars of a connection string, down to pairs of parameter and value.
//!
//! Messages are fixed text: at this depth any piece of the input may be part of a password.

use super::ConnInfoError;
use crate::base::encoding::{PercentError, percent_decode};

/// The usual cause of a URL that falls apart in an odd place.
pub(super) const ENCODE: &str = "a parameter has an impossible name or no `=` (a `/`, `?`, `#`, `&` or \
                                 `@` in a user or password must be percent-encoded: %2F %3F %23 %26 %40)";

type Pairs = Vec<(String, String)>;

/// What follows `postgres://`: `user:password@h1:p1,h2:p2/dbname?name=value&…`.
pub(super) fn url_pairs(rest: &str) -> Result<Pairs, ConnInfoError> {
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    // All three mean that a password was cut in two; going on would print its pieces as names.
    let cut = path.contains(['@', '/'])
        || rest.contains('#')
        || (query.contains('@') && !authority.contains('@') && authority.contains(':'));
    if cut {
        return Err(ConnInfoError::Malformed(ENCODE));
    }
    let mut pairs = Pairs::new();
    let (login, servers) = match authority.rsplit_once('@') {
        Some((login, servers)) => (login, servers),
        None => ("", authority),
    };
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    push(&mut pairs, "user", decode(user)?);
    push(&mut pairs, "password", decode(password)?);
    push(&mut pairs, "dbname", decode(path)?);
    server_pairs(servers, &mut pairs)?;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or(ConnInfoError::Malformed(ENCODE))?;
        if value.contains('=') {
            return Err(ConnInfoError::Malformed("a parameter has two `=` (write %3D in a value)"));
        }
        pairs.push((decode(name)?, decode(value)?));
    }
    Ok(pairs)
}

fn push(pairs: &mut Pairs, name: &str, value: String) {
    if !value.is_empty() {
        pairs.push((name.to_owned(), value));
    }
}

fn server_pairs(servers: &str, pairs: &mut Pairs) -> Result<(), ConnInfoError> {
    let mut names = Vec::new();
    let mut ports = Vec::new();
    for server in servers.split(',') {
        let (name, port) = match server.strip_prefix('[') {
            Some(bracketed) => {
                let (name, after) = bracketed
                    .split_once(']')
                    .ok_or(ConnInfoError::Malformed("an IPv6 address lacks its `]`"))?;
                match after.strip_prefix(':') {
                    Some(port) => (name, port),
                    None if after.is_empty() => (name, ""),
                    None => {
                        return Err(ConnInfoError::Malformed("text after the `]` of an address"));
                    }
                }
            }
            None => server.split_once(':').unwrap_or((server, "")),
        };
        names.push(decode(name)?);
        ports.push(decode(port)?);
    }
    // All ports open: leave the parameter open too, so that PGPORT can fill it.
    if names.iter().any(|name| !name.is_empty()) {
        push(pairs, "host", names.join(","));
    }
    if ports.iter().any(|port| !port.is_empty()) {
        push(pairs, "port", ports.join(","));
    }
    Ok(())
}

fn decode(text: &str) -> Result<String, ConnInfoError> {
    percent_decode(text).map_err(|malformed| {
        ConnInfoError::Malformed(match malformed {
            PercentError::Digits => "a `%` is not followed by two hexadecimal digits (write %25)",
            PercentError::Nul => "%00 is not allowed",
            PercentError::NotUtf8 => "a percent-encoded text is not UTF-8",
        })
    })
}

/// `name = value name='va l\'ue'`, spaces around `=` allowed.
pub(super) fn keyword_pairs(text: &str) -> Result<Pairs, ConnInfoError> {
    let mut pairs = Pairs::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=').ok_or(ConnInfoError::Malformed(
            "expected postgres://user@host/db, or name=value pairs (a value with a space needs quotes)",
        ))?;
        let name = name.trim_end();
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(ConnInfoError::Malformed(
                "a parameter lacks its `=` (a value with a space needs quotes: name='va lue')",
            ));
        }
        let (value, after) = keyword_value(after.trim_start())?;
        pairs.push((name.to_owned(), value));
        rest = after.trim_start();
    }
    Ok(pairs)
}

fn keyword_value(text: &str) -> Result<(String, &str), ConnInfoError> {
    let quoted = text.starts_with('\'');
    let mut value = String::new();
    let mut chars = text.char_indices().skip(usize::from(quoted));
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            '\'' if quoted => return Ok((value, &text[at + 1..])),
            c if !quoted && c.is_whitespace() => return Ok((value, &text[at..])),
            c => value.push(c),
        }
    }
    if quoted {
        return Err(ConnInfoError::Malformed("a quoted value lacks its closing quote"));
    }
    Ok((value, ""))
}
