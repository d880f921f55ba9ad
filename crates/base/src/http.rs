//! The HTTP client: one request on a connection of its own, or a connection for several.
//!
//! Answers are bounded in size and in time, redirects are not followed, because they would get the
//! headers, and no error quotes the request, because it may hold a login.

use std::error::Error;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Full, Limited};
use hyper::body::{Body, Bytes};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Uri, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

pub type HttpError = Box<dyn Error + Send + Sync>;

/// Status and body.
pub type HttpAnswer = (u16, Bytes);

/// Gets `target`, a path with its query, from an address without TLS.
pub async fn get(
    (host, port): (&str, u16),
    target: &str,
    bytes_max: usize,
) -> Result<HttpAnswer, HttpError> {
    let stream = TcpStream::connect((host, port)).await?;
    get_on(stream, host_name(host, port), target, bytes_max).await
}

/// Gets like [`get`], and asks for the address instead of the name.
pub async fn get_by_address(
    (host, port): (&str, u16),
    target: &str,
    bytes_max: usize,
) -> Result<HttpAnswer, HttpError> {
    let stream = TcpStream::connect((host, port)).await?;
    let address = stream.peer_addr()?.to_string();
    get_on(stream, address, target, bytes_max).await
}

async fn get_on(
    stream: TcpStream,
    host: String,
    target: &str,
    bytes_max: usize,
) -> Result<HttpAnswer, HttpError> {
    let request = Request::get(target)
        .header(header::HOST, host)
        .header(header::ACCEPT, "application/json")
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())?;
    exchange(stream, request, bytes_max).await
}

/// Posts JSON to `target` of an address without TLS, with this token.
pub async fn post_json(
    (host, port): (&str, u16),
    target: &str,
    token: &str,
    json: String,
    bytes_max: usize,
) -> Result<HttpAnswer, HttpError> {
    let request = Request::post(target)
        .header(header::HOST, host_name(host, port))
        .header(header::AUTHORIZATION, format!("Bearer {token}"))
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONNECTION, "close")
        .body(Full::new(Bytes::from(json)))?;
    exchange(TcpStream::connect((host, port)).await?, request, bytes_max).await
}

fn host_name(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Sends a request and reads the whole answer, whose body may have so many bytes.
pub async fn exchange<S, B>(
    stream: S,
    request: Request<B>,
    bytes_max: usize,
) -> Result<HttpAnswer, HttpError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: Body<Data: Send, Error: Into<HttpError>> + Send + 'static,
{
    let mut sender = start(stream).await?;
    let answer = sender.send_request(request).await?;
    let status = answer.status().as_u16();
    let body = Limited::new(answer.into_body(), bytes_max).collect().await?;
    Ok((status, body.to_bytes()))
}

/// Begins HTTP/1.1 on a stream.
pub async fn start<S, B>(stream: S) -> Result<SendRequest<B>, HttpError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: Body<Data: Send, Error: Into<HttpError>> + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // The connection ends with its sender, which also gets its errors.
    tokio::spawn(connection);
    Ok(sender)
}

/// The port of a URL, or this one where it has none. None if the port is not a number from 1 to 65535: to the
/// parser, such a port is none.
pub fn port(uri: &Uri, by_default: u16) -> Option<u16> {
    let authority = uri.authority().map(|it| it.as_str()).unwrap_or_default();
    match authority.strip_prefix(uri.host().unwrap_or_default()) {
        Some("") => Some(by_default),
        _ => uri.port_u16().filter(|port| *port > 0),
    }
}

/// Why a request has failed, for people.
pub fn reason(error: &HttpError) -> String {
    match error.source() {
        // hyper describes a failed request by its source.
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// The help for a process that has the address and does not answer.
pub const SILENT_PROCESS_HELP: &str = "see its state: ps -o pid,stat,pcpu,args -p PID; T is stopped: kill -CONT PID\n\
                                    if it stays silent: kill -9 PID, and start it again";

/// Why there was no answer; its text is for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// No process listens at the address.
    #[error("{0}")]
    Refused(String),
    #[error("it did not answer within {} s", .0.as_secs())]
    Late(Duration),
    #[error("{0}")]
    Failed(String),
}

/// Waits for an answer.
pub async fn answer_within(
    limit: Duration,
    asking: impl Future<Output = Result<HttpAnswer, HttpError>>,
) -> Result<HttpAnswer, NoAnswer> {
    let answer = timeout(limit, asking).await.map_err(|_| NoAnswer::Late(limit))?;
    answer.map_err(|error| {
        let io = error.downcast_ref::<std::io::Error>();
        match io.is_some_and(|io| io.kind() == std::io::ErrorKind::ConnectionRefused) {
            true => NoAnswer::Refused(reason(&error)),
            false => NoAnswer::Failed(reason(&error)),
        }
    })
}
