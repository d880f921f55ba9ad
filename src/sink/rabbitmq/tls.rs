//! TLS below the AMQP client, which insists on a plain TCP socket.
//!
//! The client gets one end of a socket pair. A task carries bytes between the other end and the
//! encrypted connection. Whichever side ends, the task ends, and with it the other side; when the
//! connection is dropped ([`Carrier`]), the task is ended too. What ended it is remembered, for the
//! client sees no more than an end.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::pki_types::ServerName;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::{TcpStream, UnixStream};
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::fault::{Cause, Loss};
use super::settings::TlsSettings;
use crate::base::tls::{self, PemFile, TlsError, Verified};

/// One gulp in each direction; an AMQP frame is half of it.
const GULP_BYTES: usize = 64 << 10;

/// Shakes hands as a client of `host`.
pub(super) async fn over(
    stream: TcpStream,
    host: &str,
    settings: &TlsSettings,
) -> io::Result<TlsStream<TcpStream>> {
    let name = settings.server_name.as_deref().unwrap_or(host);
    let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    let config = client_config(settings)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    TlsConnector::from(config).connect(name, stream).await
}

fn client_config(settings: &TlsSettings) -> Result<Arc<rustls::ClientConfig>, TlsError> {
    let file = |parameter, path| PemFile { parameter, path };
    let TlsSettings { ca_file, cert_file, key_file, .. } = settings;
    let roots = tls::roots(file("sink.rabbitmq.ca_file", ca_file.as_deref()))?;
    let cert = file("sink.rabbitmq.cert_file", cert_file.as_deref());
    let key = file("sink.rabbitmq.key_file", key_file.as_deref());
    let provider = tls::provider();
    let verifier = Arc::new(Verified::new(roots, true, &provider)?);
    tls::client_config(provider, verifier, tls::identity(cert, key)?)
}

/// Carries bytes until it is dropped, or until one side ends.
#[derive(Debug)]
pub(super) struct Carrier {
    task: AbortHandle,
    ended: Arc<Mutex<Option<Loss>>>,
}

impl Carrier {
    /// Why TLS ended, when it was TLS that ended it.
    pub(super) fn end(&self) -> Option<Loss> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A plain socket whose other end is this connection.
pub(super) fn as_plain(mut secured: TlsStream<TcpStream>) -> io::Result<(TcpStream, Carrier)> {
    let (theirs, ours) = StdUnixStream::pair()?;
    for end in [&theirs, &ours] {
        end.set_nonblocking(true)?;
    }
    let plain = TcpStream::from_std(std::net::TcpStream::from(OwnedFd::from(theirs)))?;
    let mut ours = UnixStream::from_std(ours)?;
    let ended = Arc::new(Mutex::new(None));
    let told = Arc::clone(&ended);
    let task = tokio::spawn(async move {
        let carried =
            copy_bidirectional_with_sizes(&mut ours, &mut secured, GULP_BYTES, GULP_BYTES).await;
        if let Err(error) = carried
            && rustls_error(&error).is_some()
        {
            *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(Loss::from(error));
        }
    });
    Ok((plain, Carrier { task: task.abort_handle(), ended }))
}

fn rustls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

/// The words of a failure, for people.
pub(super) fn describe(error: &io::Error) -> String {
    use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};
    let Some(tls) = rustls_error(error) else { return error.to_string() };
    match tls {
        Error::InvalidCertificate(refused) => match refused {
            CertificateError::UnknownIssuer => {
                "the server's certificate is signed by nobody that is trusted".to_owned()
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the server's certificate has expired".to_owned()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the server's certificate is not valid yet".to_owned()
            }
            CertificateError::NotValidForNameContext { expected, presented } => format!(
                "the server's certificate is for {}, not for {}",
                presented.join(", "),
                expected.to_str()
            ),
            refused => format!("the server's certificate is refused: {refused}"),
        },
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the server does not speak TLS on this port".to_owned()
        }
        Error::AlertReceived(alert) => match alert {
            AlertDescription::CertificateRequired => {
                "the server demands a client certificate".to_owned()
            }
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired => {
                format!("the server refuses the client certificate ({alert:?})")
            }
            alert => format!("the server ended TLS: {alert:?}"),
        },
        tls => format!("TLS failed: {tls}"),
    }
}

/// The cause, when the failure is one of TLS.
pub(super) fn cause(error: &io::Error) -> Option<Cause> {
    use rustls::{CertificateError as Refused, Error, InvalidMessage};
    let settings = error.get_ref().is_some_and(|inner| inner.is::<TlsError>());
    let (code, mend) = match rustls_error(error) {
        _ if settings => ("sink.tls-settings", "correct that file in [sink.rabbitmq]"),
        None => return None,
        Some(Error::InvalidCertificate(
            Refused::NotValidForName | Refused::NotValidForNameContext { .. },
        )) => (
            "sink.tls-untrusted",
            "write a name of the certificate as the host in sink.rabbitmq.url, or set sink.rabbitmq.server_name to it",
        ),
        Some(Error::InvalidCertificate(
            Refused::Expired
            | Refused::ExpiredContext { .. }
            | Refused::NotValidYet
            | Refused::NotValidYetContext { .. },
        )) => (
            "sink.tls-untrusted",
            "renew the broker's certificate, or correct this machine's clock",
        ),
        Some(Error::InvalidCertificate(_)) => (
            "sink.tls-untrusted",
            "set sink.rabbitmq.ca_file to the PEM file of the authority that signed it; look at it: openssl s_client -connect HOST:5671 -showcerts",
        ),
        Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => (
            "sink.no-tls",
            "write the broker's TLS port (5671) in sink.rabbitmq.url, or amqp:// for a port without TLS",
        ),
        Some(_) => (
            "sink.tls-refused",
            "correct sink.rabbitmq.cert_file and key_file to a certificate that the broker trusts (ssl_options.cacertfile in rabbitmq.conf), and see its log",
        ),
    };
    Some(Cause { code, mend: mend.to_owned(), is_final: true })
}

#[cfg(test)]
#[path = "tls_tests.rs"]
mod tests;
