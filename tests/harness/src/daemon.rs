//! Owns the services that `services up` started, one request at a time.
//!
//! A request is a line (`up NAME...`, `status`, `down`); the answer is lines for people, then
//! [`WELL`] or [`ILL`]. The daemon ends when nothing is left to own.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use walrelay_harness::{HarnessError, Result};

use crate::service::Service;

pub(crate) const SOCKET: &str = "control.sock";
/// Ends an answer: all went well.
pub(crate) const WELL: &str = ".";
/// Ends an answer: something did not.
pub(crate) const ILL: &str = "!";

const URLS: &str = "env";
const REQUEST_LIMIT: Duration = Duration::from_secs(5);

/// Answers until `down`, or until there is nothing to own.
pub(crate) fn serve(folder: &Path) -> Result<()> {
    let socket = folder.join(SOCKET);
    if UnixStream::connect(&socket).is_ok() {
        return Err(HarnessError::Other("another daemon is at work".into()));
    }
    // Of a daemon that was killed.
    std::fs::remove_file(&socket).ok();
    let listener = UnixListener::bind(&socket)
        .map_err(HarnessError::io(format!("listening on {}", socket.display())))?;
    let mut services = Vec::new();
    for stream in listener.incoming() {
        // A client that hangs up early, or says nothing, is its own problem.
        let answered = stream.and_then(|stream| answer(stream, folder, &mut services));
        if let Err(error) = answered {
            eprintln!("a client was lost: {error}");
        }
        if services.is_empty() {
            break;
        }
    }
    remove(folder).map_err(HarnessError::io(format!("removing {}", folder.display())))
}

fn remove(folder: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

fn answer(stream: UnixStream, folder: &Path, services: &mut Vec<Service>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(REQUEST_LIMIT))?;
    let mut out = stream.try_clone()?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let well = match words.next() {
        Some("up") => {
            let well = start_missing(words, services, &mut out)?;
            write_urls(folder, services)?;
            well
        }
        Some("status") => status(services, &mut out)?,
        Some("down") => {
            for service in services.drain(..) {
                let name = service.name();
                drop(service);
                writeln!(out, "{name:<9} stopped, data removed")?;
            }
            true
        }
        // A mere knock: another daemon or a client looks whether anyone is here.
        _ => return Ok(()),
    };
    if services.is_empty() {
        // Before the answer: the next client must not find a daemon that ends.
        remove(folder)?;
    }
    writeln!(out, "{}", if well { WELL } else { ILL })
}

fn start_missing<'a>(
    names: impl Iterator<Item = &'a str>,
    services: &mut Vec<Service>,
    out: &mut UnixStream,
) -> std::io::Result<bool> {
    let mut well = true;
    for name in names {
        let found = services.iter().position(|service| service.name() == name);
        if let Some(at) = found {
            if services[at].answers() {
                writeln!(out, "{}", services[at].line("up already"))?;
                continue;
            }
            writeln!(out, "{name:<9} does not answer; starting a new one without its data")?;
            drop(services.remove(at));
        }
        match Service::start(name) {
            Ok((service, line)) => {
                services.push(service);
                writeln!(out, "{line}")?;
            }
            Err(error) => {
                well = false;
                writeln!(out, "{name:<9} failed: {error}")?;
            }
        }
    }
    Ok(well)
}

fn status(services: &[Service], out: &mut UnixStream) -> std::io::Result<bool> {
    let mut well = true;
    for service in services {
        let answers = service.answers();
        well &= answers;
        writeln!(out, "{}", service.line(if answers { "up" } else { "no answer" }))?;
    }
    Ok(well)
}

fn write_urls(folder: &Path, services: &[Service]) -> std::io::Result<()> {
    let mut text = String::new();
    for service in services {
        let name = service.name().to_uppercase();
        text.push_str(&format!("export WALRELAY_DEV_{name}='{}'\n", service.url()));
    }
    let staged = folder.join("env.new");
    std::fs::write(&staged, text)?;
    std::fs::rename(staged, folder.join(URLS))
}
