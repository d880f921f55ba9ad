//! TLS with rustls for sources and sinks: roots, the client's certificate, and a verifier.
//!
//! The provider is always passed in: other libraries may have installed another one for the
//! process. The verifier differs from that of rustls in two ways:
//!
//! * the name can be left unchecked (libpq's `verify-ca`);
//! * a server certificate that is itself among the roots is trusted even if it is marked as a CA, as
//!   `openssl req -x509` marks it.
//!
//! No error quotes the content of a file, which may be a private key.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, InvalidMessage,
    RootCertStore, SignatureScheme,
};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(String);

impl TlsError {
    fn in_file(parameter: &str, path: &Path, why: impl fmt::Display) -> TlsError {
        TlsError(format!("{parameter} {}: {why}", path.display()))
    }

    fn setup(error: impl fmt::Display) -> TlsError {
        TlsError(format!("TLS cannot be set up: {error}"))
    }
}

/// The reason why a handshake failed or the other side ended TLS, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct TlsFailure {
    pub text: String,
    pub cause: TlsCause,
}

/// The cause of a [`TlsFailure`], as far as it decides what mends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsCause {
    /// No authority that is trusted has signed the server's certificate, or it is unfit otherwise.
    Authority,
    /// The server's certificate is for other names.
    Name,
    /// The server's certificate has expired, or is not valid yet.
    Dates,
    /// The server's certificate is of X.509 version 1: see [`NEW_CERTIFICATE`].
    Version,
    /// The server does not speak TLS on this port.
    NoTls,
    /// The server refuses the client's certificate, or demands one.
    ClientCertificate,
    /// The two sides agree on no version or cipher, or another error.
    Handshake,
}

/// The mend of [`TlsCause::Version`].
pub const NEW_CERTIFICATE: &str =
    "make one with a subjectAltName: openssl x509 -req … -extfile FILE";

impl TlsFailure {
    pub fn of(error: &rustls::Error) -> TlsFailure {
        use AlertDescription as Alert;
        use rustls::Error;
        let (text, cause) = match error {
            Error::InvalidCertificate(refused) => {
                let (text, cause) = certificate_refused(refused);
                (format!("the server's certificate {text}"), cause)
            }
            Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
                ("the server does not speak TLS on this port".to_owned(), TlsCause::NoTls)
            }
            Error::AlertReceived(Alert::CertificateRequired) => {
                let text = "the server demands a client certificate".to_owned();
                (text, TlsCause::ClientCertificate)
            }
            Error::AlertReceived(
                alert @ (Alert::UnknownCA
                | Alert::BadCertificate
                | Alert::CertificateUnknown
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired),
            ) => {
                let text = format!("the server refuses the client certificate ({alert:?})");
                (text, TlsCause::ClientCertificate)
            }
            Error::AlertReceived(alert) => {
                (format!("the server ended TLS: {alert:?}"), TlsCause::Handshake)
            }
            other => (format!("TLS failed: {other}"), TlsCause::Handshake),
        };
        TlsFailure { text, cause }
    }
}

fn certificate_refused(refused: &CertificateError) -> (String, TlsCause) {
    use CertificateError::{
        Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet,
        NotValidYetContext, Other, UnknownIssuer,
    };
    match refused {
        UnknownIssuer => ("is signed by nobody that is trusted".to_owned(), TlsCause::Authority),
        Expired | ExpiredContext { .. } => ("has expired".to_owned(), TlsCause::Dates),
        NotValidYet | NotValidYetContext { .. } => ("is not valid yet".to_owned(), TlsCause::Dates),
        NotValidForNameContext { expected, presented } if !presented.is_empty() => {
            let text = format!("is for {}, not for {}", presented.join(", "), expected.to_str());
            (text, TlsCause::Name)
        }
        NotValidForName | NotValidForNameContext { .. } => {
            (format!("is refused: {refused}"), TlsCause::Name)
        }
        // The library of this error is not a dependency of ours.
        Other(other) if format!("{other:?}").contains("UnsupportedCertVersion") => {
            ("is X.509 version 1".to_owned(), TlsCause::Version)
        }
        refused => (format!("is refused: {refused}"), TlsCause::Authority),
    }
}

#[derive(Clone, Copy, Debug)]
pub struct PemFile<'a> {
    /// The name of the setting, for errors.
    pub parameter: &'static str,
    pub path: Option<&'a Path>,
}

#[derive(Debug)]
pub struct ClientIdentity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    key_parameter: &'static str,
    key_path: PathBuf,
}

pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

pub fn client_config(
    provider: Arc<CryptoProvider>,
    verifier: Arc<dyn ServerCertVerifier>,
    identity: Option<ClientIdentity>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::setup)?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some(ClientIdentity { chain, key, key_parameter, key_path }) => builder
            .with_client_auth_cert(chain, key)
            .map_err(|error| TlsError::in_file(key_parameter, &key_path, error))?,
    };
    Ok(Arc::new(config))
}

/// The certificates of the file, or those of the system when none is set.
pub fn roots(file: PemFile<'_>) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let PemFile { parameter, path } = file;
    if let Some(path) = path {
        return certificates(parameter, path);
    }
    let found = rustls_native_certs::load_native_certs().certs;
    if found.is_empty() {
        let what = "the system has no root certificates";
        return Err(TlsError(format!("{what}; set {parameter} to a PEM file")));
    }
    Ok(found)
}

/// At least one certificate.
pub fn certificates(
    parameter: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |error| file_error("no PEM certificate in it", parameter, path, &error);
    let found = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(wrong)?;
    if found.is_empty() { Err(wrong(pem::Error::NoItemsFound)) } else { Ok(found) }
}

pub fn identity(cert: PemFile<'_>, key: PemFile<'_>) -> Result<Option<ClientIdentity>, TlsError> {
    let half = |present: PemFile<'_>, missing: PemFile<'_>| {
        let (present, missing) = (present.parameter, missing.parameter);
        TlsError(format!("{present} and {missing} go together: {missing} is missing"))
    };
    match (cert.path, key.path) {
        (None, None) => Ok(None),
        (Some(_), None) => Err(half(cert, key)),
        (None, Some(_)) => Err(half(key, cert)),
        (Some(cert_path), Some(key_path)) => {
            let chain = certificates(cert.parameter, cert_path)?;
            let none = "no unencrypted PEM private key in it";
            let read = PrivateKeyDer::from_pem_file(key_path)
                .map_err(|error| file_error(none, key.parameter, key_path, &error))?;
            Ok(Some(ClientIdentity {
                chain,
                key: read,
                key_parameter: key.parameter,
                key_path: key_path.to_owned(),
            }))
        }
    }
}

/// The library's own error would quote lines of the file.
fn file_error(none: &str, parameter: &'static str, path: &Path, error: &pem::Error) -> TlsError {
    match error {
        pem::Error::Io(error) => TlsError::in_file(parameter, path, error),
        pem::Error::NoItemsFound => TlsError::in_file(parameter, path, none),
        _ => TlsError::in_file(parameter, path, "not well-formed PEM"),
    }
}

/// Trusts certificates that one of the roots has signed, and the roots themselves.
#[derive(Debug)]
pub struct RootsVerifier {
    chain: Arc<WebPkiServerVerifier>,
    roots: Vec<CertificateDer<'static>>,
    /// Must the certificate have the name of the server?
    name: bool,
}

impl RootsVerifier {
    pub fn new(
        roots: Vec<CertificateDer<'static>>,
        name: bool,
        provider: &Arc<CryptoProvider>,
    ) -> Result<RootsVerifier, TlsError> {
        let mut store = RootCertStore::empty();
        let (added, _) = store.add_parsable_certificates(roots.iter().cloned());
        if added == 0 {
            return Err(TlsError::setup("no usable certificate among the roots"));
        }
        let chain =
            WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider))
                .build()
                .map_err(TlsError::setup)?;
        Ok(RootsVerifier { chain, roots, name })
    }
}

impl ServerCertVerifier for RootsVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use rustls::Error::InvalidCertificate;
        match self.chain.verify_server_cert(end_entity, intermediates, name, ocsp, now) {
            // rustls checks the chain before the name, so here the chain is valid.
            Err(InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.name => Ok(ServerCertVerified::assertion()),
            // A CA certificate where that of a server is expected. Its dates were checked before.
            Err(InvalidCertificate(CertificateError::Other(_)))
                if self.roots.iter().any(|root| root == end_entity) =>
            {
                if self.name {
                    rustls::client::verify_server_name(
                        &ParsedCertificate::try_from(end_entity)?,
                        name,
                    )?;
                }
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

#[cfg(test)]
#[path = "tls_tests.rs"]
mod tests;
