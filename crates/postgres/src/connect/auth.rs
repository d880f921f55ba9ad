//! The login of a replication connection.
//!
//! Trust, password, MD5 and SCRAM-SHA-256 are answered, where `require_auth` and the link allow it.
//! In SCRAM the server must authenticate itself too, and its iteration count is limited, because it
//! determines how much CPU the login takes.

use pgwire_replication::protocol::framing::{self, BackendMessage, MessageReader};
use pgwire_replication::protocol::messages::{auth, parse_auth_request};
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use tokio::io::AsyncWriteExt as _;

use super::dial::ServerLink;
use super::error::ConnectCause;
use super::{ServerError, notice};
use crate::require_auth::AuthMethod;
use crate::settings::ConnInfo;
use walrelay_base::secret::Secret;

const PROTOCOL_3_0: i32 = 196_608;
/// The message that ends a session.
const TERMINATE: &[u8] = b"X\0\0\0\x04";
/// The limit of `postgres-protocol`, so that SQL sessions accept the same roles.
const ITERATIONS_MAX: u32 = 100_000;

struct LoginExchange<'a> {
    link: &'a mut ServerLink,
    reader: &'a mut MessageReader,
    info: &'a ConnInfo,
    /// The server has sent an authentication request.
    was_asked: bool,
}

/// Logs in, and waits until the server is ready for queries.
pub(super) async fn log_in(
    link: &mut ServerLink,
    reader: &mut MessageReader,
    info: &ConnInfo,
) -> Result<(), ConnectCause> {
    ask_for_session(link, info, Some("database")).await?;
    LoginExchange { link, reader, info, was_asked: false }.run().await
}

/// Asks for a session without replication, and closes the connection once the server asks for authentication, or
/// begins a session without: it refuses before that if it takes none.
pub(super) async fn reach_authentication(
    link: &mut ServerLink,
    reader: &mut MessageReader,
    info: &ConnInfo,
) -> Result<(), ConnectCause> {
    ask_for_session(link, info, None).await?;
    let mut exchange = LoginExchange { link, reader, info, was_asked: false };
    loop {
        let message = exchange.next().await?;
        match message.tag {
            b'R' if parse_auth_request(&message.payload)?.0 != auth::OK => break,
            b'Z' => {
                exchange.link.socket.write_all(TERMINATE).await?;
                break;
            }
            _ => {}
        }
    }
    // The server would log a connection that is reset.
    let _closed = link.socket.shutdown().await.is_ok();
    Ok(())
}

async fn ask_for_session(
    link: &mut ServerLink,
    info: &ConnInfo,
    replication: Option<&str>,
) -> Result<(), ConnectCause> {
    let mut parameters = vec![
        ("user", info.user.as_str()),
        ("database", info.dbname.as_str()),
        ("application_name", info.application_name.as_str()),
        ("client_encoding", "UTF8"),
        // Text values of dates must not depend on how the server is configured.
        ("DateStyle", "ISO"),
        // PostgreSQL 18 reports only with a warning that a publication is gone.
        ("client_min_messages", "warning"),
    ];
    parameters.extend(replication.map(|database| ("replication", database)));
    parameters.extend(info.options.as_deref().map(|options| ("options", options)));
    framing::write_startup_message(&mut link.socket, PROTOCOL_3_0, &parameters).await?;
    Ok(())
}

impl LoginExchange<'_> {
    async fn run(&mut self) -> Result<(), ConnectCause> {
        loop {
            let message = self.next().await?;
            match message.tag {
                b'R' => self.authenticate(&message.payload).await?,
                b'Z' => return Ok(()),
                b'N' => notice::log(&ServerError::parse(&message.payload), &self.link.host),
                // ParameterStatus, NegotiateProtocolVersion, and BackendKeyData, in which a proxy may write a pid of its own.
                b'S' | b'v' | b'K' => {}
                tag => return Err(unexpected(tag)),
            }
        }
    }

    async fn next(&mut self) -> Result<BackendMessage, ConnectCause> {
        let message = self.reader.read(&mut self.link.socket).await?;
        if message.is_error() { Err(ConnectCause::server(&message.payload)) } else { Ok(message) }
    }

    async fn authenticate(&mut self, payload: &[u8]) -> Result<(), ConnectCause> {
        let (code, data) = parse_auth_request(payload)?;
        // AuthenticationOk at the end of an exchange does not mean that nothing was asked.
        let is_end = code == auth::OK && self.was_asked;
        if let Some(asked) = AuthMethod::of(code).filter(|_| !is_end) {
            self.info.require_auth.judge(asked, self.link.socket.exposed)?;
        }
        self.was_asked = true;
        match code {
            auth::OK => Ok(()),
            auth::CLEARTEXT_PASSWORD => {
                let password = self.password()?;
                self.send(&terminated(password.expose())).await
            }
            auth::MD5_PASSWORD => {
                let salt = <[u8; 4]>::try_from(data)
                    .map_err(|_| ConnectCause::protocol("an MD5 salt is not 4 bytes"))?;
                let password = self.password()?.expose().as_bytes();
                let hash = md5_hash(self.info.user.as_bytes(), password, salt);
                self.send(&terminated(&hash)).await
            }
            auth::SASL => self.scram(data).await,
            code => Err(ConnectCause::login(format!(
                "the server asks for authentication method {code}; supported are trust, password, md5, \
                 scram-sha-256, and certificates with TLS"
            ))),
        }
    }

    async fn scram(&mut self, mechanisms: &[u8]) -> Result<(), ConnectCause> {
        if !mechanisms.split(|byte| *byte == 0).any(|name| name == SCRAM_SHA_256.as_bytes()) {
            return Err(ConnectCause::login("the server does not offer SCRAM-SHA-256"));
        }
        let failed = |error: std::io::Error| ConnectCause::login(format!("SCRAM: {error}"));
        let password = self.password()?.expose().as_bytes();
        let mut scram = ScramSha256::new(password, ChannelBinding::unsupported());
        let mut first = terminated(SCRAM_SHA_256);
        let length = i32::try_from(scram.message().len()).unwrap_or(i32::MAX);
        first.extend_from_slice(&length.to_be_bytes());
        first.extend_from_slice(scram.message());
        self.send(&first).await?;

        let challenge = self.sasl(auth::SASL_CONTINUE).await?;
        let iterations = challenge.split(',').find_map(|part| part.strip_prefix("i="));
        if iterations.and_then(|it| it.parse::<u32>().ok()).is_none_or(|it| it > ITERATIONS_MAX) {
            return Err(ConnectCause::login("the server asks for too many SCRAM iterations"));
        }
        scram.update(challenge.as_bytes()).map_err(failed)?;
        self.send(scram.message()).await?;

        let verdict = self.sasl(auth::SASL_FINAL).await?;
        scram.finish(verdict.as_bytes()).map_err(failed)
    }

    async fn sasl(&mut self, wanted: i32) -> Result<String, ConnectCause> {
        let message = self.next().await?;
        if !message.is_auth_request() {
            return Err(unexpected(message.tag));
        }
        match parse_auth_request(&message.payload) {
            Ok((code, data)) if code == wanted => Ok(String::from_utf8_lossy(data).into_owned()),
            _ => Err(ConnectCause::login("the server broke off the SCRAM exchange")),
        }
    }

    fn password(&self) -> Result<&Secret, ConnectCause> {
        let password = self.info.password.as_ref().or(self.link.host.password.as_ref());
        password.ok_or(ConnectCause::NoPassword)
    }

    async fn send(&mut self, payload: &[u8]) -> Result<(), ConnectCause> {
        Ok(framing::write_password_message(&mut self.link.socket, payload).await?)
    }
}

fn unexpected(tag: u8) -> ConnectCause {
    ConnectCause::Protocol(format!("message {:?} during login", char::from(tag)))
}

fn terminated(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    bytes
}
