//! One RabbitMQ for the tests of its configuration: plain and TLS listeners, the management API,
//! logins by certificate. Users and virtual hosts are each test's own.
//!
//! Everything is asked over the management API: a call of `rabbitmqctl` starts an Erlang node,
//! which costs seconds of CPU time.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use walrelay_harness::proc::{spawn_tied, tied_command};
use walrelay_harness::rabbit::Rabbit;
use walrelay_harness::{RabbitMq, RabbitOptions, free_port, run_folder};

use super::faults::CliFixture;

pub(crate) struct Broker {
    pub(crate) node: RabbitMq,
    pub(crate) tls_port: u16,
    management_port: u16,
    folder: PathBuf,
}

/// The RabbitMQ that no test hurts.
pub(crate) fn shared() -> &'static Broker {
    static BROKER: OnceLock<Broker> = OnceLock::new();
    BROKER.get_or_init(Broker::start)
}

/// `ca` signed `server` (localhost, 127.0.0.1), `late` (the same, expired) and `client`; `other` is
/// an authority that signed `stranger`.
const CERTIFICATES: &str = r#"
set -eu
key="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
for ca in ca other; do
    openssl req -x509 $key -days 2 -subj /CN=$ca -keyout $ca.key -out $ca.crt
done
printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\n' > san
sign() {
    openssl req $key -subj /CN=$1 -keyout $1.key -out $1.csr
    openssl x509 -req -in $1.csr -CA $2.crt -CAkey $2.key -CAcreateserial -days $3 -extfile san -out $1.crt
}
sign server ca 2
sign client ca 2
sign late ca -1 || sign late ca 0
sign stranger other 2
chmod 644 *.key
"#;

impl Broker {
    fn start() -> Broker {
        let folder = run_folder().unwrap().join(format!("amqps-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let made = Command::new("sh").args(["-c", CERTIFICATES]).current_dir(&folder).output();
        let made = made.unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let (tls_port, management_port) = (free_port().unwrap(), free_port().unwrap());
        let at = folder.display();
        let extra_conf = format!(
            "listeners.ssl.1 = 127.0.0.1:{tls_port}
ssl_options.cacertfile = {at}/ca.crt
ssl_options.certfile = {at}/server.crt
ssl_options.keyfile = {at}/server.key
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = false
ssl_cert_login_from = common_name
auth_mechanisms.1 = PLAIN
auth_mechanisms.2 = EXTERNAL
management.tcp.ip = 127.0.0.1
management.tcp.port = {management_port}
"
        );
        let plugins = ["rabbitmq_management", "rabbitmq_auth_mechanism_ssl"].map(str::to_owned);
        let options = RabbitOptions { plugins: plugins.into(), extra_conf };
        let node = RabbitMq::start_with(&options).unwrap_or_else(|error| panic!("{error}"));
        Broker { node, tls_port, management_port, folder }
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// A virtual host with a queue for dead letters, and a user of the same name and password with
    /// these rights to configure, write and read there.
    #[track_caller]
    pub(crate) fn tenant(&self, name: &str, rights: [&str; 3]) {
        self.api("PUT", &format!("vhosts/{name}"), "{}");
        let user = format!(r#"{{"password": {name:?}, "tags": ""}}"#);
        self.api("PUT", &format!("users/{name}"), &user);
        self.allow(name, rights);
        self.allow_user(name, "guest", ALL);
        self.guest(name).declare_dead_letters().unwrap();
    }

    #[track_caller]
    pub(crate) fn allow(&self, name: &str, rights: [&str; 3]) {
        self.allow_user(name, name, rights);
    }

    #[track_caller]
    pub(crate) fn allow_user(&self, vhost: &str, user: &str, [configure, write, read]: [&str; 3]) {
        let body =
            format!(r#"{{"configure": {configure:?}, "write": {write:?}, "read": {read:?}}}"#);
        self.api("PUT", &format!("permissions/{vhost}/{user}"), &body);
    }

    /// A connection of `guest` to a tenant's virtual host.
    fn guest(&self, name: &str) -> Rabbit {
        let url = format!("amqp://guest:guest@127.0.0.1:{}/{name}", self.node.port());
        Rabbit::open(&url).unwrap()
    }

    /// A tenant's `[sink]`, over the plain port.
    pub(crate) fn sink(&self, name: &str) -> String {
        let url = format!("amqp://{name}:{name}@127.0.0.1:{}/{name}", self.node.port());
        sink(&url)
    }

    /// A tenant's `[sink]`, over TLS.
    pub(crate) fn tls_sink(&self, name: &str) -> String {
        let url = format!("amqps://{name}:{name}@localhost:{}/{name}", self.tls_port);
        format!("{}ca_file = {:?}\n", sink(&url), self.file("ca.crt"))
    }

    /// Waits until a tenant's queue holds this many messages: a quorum queue counts late.
    #[track_caller]
    pub(crate) fn assert_holds(&self, tenant: &str, queue: &str, messages: u64) {
        let mut guest = self.guest(tenant);
        super::until(&format!("{messages} messages in {queue}"), super::LIMIT, || {
            (guest.message_count(queue).unwrap() == messages).then_some(())
        });
        guest.close();
    }

    /// One column of a tenant's queues, as JSON.
    #[track_caller]
    pub(crate) fn queues(&self, tenant: &str, columns: &str) -> String {
        self.api("GET", &format!("queues/{tenant}?columns={columns}"), "")
    }

    #[track_caller]
    pub(crate) fn exchange(&self, tenant: &str, name: &str, body: &str) {
        self.api("PUT", &format!("exchanges/{tenant}/{name}"), body);
    }

    /// A queue of the tenant, bound to an exchange by the key.
    #[track_caller]
    pub(crate) fn queue(&self, tenant: &str, name: &str, body: &str, bound: (&str, &str)) {
        self.api("PUT", &format!("queues/{tenant}/{name}"), body);
        let (exchange, key) = bound;
        let path = format!("bindings/{tenant}/e/{exchange}/q/{name}");
        self.api("POST", &path, &format!("{{\"routing_key\": {key:?}}}"));
    }

    /// Asks the management API as `guest`, which must succeed; returns the whole answer.
    #[track_caller]
    pub(crate) fn api(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.management_port)).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} /api/{path} HTTP/1.1\r\nHost: x\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 20"), "{method} {path}: {answer}");
        answer
    }
}

/// `[sink]` with this URL; more lines of its section may follow.
pub(crate) fn sink(url: &str) -> String {
    format!("[sink]\nkind = \"rabbitmq\"\n[sink.rabbitmq]\nurl = {url:?}\n")
}

/// A TLS server on a port of its own, which says nothing; ends when dropped.
pub(crate) struct TlsServer {
    pub(crate) port: u16,
    child: std::process::Child,
}

impl TlsServer {
    pub(crate) fn start(broker: &Broker, name: &str) -> TlsServer {
        let port = free_port().unwrap();
        let (cert, key) =
            (broker.file(&format!("{name}.crt")), broker.file(&format!("{name}.key")));
        let accept = port.to_string();
        let mut command = tied_command(Path::new("openssl"));
        command.args(["s_server", "-quiet", "-accept", &accept, "-cert", &cert, "-key", &key]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = spawn_tied(command).unwrap();
        let listens = || TcpStream::connect(("127.0.0.1", port)).ok();
        super::until("the TLS server", super::LIMIT, listens);
        TlsServer { port, child }
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

pub(crate) const ALL: [&str; 3] = [".*", ".*", ".*"];

/// An event that waits, and a tenant of the broker with these rights; nothing else is there than
/// what dead letters need.
pub(crate) fn waiting(name: &str, rights: [&str; 3]) -> CliFixture<'static> {
    let mut scene = CliFixture::waiting(name);
    shared().tenant(name, rights);
    scene.sink = shared().sink(name);
    scene
}
