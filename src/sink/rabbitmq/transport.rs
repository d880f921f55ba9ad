//! The socket below the AMQP client: dialled here, handed to lapin.
//!
//! A connection attempt has a deadline, and a peer that acknowledges nothing for as long as two
//! heartbeats is dead, whatever TCP would think of it. TLS is ours as well: lapin reads and writes
//! one end of a socket pair, and what goes in comes out of the other end encrypted.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::settings::{Host, RabbitSettings};

/// Connects to one host.
pub(super) async fn dial(settings: &RabbitSettings, host: &Host) -> io::Result<TcpStream> {
    let attempt = async {
        let stream = connect(host).await?;
        tune(&stream, settings.heartbeat)?;
        match &settings.tls {
            None => Ok(stream),
            Some(_) => Err(io::Error::other("TLS is to come")),
        }
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

fn tune(stream: &TcpStream, heartbeat: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(heartbeat))
}
