//! Requests of a server at the login, and which of them are answered.
//!
//! Without TLS, and beyond this machine, whoever controls the network can ask for the password itself,
//! or for an MD5 hash that is as good as one. Neither is answered, as the relay does not.
//!
//! tokio-postgres answers any request. It takes exactly one, as the very first message of the server, so
//! checking that message decides what is answered. What reads it is passed to the library in the place
//! of TLS, "negotiated directly": then nothing is sent before it, and the connection stays what it is.

use std::convert::Infallible;
use std::error::Error;
use std::future::{Ready, ready};
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::{Host, SslMode, SslNegotiation};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres::{Config, Socket};

/// Tag, length and code of an authentication request.
const HEAD_BYTES: usize = 9;
const CLEARTEXT_PASSWORD: i32 = 3;
const MD5_PASSWORD: i32 = 5;

/// A request that is not answered.
#[derive(Debug, thiserror::Error)]
#[error(
    "the server asks for {asked} over a link that is not encrypted, so it is not answered: store the \
     password as scram-sha-256 and let pg_hba.conf ask for that, or connect with TLS by Settings::connect"
)]
pub(crate) struct RefusedLogin {
    asked: &'static str,
}

impl RefusedLogin {
    /// The refusal that has caused this error.
    pub(crate) fn among<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e RefusedLogin> {
        let io = error.source()?.downcast_ref::<io::Error>()?;
        io.get_ref()?.downcast_ref()
    }
}

/// Connects without TLS, and judges what the server asks for.
#[derive(Clone)]
pub(crate) struct PlainConnector {
    /// Where addresses are given, they decide, and not the names.
    is_exposed: Option<bool>,
}

impl PlainConnector {
    /// Prepares `config` for it. None for sockets of this machine, which need no judge.
    pub(crate) fn new(config: &mut Config) -> Option<PlainConnector> {
        if names_sockets(config) {
            return None;
        }
        let addresses = config.get_hostaddrs().to_vec();
        if config.get_hosts().is_empty() {
            // The library wants a name.
            for address in &addresses {
                config.host(address.to_string());
            }
        }
        config.ssl_mode(SslMode::Require).ssl_negotiation(SslNegotiation::Direct);
        let is_exposed = addresses.iter().any(is_remote);
        Some(PlainConnector { is_exposed: (!addresses.is_empty()).then_some(is_exposed) })
    }
}

impl MakeTlsConnect<Socket> for PlainConnector {
    type Stream = JudgedSocket;
    type TlsConnect = JudgingConnect;
    type Error = Infallible;

    fn make_tls_connect(&mut self, host: &str) -> Result<JudgingConnect, Infallible> {
        let is_exposed = self.is_exposed.unwrap_or_else(|| match host.parse::<IpAddr>() {
            Ok(address) => is_remote(&address),
            Err(_) => !host.eq_ignore_ascii_case("localhost"),
        });
        Ok(JudgingConnect { is_exposed })
    }
}

/// Whether a host is a socket of this machine. The library passes no name of it on.
pub(crate) fn names_sockets(config: &Config) -> bool {
    config.get_hosts().iter().any(|host| matches!(host, Host::Unix(_)))
}

fn is_remote(address: &IpAddr) -> bool {
    !address.to_canonical().is_loopback()
}

pub(crate) struct JudgingConnect {
    is_exposed: bool,
}

impl TlsConnect<Socket> for JudgingConnect {
    type Stream = JudgedSocket;
    type Error = Infallible;
    type Future = Ready<Result<JudgedSocket, Infallible>>;

    fn connect(self, socket: Socket) -> Self::Future {
        ready(Ok(JudgedSocket { socket, is_exposed: self.is_exposed, head: Vec::new() }))
    }
}

/// Fails where the first message must not be answered.
pub(crate) struct JudgedSocket {
    socket: Socket,
    /// Others can read what is sent.
    is_exposed: bool,
    /// The beginning of the server's first message, as far as it was received.
    head: Vec<u8>,
}

impl JudgedSocket {
    fn judge(&mut self, received: &[u8]) -> Result<(), RefusedLogin> {
        if !self.is_exposed || self.head.len() == HEAD_BYTES {
            return Ok(());
        }
        let missing = HEAD_BYTES - self.head.len();
        self.head.extend(received.iter().take(missing));
        let Ok([b'R', _, _, _, _, code @ ..]) = <[u8; HEAD_BYTES]>::try_from(&*self.head) else {
            return Ok(());
        };
        match i32::from_be_bytes(code) {
            CLEARTEXT_PASSWORD => Err(RefusedLogin { asked: "the password in clear text" }),
            MD5_PASSWORD => Err(RefusedLogin { asked: "an MD5 hash of the password" }),
            _ => Ok(()),
        }
    }
}

impl TlsStream for JudgedSocket {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for JudgedSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(context, buffer))?;
        let received = buffer.filled().get(before..).unwrap_or_default();
        Poll::Ready(self.judge(received).map_err(io::Error::other))
    }
}

impl AsyncWrite for JudgedSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, buffer)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::RefusedLogin;
    use crate::Settings;
    use crate::connection::Database;

    /// An address of this machine that is none of loopback; none on a machine without a network.
    /// Nothing is sent.
    fn own_address() -> Option<std::net::IpAddr> {
        let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
        socket.connect("192.0.2.254:9").ok()?;
        let own = socket.local_addr().ok()?.ip();
        (!own.is_loopback() && !own.is_unspecified()).then_some(own)
    }

    /// The answer that a server gets that asks for this, and the error of the inbox.
    async fn login(address: std::net::IpAddr, parameter: &str, ask: &[u8]) -> (String, String) {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let length = u32::try_from(ask.len() + 4).unwrap().to_be_bytes();
        let request = [b"R", &length[..], ask].concat();
        let heard = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let (mut heard, mut buffer) = (Vec::new(), [0; 4096]);
            while let Ok(length @ 1..) = socket.read(&mut buffer).await {
                // The second is the answer.
                let is_answered = !heard.is_empty();
                heard.extend_from_slice(&buffer[..length]);
                if is_answered {
                    break;
                }
                // In two parts, as a network may deliver it.
                socket.write_all(&request[..6]).await.unwrap();
                socket.write_all(&request[6..]).await.unwrap();
            }
            String::from_utf8_lossy(&heard).into_owned()
        });
        let url = format!("{parameter} port={port} user=billing password=canary");
        let database = Database::new(&Settings::new("billing", url)).unwrap();
        let error = database.connect().await.err().unwrap();
        let told = RefusedLogin::among(&error).map(ToString::to_string).unwrap_or_default();
        (heard.await.unwrap(), told)
    }

    #[tokio::test]
    async fn a_password_goes_in_clear_to_this_machine_only() {
        let Some(address) = own_address() else { return };
        let loopback = std::net::IpAddr::from([127, 0, 0, 9]);
        let md5 = [&5_i32.to_be_bytes()[..], b"salt"].concat();
        for (ask, answer) in [(&3_i32.to_be_bytes()[..], "canary"), (&md5, "md5")] {
            // GIVEN servers beyond this machine THEN the password is not sent, and it is said why
            for parameter in [
                format!("host={address}"),
                format!("host={address} sslmode=disable"),
                format!("hostaddr={address}"),
                format!("host=localhost hostaddr={address}"),
            ] {
                let (heard, told) = login(address, &parameter, ask).await;
                assert!(heard.contains("billing"), "{parameter}: {heard:?}");
                assert!(!heard.contains(answer), "{parameter}: {heard:?}");
                assert!(told.contains("Settings::connect"), "{parameter}: {told}");
                assert!(!told.contains("canary"), "{told}");
            }
            // GIVEN one on it THEN it is sent
            for parameter in [
                format!("host={loopback}"),
                format!("hostaddr={loopback}"),
                format!("host=db hostaddr={loopback}"),
            ] {
                let (heard, told) = login(loopback, &parameter, ask).await;
                assert!(heard.contains(answer), "{parameter}: {heard:?}");
                assert_eq!(told, "");
            }
        }
    }
}
