//! Checks, for `walrelay check`, that the admin server can listen on its address.

use std::fmt;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use serde_json::Value;
use socket2::{Domain, Socket, Type};

use crate::base::error::{Exit, Fault};
use crate::base::finding::Finding;
use crate::base::http::{self, NoAnswer, SILENT_PROCESS_HELP};
use crate::base::runtime;

const TOPIC: &str = "admin.listen";
/// How long the process that has the address may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// A relay, as its `/status` and a configuration name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RelayName {
    pub(crate) source_slot: String,
    pub(crate) polls: bool,
}

impl RelayName {
    /// None if this is not the `/status` of a relay.
    fn read(status: &Value) -> Option<RelayName> {
        let source_slot = status["source_slot"].as_str()?.to_owned();
        Some(RelayName { source_slot, polls: status["mode"] == "polling" })
    }
}

impl fmt::Display for RelayName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RelayName { source_slot, polls } = self;
        match polls {
            true => write!(f, "relay that polls (source.slot {source_slot})"),
            false => write!(f, "relay of slot {source_slot}"),
        }
    }
}

/// If the configured relay has the address, it is probably the one that `check` is about.
#[must_use]
pub(crate) fn inspect(listen: SocketAddr, configured: &RelayName) -> Finding {
    let Err(error) = bind(listen) else {
        return Finding::ok(TOPIC, format!("the admin server can listen on {listen}"));
    };
    let fault = listen_fault(listen, &error);
    let holder = match error.kind() {
        ErrorKind::AddrInUse => match status(listen, ANSWER_WITHIN) {
            Err(NoAnswer::Late(limit)) => return Finding::fail(silent(fault, listen, limit)),
            answered => answered.ok().flatten().as_ref().and_then(RelayName::read),
        },
        _ => None,
    };
    let Some(holder) = holder else { return Finding::fail(fault) };
    if holder == *configured {
        let text = format!(
            "a {holder} runs already, and listens on {listen}; a second one on this machine needs another admin.listen; if that is a relay of another database, this one cannot start without that"
        );
        return Finding::warn(TOPIC, text);
    }
    let what = format!("{}: the {holder} listens there", fault.what);
    Finding::fail(Fault { what, ..fault })
}

/// Binds without listening, so that a relay that starts meanwhile can listen.
fn bind(listen: SocketAddr) -> std::io::Result<()> {
    let socket = Socket::new(Domain::for_address(listen), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&listen.into())
}

/// The fault of an address whose process does not answer.
fn silent(fault: Fault, listen: SocketAddr, limit: Duration) -> Fault {
    let what = format!(
        "{}: the process that listens there gives no answer within {} s: it is stopped, frozen or out of CPU",
        fault.what,
        limit.as_secs()
    );
    let mend = format!("find it: ss -ltnp 'sport = :{}'\n{SILENT_PROCESS_HELP}", listen.port());
    Fault { what, mend, ..fault }
}

/// `/status` of the process that has the address; none if it is not JSON.
pub(crate) fn status(listen: SocketAddr, within: Duration) -> Result<Option<Value>, NoAnswer> {
    let address = reachable(listen);
    let host = address.ip().to_string();
    let asking = http::get((&host, address.port()), "/status", ANSWER_BYTES_MAX);
    let answer = runtime::block_on(http::answer_within(within, asking));
    let (_, body) = answer.map_err(|fault| NoAnswer::Failed(fault.what))??;
    Ok(serde_json::from_slice(&body).ok())
}

/// Where a client on this machine reaches a server that listens on this address.
pub(crate) fn reachable(listen: SocketAddr) -> SocketAddr {
    match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => (Ipv4Addr::LOCALHOST, listen.port()).into(),
        IpAddr::V6(ip) if ip.is_unspecified() => (Ipv6Addr::LOCALHOST, listen.port()).into(),
        _ => listen,
    }
}

pub(super) fn listen_fault(listen: SocketAddr, error: &std::io::Error) -> Fault {
    let port = listen.port();
    let other = "or give another address: [admin] listen = \"127.0.0.1:9465\"";
    let mend = match error.kind() {
        ErrorKind::AddrInUse => {
            format!("find who has it: ss -ltnp 'sport = :{port}'\n{other}")
        }
        ErrorKind::AddrNotAvailable => {
            format!("see this machine's addresses: ip -brief address\n{other}")
        }
        ErrorKind::PermissionDenied => format!("use a port of 1024 or above\n{other}"),
        _ => other.to_owned(),
    };
    let what = format!("the admin server cannot listen on {listen}: {error}");
    // The address may come after the start, and a process that has it may end.
    let exit = match error.kind() {
        ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable => Exit::Failed,
        _ => Exit::Usage,
    };
    Fault::new(exit, "admin.listen", what, "[admin] listen", mend)
}
