//! Messages to the service manager: the datagrams of systemd's `sd_notify(3)`, one socket address in
//! `NOTIFY_SOCKET`. Without that variable nothing is sent.
//!
//! Nobody waits for a service manager that does not read: a datagram that it does not take in time is lost,
//! and [`ServiceManager::send`] says so.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::error::Fault;
use super::os_ffi::monotonic_us;
use super::text::{escaped, truncated};

const SEND_WITHIN: Duration = Duration::from_millis(100);
/// Longest text of a status, in bytes.
const STATUS_BYTES_MAX: usize = 1000;
/// So often within the limit of the service manager the process says that it is alive.
const SIGNS_OF_LIFE: u32 = 3;

/// The service manager of this process, if it has one that listens.
#[derive(Debug, Default)]
pub struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// How often it wants to hear that the process is alive.
    pub watchdog_every: Option<Duration>,
    is_started: AtomicBool,
}

impl ServiceManager {
    /// The one of this process, from its environment.
    pub fn of_process() -> ServiceManager {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let number = |name| variable(name)?.to_str()?.parse::<u64>().ok();
        let Some(address) = variable("NOTIFY_SOCKET") else { return ServiceManager::default() };
        // The watchdog may be meant for the process that has started this one.
        let is_watched =
            number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let limit = number("WATCHDOG_USEC").filter(|limit| is_watched && *limit > 0);
        ServiceManager::at(&address, limit.map(Duration::from_micros)).unwrap_or_else(|error| {
            tracing::warn!(code = "run.not-notified", %error, "NOTIFY_SOCKET cannot be used");
            ServiceManager::default()
        })
    }

    /// The one behind this address: a path, or `@` and the name of an abstract socket.
    pub fn at(address: &OsStr, watchdog_limit: Option<Duration>) -> io::Result<ServiceManager> {
        let address = match address.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            [b'/', ..] => SocketAddr::from_pathname(address)?,
            _ => {
                let text = "neither an absolute path nor an abstract socket (@NAME)";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(SEND_WITHIN))?;
        Ok(ServiceManager {
            socket: Some((socket, address)),
            watchdog_every: watchdog_limit.map(|limit| limit / SIGNS_OF_LIFE),
            is_started: AtomicBool::default(),
        })
    }

    pub fn listens(&self) -> bool {
        self.socket.is_some()
    }

    /// The process has started: from now on a reload is announced.
    pub fn started(&self) {
        self.is_started.store(true, Ordering::Relaxed);
    }

    /// Sends assignments, one a line. False if they were not taken.
    pub fn send(&self, lines: &str) -> bool {
        let Some((socket, address)) = &self.socket else { return false };
        let sent = socket.send_to_addr(lines.as_bytes(), address);
        if let Err(error) = &sent {
            tracing::warn!(code = "run.not-notified", %error, "the service manager was not notified");
        }
        sent.is_ok()
    }

    /// Announces a reload, does it, and says that it is done.
    pub fn while_reloading(&self, reload: &dyn Fn()) {
        // READY=1 would end a start that is under way.
        let announced = self.is_started.load(Ordering::Relaxed)
            && self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic_us()));
        reload();
        if announced {
            self.send("READY=1");
        }
    }

    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// The fault that ends the process stays visible after its end.
    pub fn ended(&self, fault: &Fault) {
        let text = format!("ended with {}: {}", fault.code, fault.what);
        self.send(&format!("STOPPING=1\n{}", status_line(&text)));
    }
}

/// The assignment that shows `text` as the state of the service.
pub fn status_line(text: &str) -> String {
    format!("STATUS={}", escaped(truncated(text, STATUS_BYTES_MAX)))
}

#[cfg(test)]
#[path = "service_manager_tests.rs"]
mod tests;
