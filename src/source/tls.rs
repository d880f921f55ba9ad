//! TLS with libpq's meaning of each `sslmode`, on rustls.
//!
//! The provider is handed in, never taken from the process: other libraries in the process may have
//! installed another one, or none. What differs from rustls' own verifier, and why:
//!
//! * `verify-ca` trusts the chain and lets the name be wrong, in both forms rustls reports it;
//! * a server certificate that is itself among the roots is trusted, though it is marked as a CA
//!   (`openssl req -x509` marks it so, and half of all self-made Postgres certificates come from there);
//! * unverified modes do not look at the certificate at all: whoever can stand in the middle can
//!   present any certificate, and an X.509 v1 one (the recipe in the Postgres manual) must work.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::settings::{ConnInfo, SslMode};

/// Why no TLS configuration can be made from the settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// A PEM file that cannot be read.
    #[error("{parameter} {}: {why}", path.display())]
    File {
        /// `sslrootcert`, `sslcert` or `sslkey`.
        parameter: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// No root certificate anywhere.
    #[error("the system has no root certificates; set sslrootcert to a PEM file")]
    NoRoots,
    /// A certificate without key, or the reverse.
    #[error("sslcert and sslkey go together: {missing} is missing")]
    HalfIdentity {
        /// The absent one.
        missing: &'static str,
    },
    /// rustls refuses the settings.
    #[error("TLS cannot be set up: {0}")]
    Setup(String),
}

/// The configuration for `info`, or `None` when it forbids TLS.
///
/// # Errors
/// Names the file that cannot be used.
pub fn client_config(info: &ConnInfo) -> Result<Option<Arc<ClientConfig>>, TlsError> {
    let verify = match info.sslmode {
        SslMode::Disable => return Ok(None),
        SslMode::Prefer | SslMode::Require if info.sslrootcert.is_none() => None,
        // As libpq: a root certificate turns `require` into `verify-ca`.
        SslMode::Prefer | SslMode::Require | SslMode::VerifyCa => Some(false),
        SslMode::VerifyFull => Some(true),
    };
    let provider = Arc::new(ring::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match verify {
        None => Arc::new(Unverified { provider: Arc::clone(&provider) }),
        Some(name) => Arc::new(Verified::new(roots(info)?, name, &provider)?),
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(setup)?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let config = match identity(info)? {
        None => builder.with_no_client_auth(),
        Some((chain, key, path)) => {
            builder.with_client_auth_cert(chain, key).map_err(|error| TlsError::File {
                parameter: "sslkey",
                path,
                why: error.to_string(),
            })?
        }
    };
    Ok(Some(Arc::new(config)))
}

/// What the certificate must be made for. A host that is no valid name can only be unverified, and then any
/// address does: an address is not sent as SNI.
#[must_use]
pub fn server_name(host: &str) -> ServerName<'static> {
    ServerName::try_from(host.to_owned())
        .unwrap_or_else(|_| ServerName::from(std::net::IpAddr::from([0, 0, 0, 0])))
}

fn setup(error: impl std::fmt::Display) -> TlsError {
    TlsError::Setup(error.to_string())
}

fn roots(info: &ConnInfo) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    match info.sslrootcert.as_deref() {
        Some(path) if path != Path::new("system") => certificates("sslrootcert", path),
        _ => {
            let found = rustls_native_certs::load_native_certs().certs;
            if found.is_empty() { Err(TlsError::NoRoots) } else { Ok(found) }
        }
    }
}

fn certificates(
    parameter: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |error| file_error(parameter, path, &error);
    let found = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(wrong)?;
    if found.is_empty() { Err(wrong(pem::Error::NoItemsFound)) } else { Ok(found) }
}

/// The library's text for a broken file quotes its lines, and a line may be of a private key.
fn file_error(parameter: &'static str, path: &Path, error: &pem::Error) -> TlsError {
    let why = match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound if parameter == "sslkey" => {
            "no unencrypted PEM private key in it".to_owned()
        }
        pem::Error::NoItemsFound => "no PEM certificate in it".to_owned(),
        _ => "not well-formed PEM".to_owned(),
    };
    TlsError::File { parameter, path: path.to_owned(), why }
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>, PathBuf);

fn identity(info: &ConnInfo) -> Result<Option<Identity>, TlsError> {
    match (&info.sslcert, &info.sslkey) {
        (None, None) => Ok(None),
        (Some(_), None) => Err(TlsError::HalfIdentity { missing: "sslkey" }),
        (None, Some(_)) => Err(TlsError::HalfIdentity { missing: "sslcert" }),
        (Some(cert), Some(key_path)) => {
            let chain = certificates("sslcert", cert)?;
            let key = PrivateKeyDer::from_pem_file(key_path)
                .map_err(|error| file_error("sslkey", key_path, &error))?;
            Ok(Some((chain, key, key_path.clone())))
        }
    }
}

#[derive(Debug)]
struct Unverified {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[derive(Debug)]
struct Verified {
    chain: Arc<WebPkiServerVerifier>,
    roots: Vec<CertificateDer<'static>>,
    name: bool,
    provider: Arc<CryptoProvider>,
}

impl Verified {
    fn new(
        roots: Vec<CertificateDer<'static>>,
        name: bool,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Verified, TlsError> {
        let mut store = RootCertStore::empty();
        let (added, _) = store.add_parsable_certificates(roots.iter().cloned());
        if added == 0 {
            return Err(TlsError::Setup("no usable certificate among the roots".to_owned()));
        }
        let chain =
            WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider))
                .build()
                .map_err(setup)?;
        Ok(Verified { chain, roots, name, provider: Arc::clone(provider) })
    }
}

impl ServerCertVerifier for Verified {
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
            // The chain is checked before the name, so a wrong name means a right chain.
            Err(InvalidCertificate(
                CertificateError::NotValidForName
                | CertificateError::NotValidForNameContext { .. },
            )) if !self.name => Ok(ServerCertVerified::assertion()),
            // "A CA where a server is expected" has no variant of its own. Its dates are checked before.
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
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
#[path = "tls_tests.rs"]
mod tests;
#[cfg(test)]
pub(super) use tests::identity as test_identity;
