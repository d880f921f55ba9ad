//! The TLS handshake with a broker, and what its errors mean.

use std::io;
use std::sync::Arc;

use rustls::CertificateError;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::connection_loss::ConnectionLoss;
use super::settings::RabbitTls;
use walrelay_base::tls::{self, PemFile, RootsVerifier, TlsError};

/// Does the handshake as a client of `host`.
pub(super) async fn connect(
    stream: TcpStream,
    host: &str,
    files: &RabbitTls,
) -> io::Result<TlsStream<TcpStream>> {
    let name = files.server_name.as_deref().unwrap_or(host);
    let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    let config =
        client_config(files).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    TlsConnector::from(config).connect(name, stream).await
}

fn client_config(files: &RabbitTls) -> Result<Arc<rustls::ClientConfig>, TlsError> {
    let file = |parameter, path| PemFile { parameter, path };
    let RabbitTls { ca_file, cert_file, key_file, .. } = files;
    let roots = tls::roots(file("sink.rabbitmq.ca_file", ca_file.as_deref()))?;
    let cert = file("sink.rabbitmq.cert_file", cert_file.as_deref());
    let key = file("sink.rabbitmq.key_file", key_file.as_deref());
    let provider = tls::provider();
    let verifier = Arc::new(RootsVerifier::new(roots, true, &provider)?);
    tls::client_config(provider, verifier, tls::identity(cert, key)?)
}

const WRONG_NAME: &str = "write a name of the certificate as the host in sink.rabbitmq.url, or set sink.rabbitmq.server_name to it";
const WRONG_TIME: &str = "renew the broker's certificate, or correct this machine's clock";
const WRONG_AUTHORITY: &str = "set sink.rabbitmq.ca_file to the PEM file of the authority that signed it; look at it: openssl s_client -connect HOST:5671 -showcerts";
const NO_TLS: &str =
    "write the broker's TLS port (5671) in sink.rabbitmq.url, or amqp:// for a port without TLS";
const REFUSED: &str = "correct sink.rabbitmq.cert_file and key_file to a certificate that the broker trusts (ssl_options.cacertfile in rabbitmq.conf), and see its log";

const NO_AGREEMENT: &str = "see the broker's log; compare ssl_options.versions and ssl_options.ciphers in rabbitmq.conf: TLS 1.2 or 1.3";

/// The reason that ended a connection, with or without TLS.
pub(super) fn loss_of(error: &io::Error) -> ConnectionLoss {
    explain(error).unwrap_or_else(|| ConnectionLoss::of(error.to_string()))
}

/// Describes an error of TLS or of its settings; `None` for any other.
fn explain(error: &io::Error) -> Option<ConnectionLoss> {
    use rustls::{AlertDescription as Alert, Error, InvalidMessage};
    let inner = error.get_ref()?;
    let (text, code, mend) = if inner.is::<TlsError>() {
        (error.to_string(), "sink.tls-settings", "correct that file in [sink.rabbitmq]")
    } else {
        match inner.downcast_ref()? {
            Error::InvalidCertificate(refused) => {
                let (text, mend) = certificate_refused(refused);
                (format!("the server's certificate {text}"), "sink.tls-untrusted", mend)
            }
            Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
                ("the server does not speak TLS on this port".to_owned(), "sink.no-tls", NO_TLS)
            }
            Error::AlertReceived(Alert::CertificateRequired) => {
                ("the server demands a client certificate".to_owned(), "sink.tls-refused", REFUSED)
            }
            Error::AlertReceived(
                alert @ (Alert::UnknownCA
                | Alert::BadCertificate
                | Alert::CertificateUnknown
                | Alert::CertificateExpired),
            ) => {
                let text = format!("the server refuses the client certificate ({alert:?})");
                (text, "sink.tls-refused", REFUSED)
            }
            Error::AlertReceived(alert) => {
                (format!("the server ended TLS: {alert:?}"), "sink.tls-refused", NO_AGREEMENT)
            }
            other => (format!("TLS failed: {other}"), "sink.tls-refused", NO_AGREEMENT),
        }
    };
    Some(ConnectionLoss::of(text).caused_by(code, mend, true))
}

fn certificate_refused(refused: &CertificateError) -> (String, &'static str) {
    use CertificateError::{
        Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet,
        NotValidYetContext, UnknownIssuer,
    };
    match refused {
        UnknownIssuer => ("is signed by nobody that is trusted".to_owned(), WRONG_AUTHORITY),
        Expired | ExpiredContext { .. } => ("has expired".to_owned(), WRONG_TIME),
        NotValidYet | NotValidYetContext { .. } => ("is not valid yet".to_owned(), WRONG_TIME),
        NotValidForNameContext { expected, presented } => {
            let text = format!("is for {}, not for {}", presented.join(", "), expected.to_str());
            (text, WRONG_NAME)
        }
        NotValidForName => (format!("is refused: {refused}"), WRONG_NAME),
        refused => (format!("is refused: {refused}"), WRONG_AUTHORITY),
    }
}

#[cfg(test)]
#[path = "tls_tests.rs"]
mod tests;
