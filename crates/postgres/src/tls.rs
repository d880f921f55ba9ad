//! TLS with libpq's meaning of each `sslmode`.
//!
//! Modes without verification ignore the certificate: whoever controls the network can present any,
//! and an X.509 v1 one (the recipe in the Postgres manual) must work.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};

use super::settings::{ConnInfo, SslMode};
use walrelay_base::tls::{self, PemFile, RootsVerifier, TlsError};

/// `None` when `info` forbids TLS.
pub fn client_config(info: &ConnInfo) -> Result<Option<Arc<ClientConfig>>, TlsError> {
    if info.sslmode == SslMode::Disable {
        return Ok(None);
    }
    let verify = verification(info);
    let provider = tls::provider();
    let verifier: Arc<dyn ServerCertVerifier> = match verify {
        None => Arc::new(Unverified { provider: Arc::clone(&provider) }),
        Some(name) => Arc::new(RootsVerifier::new(roots(info)?, name, &provider)?),
    };
    let cert = PemFile { parameter: "sslcert", path: info.sslcert.as_deref() };
    let key = PemFile { parameter: "sslkey", path: info.sslkey.as_deref() };
    tls::client_config(provider, verifier, tls::identity(cert, key)?).map(Some)
}

/// Whether a connection with TLS proves that the other end is a server that was signed by somebody
/// who is trusted.
pub fn verifies(info: &ConnInfo) -> bool {
    verification(info).is_some()
}

/// The verification of a server: none, the chain of certificates (false), or the name as well
/// (true).
fn verification(info: &ConnInfo) -> Option<bool> {
    match info.sslmode {
        SslMode::Disable => None,
        SslMode::Prefer | SslMode::Require if info.sslrootcert.is_none() => None,
        // As libpq: a root certificate turns `require` into `verify-ca`.
        SslMode::Prefer | SslMode::Require | SslMode::VerifyCa => Some(false),
        SslMode::VerifyFull => Some(true),
    }
}

/// The name that the certificate must have. A host that is no valid name cannot be verified, and
/// then any address may be given, because an address is not sent as SNI.
pub fn server_name(host: &str) -> ServerName<'static> {
    ServerName::try_from(host.to_owned())
        .unwrap_or_else(|_| ServerName::from(std::net::IpAddr::from([0, 0, 0, 0])))
}

fn roots(info: &ConnInfo) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let named = info.sslrootcert.as_deref().filter(|path| *path != Path::new("system"));
    tls::roots(PemFile { parameter: "sslrootcert", path: named })
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

#[cfg(test)]
#[path = "tls_tests.rs"]
mod tests;
