//! Free loopback ports, distinct within a run.
//!
//! Ports come from below the range the kernel uses for outgoing connections: a service that is
//! killed and started again needs the same port, and a client's connection must not have taken it
//! meanwhile. Another process may still take one between the check and its use, so starters retry
//! with others on a clash.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

use crate::{HarnessError, Result};

const SPAN: u16 = 16_000;
const FLOOR: u16 = 10_000;
const DEFAULT_OUTGOING_LOW: u16 = 32_768;
const ATTEMPTS: u32 = 3;

static TAKEN: Mutex<Option<Taken>> = Mutex::new(None);

struct Taken {
    given: HashSet<u16>,
    next: u16,
}

/// A port on which nothing listens and which this process has not given out before.
pub fn free() -> Result<u16> {
    let (low, high) = range();
    let mut guard = TAKEN.lock().map_err(|_| HarnessError::Other("port list poisoned".into()))?;
    let taken = guard.get_or_insert_with(|| Taken { given: HashSet::new(), next: seed(low, high) });
    for _ in low..high {
        let port = taken.next;
        taken.next = if port + 1 >= high { low } else { port + 1 };
        if !taken.given.contains(&port) && bound(port).is_ok() {
            taken.given.insert(port);
            return Ok(port);
        }
    }
    Err(HarnessError::Other(format!("no free port between {low} and {high}")))
}

/// Starts what takes its ports from [`free`] once more, with others, when one of them was taken meanwhile.
pub(crate) fn retry<T>(mut start: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 1..ATTEMPTS {
        match start() {
            Err(error) if error.is_port_clash() => {}
            outcome => return outcome,
        }
    }
    start()
}

/// A look that does not listen: a process that another thread forks meanwhile has a copy of the socket
/// until it executes its program, and a copy that listened would still hold the port.
fn bound(port: u16) -> rustix::io::Result<OwnedFd> {
    let socket =
        net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    net::sockopt::set_socket_reuseaddr(&socket, true)?;
    net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    Ok(socket)
}

fn range() -> (u16, u16) {
    let low = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse::<u16>().ok())
        .unwrap_or(DEFAULT_OUTGOING_LOW);
    // A machine that gives nearly all ports to outgoing connections leaves no quiet range.
    let high = if low < FLOOR + 1_000 { DEFAULT_OUTGOING_LOW } else { low };
    (high.saturating_sub(SPAN).max(FLOOR), high)
}

/// Spreads concurrent test processes over the range.
fn seed(low: u16, high: u16) -> u16 {
    let width = u32::from(high - low);
    let offset = std::process::id().wrapping_mul(37) % width;
    low + u16::try_from(offset).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often a service was started whose starts say this in turn, and then succeed.
    fn starts(logs: &[&str]) -> (u32, Result<()>) {
        let (mut logs, mut count) = (logs.iter(), 0);
        let outcome = retry(|| {
            count += 1;
            let failed = |log: &&str| HarnessError::Start {
                service: "Kafka",
                reason: "it ended with 1".into(),
                log_tail: (*log).into(),
            };
            logs.next().map_or(Ok(()), |log| Err(failed(log)))
        });
        (count, outcome)
    }

    #[test]
    fn a_start_is_repeated_on_a_clash_of_ports_alone_and_not_for_ever() {
        const CLASH: &str = "java.net.BindException: Address already in use";
        assert!(matches!(starts(&[CLASH, CLASH]), (3, Ok(()))));
        assert!(matches!(starts(&[CLASH, CLASH, CLASH]), (3, Err(_))));
        assert!(matches!(starts(&["OutOfMemoryError"]), (1, Err(_))));
    }
}
