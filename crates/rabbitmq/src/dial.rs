//! From a host to a socket, with TLS where the URL asks for it.
//!
//! The socket is connected here, for lapin too, so that a connection attempt has a deadline, the
//! socket can be shut down, and TLS is the relay's own ([`super::tls`]).

use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use socket2::{SockRef, Socket, TcpKeepalive};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::connection_loss::{AmqpResult, ConnectionLoss};
use super::settings::{RabbitLogin, RabbitSettings};
use super::tls;
use super::uri::RabbitHost;

#[derive(Debug)]
pub(super) enum Dialled {
    Plain(TcpStream),
    Encrypted(Box<TlsStream<TcpStream>>),
}

/// Ends a socket that others hold, unless it is released.
#[derive(Debug)]
pub(super) struct ShutdownOnDrop(Option<Socket>);

impl ShutdownOnDrop {
    pub(super) fn release(mut self) {
        self.0 = None;
    }
}

impl Drop for ShutdownOnDrop {
    fn drop(&mut self) {
        // The other side may have closed it already.
        let _is_closed = self.0.as_ref().is_some_and(|it| it.shutdown(Shutdown::Both).is_err());
    }
}

/// An address of a host. One that accepts connections may still be of no use, so the login at the next
/// address is tried, too.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostAddress {
    /// Index in [`RabbitSettings::hosts`].
    pub(super) host: usize,
    address: SocketAddr,
}

/// Connects to an address. The second value ends the socket whoever has it: a silent server would be
/// waited for without end.
pub(super) async fn dial(
    settings: &RabbitSettings,
    at: HostAddress,
) -> AmqpResult<(Dialled, ShutdownOnDrop)> {
    let stream = in_time(settings, TcpStream::connect(at.address)).await??;
    let host = &settings.hosts[at.host];
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    // The kernel must not send what a dead connection still holds after what the next one sends.
    socket.set_linger(Some(Duration::ZERO))?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(settings.heartbeat))?;
    let socket = ShutdownOnDrop(Some(socket.try_clone()?));
    if !settings.is_encrypted {
        return Ok((Dialled::Plain(stream), socket));
    }
    let handshake = tls::connect(stream, &host.name, &settings.tls_files);
    let encrypted = in_time(settings, handshake).await?;
    Ok((Dialled::Encrypted(Box::new(encrypted.map_err(|error| tls::loss_of(&error))?)), socket))
}

/// Calls `attempt` with each address of a host until one succeeds. Each has the whole time: a silent one
/// must not keep the next from being tried.
async fn first_address<T>(
    host: usize,
    addresses: impl Iterator<Item = SocketAddr>,
    attempt: &impl AsyncFn(HostAddress) -> AmqpResult<T>,
) -> AmqpResult<T> {
    let (mut loss, mut is_first) = (ConnectionLoss::of("the name has no address"), true);
    for address in addresses {
        match attempt(HostAddress { host, address }).await {
            // Each attempt may count towards the end of an account.
            Err(refused) if refused.is_login_refused() => return Err(refused),
            Err(found) if loss.is_final() || found.text == loss.text => {}
            Err(found) if is_first => (loss, is_first) = (found, false),
            Err(found) => {
                let text = format!("{}; {}", loss.text, found.text);
                loss = ConnectionLoss { text, ..found };
            }
            connected => return connected,
        }
    }
    Err(loss)
}

/// Waits for a step of an attempt as long as it may take.
pub(super) async fn in_time<T>(
    settings: &RabbitSettings,
    step: impl Future<Output = T>,
) -> AmqpResult<T> {
    let limit = settings.connect_timeout;
    let late = |_| ConnectionLoss::of(format!("no answer within {} s", limit.as_secs_f32()));
    timeout(limit, step).await.map_err(late)
}

/// Calls `attempt` with each address of each host, beginning with host `from`, until one succeeds. The loss
/// has the texts of all hosts, and the code of one whose refusal is final, if there is one.
pub(super) async fn first_host<T>(
    settings: &RabbitSettings,
    from: usize,
    attempt: impl AsyncFn(HostAddress) -> AmqpResult<T>,
) -> AmqpResult<T> {
    let count = settings.hosts.len();
    let mut losses: Vec<ConnectionLoss> = Vec::with_capacity(count);
    for host in (0..count).map(|step| from.wrapping_add(step) % count) {
        let RabbitHost { name, port } = &settings.hosts[host];
        let connecting = async {
            let addresses = in_time(settings, lookup_host((name.as_str(), *port))).await??;
            first_address(host, addresses, &attempt).await
        };
        match connecting.await {
            Ok(connection) => return Ok(connection),
            Err(loss) => {
                let text = format!("{}: {}", settings.hosts[host], loss.text);
                losses.push(ConnectionLoss { text, ..loss });
            }
        }
    }
    let texts: Vec<&str> = losses.iter().map(|loss| loss.text.as_str()).collect();
    let text = texts.join("; ");
    let last = count.checked_sub(1);
    Err(match losses.iter().position(ConnectionLoss::is_final).or(last) {
        Some(at) => ConnectionLoss { text, ..losses.swap_remove(at) },
        None => ConnectionLoss::of("no host is configured"),
    })
}

/// User and password as they are now.
pub(super) fn login(settings: &RabbitSettings) -> AmqpResult<RabbitLogin> {
    settings.current_login().map_err(|unread| {
        let mend = "let the user of the relay read the file of sink.rabbitmq.url; it is read for each connection";
        ConnectionLoss::of(unread).caused_by("sink.login-unread", mend, false)
    })
}

/// The heartbeat in whole seconds, which is what AMQP agrees on.
pub(super) fn heartbeat_s(settings: &RabbitSettings) -> u16 {
    u16::try_from(settings.heartbeat.as_secs()).unwrap_or(u16::MAX).max(1)
}

#[cfg(test)]
#[path = "dial_tests.rs"]
mod tests;
