//! The TLS handshake with a broker, and what its errors mean.

use std::io;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::connection_loss::ConnectionLoss;
use super::settings::RabbitTls;
use walrelay_base::tls::{self, PemFile, RootsVerifier, TlsCause, TlsError, TlsFailure};

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
    let inner = error.get_ref()?;
    if inner.is::<TlsError>() {
        let mend = "correct that file in [sink.rabbitmq]";
        let loss = ConnectionLoss::of(error.to_string());
        return Some(loss.caused_by("sink.tls-settings", mend, true));
    }
    let TlsFailure { text, cause } = TlsFailure::of(inner.downcast_ref::<rustls::Error>()?);
    let (code, mend) = match cause {
        TlsCause::Authority => ("sink.tls-untrusted", WRONG_AUTHORITY),
        TlsCause::Name => ("sink.tls-untrusted", WRONG_NAME),
        TlsCause::Dates => ("sink.tls-untrusted", WRONG_TIME),
        TlsCause::Version => ("sink.tls-untrusted", tls::NEW_CERTIFICATE),
        TlsCause::NoTls => ("sink.no-tls", NO_TLS),
        TlsCause::ClientCertificate => ("sink.tls-refused", REFUSED),
        TlsCause::Handshake => ("sink.tls-refused", NO_AGREEMENT),
    };
    Some(ConnectionLoss::of(text).caused_by(code, mend, true))
}

#[cfg(test)]
#[path = "tls_tests.rs"]
mod tests;
