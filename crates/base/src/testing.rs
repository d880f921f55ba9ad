//! For unit tests: a TLS server, with a certificate that `openssl` makes, a service manager, and folders.

#![allow(
    clippy::new_without_default,
    clippy::unwrap_used,
    reason = "tests use it, and nothing else"
)]

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use tokio_rustls::TlsAcceptor;

use super::service_manager::ServiceManager;
use super::tls;

/// A folder with a self-signed certificate for this host, `own.crt`, and its key, `own.key`.
pub fn self_signed(host: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("walrelay-tls-{host}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let line = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=own -keyout own.key -out own.crt -addext";
    let done = Command::new("openssl")
        .args(line.split_whitespace())
        .arg(format!("subjectAltName=DNS:{host}"))
        .current_dir(&folder)
        .output()
        .expect("openssl (Debian: openssl) is needed by this test");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    folder
}

/// Accepts clients with the certificate of that folder.
pub fn tls_acceptor(folder: &Path) -> TlsAcceptor {
    let chain = tls::certificates("test", &folder.join("own.crt")).unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.join("own.key")).unwrap();
    let config = ServerConfig::builder_with_provider(tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// A socket in the place of the service manager's, and the client of it, which is watched.
pub fn service_manager(name: &str) -> (UnixDatagram, ServiceManager) {
    let name = format!("walrelay-notify-{}-{name}", std::process::id());
    let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    socket.set_nonblocking(true).unwrap();
    let limit = Some(Duration::from_secs(30));
    (socket, ServiceManager::at(OsStr::new(&format!("@{name}")), limit).unwrap())
}

/// A folder of its own, gone with the value.
pub struct TempFolder(PathBuf);

impl TempFolder {
    pub fn new() -> TempFolder {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = format!("walrelay-test-{}-{serial}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        TempFolder(folder)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}
