//! The login of a replication-mode connection: who we are, the proof, and what the server says of
//! itself.
//!
//! Trust, clear text, MD5 and SCRAM-SHA-256 are answered, where `require_auth` and the link allow it.
//! In SCRAM the server must prove itself too, and its iteration count is bounded: it is the one number
//! in the login that costs us CPU.

use std::collections::BTreeMap;

use pgwire_replication::auth::ScramClient;
use pgwire_replication::protocol::framing::{self, BackendMessage, MessageReader};
use pgwire_replication::protocol::messages::{auth, parse_auth_request};
use postgres_protocol::authentication::md5_hash;

use super::dial::ServerLink;
use super::error::ConnectCause;
use super::socket::ServerSocket;
use crate::base::secret::Secret;
use crate::source::require_auth::{AuthMethod, RequireAuth};
use crate::source::settings::ConnInfo;

const PROTOCOL_3_0: i32 = 196_608;
const SCRAM_ITERATIONS_MAX: u32 = 1_000_000;
const MECHANISM: &str = "SCRAM-SHA-256";

/// What the server says of itself before it is ready.
#[derive(Debug, Default)]
pub(super) struct Greeting {
    pub(super) parameters: BTreeMap<String, String>,
    pub(super) backend_pid: i32,
}

struct LoginExchange<'a> {
    socket: &'a mut ServerSocket,
    reader: &'a mut MessageReader,
    user: &'a str,
    password: Option<&'a Secret>,
    rules: &'a RequireAuth,
    /// The server has asked for something.
    was_asked: bool,
}

/// Logs in and waits until the server is ready.
pub(super) async fn log_in(
    link: &mut ServerLink,
    reader: &mut MessageReader,
    info: &ConnInfo,
) -> Result<Greeting, ConnectCause> {
    let mut parameters = vec![
        ("user", info.user.as_str()),
        ("database", info.dbname.as_str()),
        ("replication", "database"),
        ("application_name", info.application_name.as_str()),
        ("client_encoding", "UTF8"),
        // Text values of dates must not depend on how the server is configured.
        ("DateStyle", "ISO"),
        // PostgreSQL 18 tells by a warning, and by nothing else, that a publication is gone.
        ("client_min_messages", "warning"),
    ];
    parameters.extend(info.options.as_deref().map(|options| ("options", options)));
    let ServerLink { socket, host, .. } = link;
    framing::write_startup_message(socket, PROTOCOL_3_0, &parameters).await?;
    let password = info.password.as_ref().or(host.password.as_ref());
    let (user, rules) = (&info.user, &info.require_auth);
    LoginExchange { socket, reader, user, password, rules, was_asked: false }.run().await
}

impl LoginExchange<'_> {
    async fn run(&mut self) -> Result<Greeting, ConnectCause> {
        let mut greeting = Greeting::default();
        loop {
            let message = self.next().await?;
            match message.tag {
                b'R' => self.authenticate(&message.payload).await?,
                b'S' => {
                    let mut texts =
                        message.payload.split(|byte| *byte == 0).map(String::from_utf8_lossy);
                    if let (Some(name), Some(value)) = (texts.next(), texts.next()) {
                        greeting.parameters.insert(name.into_owned(), value.into_owned());
                    }
                }
                b'K' => {
                    let pid = message.payload.first_chunk::<4>().copied();
                    greeting.backend_pid = pid.map_or(0, i32::from_be_bytes);
                }
                b'Z' => return Ok(greeting),
                // A notice, or word of a newer protocol version.
                b'N' | b'v' => {}
                tag => return Err(unexpected(tag)),
            }
        }
    }

    async fn next(&mut self) -> Result<BackendMessage, ConnectCause> {
        let message = self.reader.read(self.socket).await?;
        if message.is_error() { Err(ConnectCause::server(&message.payload)) } else { Ok(message) }
    }

    async fn authenticate(&mut self, payload: &[u8]) -> Result<(), ConnectCause> {
        let (code, data) = parse_auth_request(payload)?;
        // The end of an exchange is not that nothing was asked.
        let is_end = code == auth::OK && self.was_asked;
        if let Some(asked) = AuthMethod::of(code).filter(|_| !is_end) {
            self.rules.judge(asked, self.socket.exposed)?;
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
                let hash = md5_hash(self.user.as_bytes(), password, salt);
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
        if !mechanisms.split(|byte| *byte == 0).any(|name| name == MECHANISM.as_bytes()) {
            return Err(ConnectCause::login("the server does not offer SCRAM-SHA-256"));
        }
        let password = normalised(self.password()?);
        // Postgres ignores the name here and takes the one of the startup packet.
        let client = ScramClient::new("");
        let mut first = terminated(MECHANISM);
        let length = i32::try_from(client.client_first.len()).unwrap_or(i32::MAX);
        first.extend_from_slice(&length.to_be_bytes());
        first.extend_from_slice(client.client_first.as_bytes());
        self.send(&first).await?;

        let challenge = self.sasl(auth::SASL_CONTINUE).await?;
        let (_, _, iterations) = ScramClient::parse_server_first(&challenge)?;
        if iterations > SCRAM_ITERATIONS_MAX {
            return Err(ConnectCause::login("the server asks for too many SCRAM iterations"));
        }
        let (answer, transcript, salted) = client.client_final(password.expose(), &challenge)?;
        self.send(answer.as_bytes()).await?;

        let verdict = self.sasl(auth::SASL_FINAL).await?;
        Ok(ScramClient::verify_server_final(&verdict, &salted, &transcript)?)
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
        self.password.ok_or(ConnectCause::NoPassword)
    }

    async fn send(&mut self, payload: &[u8]) -> Result<(), ConnectCause> {
        Ok(framing::write_password_message(self.socket, payload).await?)
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

/// SASLprep, or the password as it is where that forbids it: what the server did when it was set.
fn normalised(password: &Secret) -> Secret {
    match stringprep::saslprep(password.expose()) {
        Ok(text) => Secret::new(text),
        Err(_) => password.clone(),
    }
}
