//! Connections to RabbitMQ.
//!
//! Reading and publishing have one each: the broker stops to read from a connection that publishes
//! while it is short of memory or disk, and acknowledgements must pass meanwhile.

use std::net::{Shutdown, TcpStream};
use std::ops::Deref;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lapin::tcp::{AMQPUriTcpExt as _, OwnedTLSConfig};
use lapin::types::ShortString;
use lapin::uri::AMQPUri;
use lapin::{AsyncTcpStream, Connection, ConnectionProperties, Error, ErrorKind, runtime};
use tokio::time::timeout;

use super::{NO_URL, RabbitMq};
use crate::panics::lock;

/// Opens a connection to the broker.
pub type ConnectAmqp =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<Connection, Error>> + Send>> + Send + Sync>;

const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// A connection on which nothing was heard for twice as long is taken for dead.
const HEARTBEAT_S: u16 = 10;
pub(super) const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// Codes of AMQP.
pub(super) const ACCESS_REFUSED: u16 = 403;
const NOT_FOUND: u16 = 404;
pub(super) const PRECONDITION_FAILED: u16 = 406;
const FRAME_ERROR: u16 = 501;
const NOT_ALLOWED: u16 = 530;
/// In the broker's text about a limit.
const LIMITS: [&str; 2] = ["connection limit", "number of channels"];
/// In lapin's own text about a frame that is larger than was agreed: the broker delivers all headers
/// of a message in one frame, and adds to them.
const LARGE_FRAME: &str = "frame too large";

/// Why a connection or a channel could not be used, or ended.
#[derive(Debug)]
pub(super) struct Loss {
    pub(super) code: Option<u16>,
    pub(super) text: String,
    /// The client cannot read what the broker has sent.
    pub(super) is_unreadable: bool,
}

impl Loss {
    pub(super) fn of(text: impl ToString) -> Loss {
        Loss { code: None, text: text.to_string(), is_unreadable: false }
    }

    /// The text for people, which says what makes a missing queue or exchange.
    pub(super) fn explanation(&self) -> String {
        // A queue whose node is not there has the same code.
        let is_missing =
            self.code == Some(NOT_FOUND) && !self.text.ends_with("down or inaccessible");
        let mend = if is_missing { ": Inbox::init makes it" } else { "" };
        format!("{}{mend}", self.text)
    }

    /// Somebody must change the broker first: a login, a right, or what `init` makes. A limit of
    /// connections may be that of another instance, which ends.
    pub(super) fn is_refusal(&self) -> bool {
        let says = |limit: &&str| self.text.contains(*limit);
        let is_limit = self.code == Some(NOT_ALLOWED) && LIMITS.iter().any(says);
        [ACCESS_REFUSED, NOT_FOUND, NOT_ALLOWED].map(Some).contains(&self.code) && !is_limit
    }
}

impl From<Error> for Loss {
    fn from(error: Error) -> Loss {
        let code = match error.kind() {
            ErrorKind::ProtocolError(reason) => Some(reason.get_id()),
            _ => None,
        };
        let (text, is_unreadable) = match error.kind() {
            ErrorKind::ParsingError(_) => {
                ("the client cannot parse what the broker sends".to_owned(), true)
            }
            ErrorKind::ProtocolError(reason)
                if reason.get_id() == FRAME_ERROR
                    && reason.get_message().as_str().starts_with(LARGE_FRAME) =>
            {
                (format!("the headers of a message are larger than frame_max: {error}"), true)
            }
            _ => (error.to_string(), false),
        };
        Loss { code, text, is_unreadable }
    }
}

/// A connection, and its socket. Of a node that answers nothing, lapin would keep the socket and a
/// thread for ever.
pub(super) struct Link {
    connection: Connection,
    /// None where the user connects.
    socket: Option<TcpStream>,
}

impl Deref for Link {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl Link {
    /// Ends it without a word.
    pub(super) fn cut(&self) {
        shut_down(self.socket.as_ref());
    }
}

/// The socket of a login. It is shut down when the login is given up.
#[derive(Default)]
struct LoginSocket(Arc<Mutex<Option<TcpStream>>>);

impl Drop for LoginSocket {
    fn drop(&mut self) {
        shut_down(lock(&self.0).take().as_ref());
    }
}

fn shut_down(socket: Option<&TcpStream>) {
    let _best_effort = socket.is_some_and(|it| it.shutdown(Shutdown::Both).is_ok());
}

/// `purpose` is part of the name that the broker shows.
pub(super) async fn open(rabbit: &RabbitMq, service: &str, purpose: &str) -> Result<Link, Loss> {
    let login = LoginSocket::default();
    let kept = Arc::clone(&login.0);
    let connecting = async {
        if let Some(connect) = &rabbit.connect {
            return Ok::<_, Loss>(connect().await?);
        }
        let mut uri: AMQPUri = rabbit.url.parse().map_err(|_| Loss::of(NO_URL))?;
        uri.query.heartbeat.get_or_insert(HEARTBEAT_S);
        let name = format!("{service} {purpose}");
        let properties = ConnectionProperties::default().with_connection_name(name.into());
        Ok(log_in(uri, properties, kept).await?)
    };
    let connection = in_time(connecting, "no answer").await?;
    // From here on it belongs to the link: the guard finds none to shut down.
    let socket = lock(&login.0).take();
    Ok(Link { connection, socket })
}

async fn log_in(
    uri: AMQPUri,
    properties: ConnectionProperties,
    kept: Arc<Mutex<Option<TcpStream>>>,
) -> lapin::Result<Connection> {
    let runtime = runtime::default_runtime()?;
    // Written here, where lapin tells its types.
    Connection::connector(
        uri,
        runtime,
        async move |uri, runtime| {
            let config = OwnedTLSConfig::default();
            let stream = uri.connect_with_config_async(config.as_ref(), &runtime).await?;
            if let AsyncTcpStream::Plain(stream) = &stream {
                let socket = stream.get_ref().as_fd().try_clone_to_owned()?;
                *lock(&kept) = Some(socket.into());
            }
            Ok(stream)
        },
        properties,
    )
    .await
}

/// Waits for an answer of the broker within [`CONNECT_WITHIN`]: a node may send heartbeats and answer
/// nothing. `missing` is the beginning of the text if there is none.
pub(super) async fn in_time<T, E: Into<Loss>>(
    asking: impl Future<Output = Result<T, E>>,
    missing: &str,
) -> Result<T, Loss> {
    let late = |_| Loss::of(format!("{missing} within {} s", CONNECT_WITHIN.as_secs()));
    timeout(CONNECT_WITHIN, asking).await.map_err(late)?.map_err(Into::into)
}

pub(super) async fn close(link: &Link) {
    if timeout(CLOSE_WITHIN, link.close(200, "".into())).await.is_err() {
        link.cut();
    }
}

/// Names that are too long were refused before.
pub(super) fn short(name: &str) -> ShortString {
    ShortString::try_new(name).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use lapin::protocol::{AMQPError, AMQPHardError};

    use super::*;

    #[test]
    fn a_limit_is_no_refusal() {
        for (text, is_refusal) in [
            (
                "NOT_ALLOWED - access to vhost '/' refused for user 'u': connection limit (1) is reached",
                false,
            ),
            (
                "NOT_ALLOWED - number of channels opened for user 'u' has reached the maximum allowed user limit of (3)",
                false,
            ),
            ("NOT_ALLOWED - vhost rate-limits not found", true),
        ] {
            let loss = Loss { code: Some(NOT_ALLOWED), ..Loss::of(text) };
            assert_eq!(loss.is_refusal(), is_refusal, "{text}");
        }
    }

    #[test]
    fn a_queue_that_is_missing_is_told_with_what_makes_it() {
        let loss = Loss::of("NOT_FOUND - no queue 'billing' in vhost '/'");
        assert_eq!(loss.explanation(), loss.text);
        let text = "NOT_FOUND - no queue 'billing' in vhost '/': Inbox::init makes it";
        assert_eq!(Loss { code: Some(NOT_FOUND), ..loss }.explanation(), text);
        let text = "NOT_FOUND - home node 'rabbit@b' of durable queue 'billing' in vhost '/' is down or inaccessible";
        assert_eq!(Loss { code: Some(NOT_FOUND), ..Loss::of(text) }.explanation(), text);
    }

    #[test]
    fn a_frame_that_is_too_large_is_the_fault_of_a_message() {
        let loss = |text: &str| {
            let refused = AMQPError::new(AMQPHardError::FRAMEERROR.into(), text.into());
            Loss::from(Error::from(ErrorKind::ProtocolError(refused)))
        };
        assert!(loss("frame too large: 9000 bytes").is_unreadable);
        assert!(!loss("FRAME_ERROR - type 2, all octets = <<>>").is_unreadable);
    }
}
