use super::*;

#[test]
fn a_failure_of_tls_has_the_cause_that_decides_what_mends_it() {
    use AlertDescription as Alert;
    use rustls::Error::{AlertReceived, DecryptError, InvalidCertificate};
    #[derive(Debug, thiserror::Error)]
    #[error("x")]
    struct UnsupportedCertVersion;
    let other = rustls::OtherError(Arc::new(UnsupportedCertVersion));
    let of_name = |presented: &[&str]| CertificateError::NotValidForNameContext {
        expected: ServerName::try_from("db.example").unwrap(),
        presented: presented.iter().map(|name| (*name).to_owned()).collect(),
    };
    for (error, cause, words) in [
        (InvalidCertificate(CertificateError::UnknownIssuer), TlsCause::Authority, "nobody"),
        (InvalidCertificate(CertificateError::Expired), TlsCause::Dates, "has expired"),
        (InvalidCertificate(CertificateError::NotValidYet), TlsCause::Dates, "not valid yet"),
        (InvalidCertificate(of_name(&["a", "b"])), TlsCause::Name, "is for a, b, not for db.e"),
        (InvalidCertificate(of_name(&[])), TlsCause::Name, "subjectAltName"),
        (InvalidCertificate(CertificateError::Other(other)), TlsCause::Version, "X.509 version 1"),
        (InvalidCertificate(CertificateError::Revoked), TlsCause::Authority, "is refused: "),
        (AlertReceived(Alert::UnknownCA), TlsCause::ClientCertificate, "refuses the client"),
        (AlertReceived(Alert::CertificateRequired), TlsCause::ClientCertificate, "demands"),
        (AlertReceived(Alert::ProtocolVersion), TlsCause::Handshake, "ended TLS: ProtocolVersion"),
        (DecryptError, TlsCause::Handshake, "TLS failed: "),
    ] {
        let failure = TlsFailure::of(&error);
        assert_eq!(failure.cause, cause, "{failure}");
        assert!(failure.text.contains(words), "{failure}");
    }
}
