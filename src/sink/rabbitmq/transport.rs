//! The socket below the AMQP client: dialled here, handed to lapin.
//!
//! A connection attempt has a deadline, and lapin's side can be cut from here. TLS is ours as well ([`super::tls`]).

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use socket2::{SockRef, Socket, TcpKeepalive};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::settings::{Host, RabbitSettings};
use super::tls::{self, Carrier};

/// What the AMQP client is given, and what carries its bytes when they are encrypted.
pub(super) type Dialled = (TcpStream, Option<Carrier>);

/// Connects to one host.
pub(super) async fn dial(settings: &RabbitSettings, host: &Host) -> io::Result<Dialled> {
    let attempt = async {
        let stream = connect(host).await?;
        tune(&stream, settings.heartbeat)?;
        let Some(secured) = &settings.tls else { return Ok((stream, None)) };
        let secured = tls::over(stream, &host.name, secured).await?;
        let (plain, carrier) = tls::as_plain(secured)?;
        Ok((plain, Some(carrier)))
    };
    timeout(settings.connect_timeout, attempt).await.unwrap_or_else(|_| {
        let waited_s = settings.connect_timeout.as_secs_f32();
        Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {waited_s} s")))
    })
}

async fn connect(host: &Host) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let addresses: Vec<SocketAddr> = lookup_host((host.name.as_str(), host.port)).await?.collect();
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Ends a socket that lapin holds.
#[derive(Debug)]
pub(super) struct Cord(Socket);

impl Cord {
    pub(super) fn of(stream: &TcpStream) -> io::Result<Cord> {
        SockRef::from(stream).try_clone().map(Cord)
    }
}

impl Drop for Cord {
    fn drop(&mut self) {
        // It may have been closed by the other side.
        let _gone_already = self.0.shutdown(Shutdown::Both).is_err();
    }
}

fn tune(stream: &TcpStream, heartbeat: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    // What a dead connection still holds must not be delivered behind what the next one sends.
    socket.set_linger(Some(Duration::ZERO))?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(heartbeat))
}
