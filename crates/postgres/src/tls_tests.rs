//! Every `sslmode` against certificates that fit, that name somebody else, and that nobody signed:
//! a whole handshake each, in memory.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{CertificateError, ServerConfig, ServerConnection};

use super::super::conninfo::parse;
use super::*;

struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

fn openssl(folder: &Path, line: &str) {
    let done = Command::new("openssl")
        .args(line.split_whitespace())
        .current_dir(folder)
        .output()
        .expect("openssl (Debian: openssl) is needed by this test");
    assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
}

/// `ca` signed `good` (db.example, 127.0.0.1) and `old` (X.509 v1); `other` signed nothing here;
/// `own` is self-signed and marked as a CA.
fn certificates() -> &'static Certificates {
    static MADE: OnceLock<Certificates> = OnceLock::new();
    MADE.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("walrelay-tls-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        for ca in ["ca", "other"] {
            openssl(&folder, &format!("req -x509 {key} -days 2 -subj /CN={ca} -keyout {ca}.key -out {ca}.crt"));
        }
        openssl(
            &folder,
            &format!("req -x509 {key} -days 2 -subj /CN=own -addext subjectAltName=DNS:own.example -keyout own.key -out own.crt"),
        );
        std::fs::write(folder.join("san"), "subjectAltName=DNS:db.example,IP:127.0.0.1").unwrap();
        for (leaf, extensions) in [("good", "-extfile san"), ("old", "")] {
            openssl(&folder, &format!("req {key} -subj /CN=db.example -keyout {leaf}.key -out {leaf}.csr"));
            openssl(
                &folder,
                &format!("x509 -req -in {leaf}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 {extensions} -out {leaf}.crt"),
            );
        }
        Certificates { folder }
    })
}

fn server(leaf: &str) -> Arc<ServerConfig> {
    let made = certificates();
    let chain = tls::certificates("sslcert", &made.path(&format!("{leaf}.crt"))).unwrap();
    let key = PrivateKeyDer::from_pem_file(made.path(&format!("{leaf}.key"))).unwrap();
    // Not the checked constructor: it would refuse the v1 certificate.
    let key = ring::default_provider().key_provider.load_private_key(key).unwrap();
    let certified = Arc::new(rustls::sign::CertifiedKey::new(chain, key));
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(certified)));
    Arc::new(config)
}

/// GIVEN a server with `leaf`, WHEN a client with these parameters calls `host`, THEN its verdict.
fn handshake(leaf: &str, host: &str, parameters: &str) -> Result<(), rustls::Error> {
    let parameters = parameters.replace('@', certificates().folder.to_str().unwrap());
    let info = parse(&format!("host=h user=u {parameters}"), &|_| None).unwrap();
    let config = client_config(&info).unwrap().unwrap();
    let mut client = rustls::ClientConnection::new(config, server_name(host)).unwrap();
    let mut server = ServerConnection::new(server(leaf)).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        let mut rest = wire.as_slice();
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server.process_new_packets().unwrap();
        }
        let mut wire = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        let mut rest = wire.as_slice();
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets()?;
        }
    }
    Ok(())
}

#[test]
fn prefer_and_require_accept_everybody() {
    for mode in ["prefer", "require"] {
        for leaf in ["good", "own", "old"] {
            handshake(leaf, "whoever.example", &format!("sslmode={mode}")).unwrap();
        }
        handshake("good", "not_a_name!", &format!("sslmode={mode}")).unwrap();
    }
}

#[test]
fn a_root_certificate_makes_each_mode_refuse_what_it_says() {
    let (ca, full) = ("sslmode=verify-ca", "sslmode=verify-full");
    for (leaf, hosts, mode, root, verdict) in [
        ("good", &["wrong.example"][..], "sslmode=require", "ca", "accepted"),
        ("good", &["db.example"], "sslmode=require", "other", "issuer"),
        ("good", &["db.example", "wrong.example", "10.0.0.1"], ca, "ca", "accepted"),
        ("good", &["db.example"], ca, "other", "issuer"),
        ("own", &["db.example"], ca, "other", "certificate"),
        ("good", &["db.example", "127.0.0.1"], full, "ca", "accepted"),
        ("good", &["wrong.example", "127.0.0.2", "not a name"], full, "ca", "name"),
        ("good", &["db.example"], full, "other", "issuer"),
        // Self-signed, and its own root.
        ("own", &["any.example"], ca, "own", "accepted"),
        ("own", &["own.example"], full, "own", "accepted"),
        ("own", &["any.example"], full, "own", "name"),
    ] {
        for host in hosts {
            let shown = handshake(leaf, host, &format!("{mode} sslrootcert=@/{root}.crt"));
            let found = match &shown {
                Ok(()) => "accepted",
                Err(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => "issuer",
                Err(rustls::Error::InvalidCertificate(
                    CertificateError::NotValidForNameContext { .. },
                )) => "name",
                Err(rustls::Error::InvalidCertificate(_)) => "certificate",
                Err(_) => "something else",
            };
            assert_eq!(found, verdict, "{leaf} {host} {mode} {root}: {shown:?}");
        }
    }
    // No operating system trusts our CA.
    if let Ok(info) = parse("host=h user=u sslmode=verify-full", &|_| None)
        && client_config(&info).is_ok()
    {
        let system = handshake("good", "db.example", "sslmode=verify-full sslrootcert=system");
        assert!(matches!(system, Err(rustls::Error::InvalidCertificate(_))), "{system:?}");
    }
}

#[test]
fn a_client_identity_is_loaded_and_every_bad_file_is_named() {
    let made = certificates();
    let told = |parameters: &str| {
        let parameters = parameters.replace('@', made.folder.to_str().unwrap());
        let info =
            parse(&format!("host=h user=u sslmode=require {parameters}"), &|_| None).unwrap();
        client_config(&info).map(|config| assert!(config.is_some())).map_err(|e| e.to_string())
    };
    told("sslcert=@/good.crt sslkey=@/good.key").unwrap();
    let bad = |parameters: &str, words: &str| {
        let error = told(parameters).unwrap_err();
        assert!(error.contains(words), "{error}");
    };
    bad("sslcert=@/good.crt", "sslkey is missing");
    bad("sslkey=@/good.key", "sslcert is missing");
    bad("sslrootcert=@/absent.pem", "absent.pem: No such file");
    bad("sslrootcert=@/san", "san: no PEM certificate in it");
    bad("sslcert=@/good.crt sslkey=@/good.crt", "good.crt: no unencrypted PEM private key");
    bad("sslcert=@/good.crt sslkey=@/ca.key", "ca.key: ");
    let off = parse("host=h user=u sslmode=disable sslrootcert=/absent", &|_| None).unwrap();
    assert!(client_config(&off).unwrap().is_none());
}
