//! Posts to the collector over HTTP/1.1, with or without TLS. The connection is kept.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::SendRequest;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response, body};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::endpoint::{OtlpEndpoint, parse_headers};
use walrelay_base::http::{HttpError, start};
use walrelay_base::secret::{Secret, SecretFile as _};

const ANSWER_BYTES_MAX: usize = 64 << 10;
const CONTENT_TYPE: &str = "application/x-protobuf";
const USER_AGENT: &str = concat!("walrelay/", env!("CARGO_PKG_VERSION"));

pub(super) struct OtlpClient {
    pub(super) endpoint: OtlpEndpoint,
    /// The headers that the configuration has.
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    /// Where they come from: a file may have others meanwhile.
    pub(super) headers_from: Option<Secret>,
    /// None without TLS.
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) connection: Option<SendRequest<Full<Bytes>>>,
}

pub(super) struct OtlpAnswer {
    pub(super) status: u16,
    pub(super) retry_after: Option<Duration>,
    pub(super) body: Bytes,
}

impl OtlpClient {
    /// Takes the headers that their file has now. Returns whether they are others.
    pub(super) fn renew_headers(&mut self) -> bool {
        let current = self.headers_from.as_ref().and_then(|secret| secret.current().ok());
        let Some(Ok(headers)) = current.map(|text| parse_headers(&text)) else { return false };
        let are_others = headers != self.headers;
        if are_others {
            self.headers = headers;
        }
        are_others
    }

    /// Sends one request. The server may have closed a connection that was kept: then it is sent
    /// over another one.
    pub(super) async fn post(&mut self, spans: Bytes) -> Result<OtlpAnswer, HttpError> {
        if let Some(kept) = self.connection.take().filter(|kept| !kept.is_closed())
            && let Ok(answer) = self.send(kept, spans.clone()).await
        {
            return Ok(answer);
        }
        let connection = self.connect().await?;
        self.send(connection, spans).await
    }

    async fn send(
        &mut self,
        mut connection: SendRequest<Full<Bytes>>,
        spans: Bytes,
    ) -> Result<OtlpAnswer, HttpError> {
        let mut request = Request::post(&self.endpoint.path)
            .header(header::HOST, &self.endpoint.authority)
            .header(header::CONTENT_TYPE, CONTENT_TYPE)
            .header(header::USER_AGENT, USER_AGENT)
            .body(Full::new(spans))?;
        request.headers_mut().extend(self.headers.iter().cloned());
        connection.ready().await?;
        let answer = read(connection.send_request(request).await?).await?;
        self.connection = Some(connection);
        Ok(answer)
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, HttpError> {
        let OtlpEndpoint { host, port, .. } = &self.endpoint;
        let stream = TcpStream::connect((host.as_str(), *port)).await?;
        let Some(tls) = &self.tls else { return start(stream).await };
        let name = ServerName::try_from(host.clone())?;
        start(TlsConnector::from(Arc::clone(tls)).connect(name, stream).await?).await
    }
}

async fn read(answer: Response<body::Incoming>) -> Result<OtlpAnswer, HttpError> {
    let status = answer.status().as_u16();
    let retry_after = retry_after(answer.headers());
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await?.to_bytes();
    Ok(OtlpAnswer { status, retry_after, body })
}

/// In seconds; a date is not understood.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}
