//! The login: from the protocol header to an open connection.

use crate::frame::{Frame, FrameKind, PROTOCOL_HEADER};
use crate::method::{ClientMethod, Mechanism, ServerMethod, Tuning};
use crate::wire::Malformed;

/// The request of a client for a login.
#[derive(Clone, Debug)]
pub struct LoginRequest {
    pub mechanism: Mechanism,
    pub vhost: String,
    /// The largest frame that the client takes.
    pub frame_max: u32,
    /// The longest time between two signs of life, in seconds.
    pub heartbeat_s: u16,
    pub connection_name: String,
}

/// The facts that a login has agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The name of the server's cluster, which may be empty.
    pub cluster_name: String,
    pub tuning: Tuning,
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginError {
    /// The server has closed the connection.
    Refused(u16, String),
    Malformed(Malformed),
    /// The server sent a method that does not belong here, with its class and number.
    Unexpected(u16, u16),
}

impl From<Malformed> for LoginError {
    fn from(malformed: Malformed) -> LoginError {
        LoginError::Malformed(malformed)
    }
}

#[derive(Debug)]
pub struct Login {
    request: LoginRequest,
    cluster_name: String,
    /// The limits that the server has offered.
    offered: Option<Tuning>,
}

impl Login {
    /// Begins a login, and appends what is to be sent first.
    pub fn begin(request: LoginRequest, out: &mut Vec<u8>) -> Login {
        out.extend_from_slice(&PROTOCOL_HEADER);
        Login { request, cluster_name: String::new(), offered: None }
    }

    /// The largest frame that the server has offered; 0 where it has not said so, or sets no limit.
    pub fn frame_max_offered(&self) -> u32 {
        self.offered.map_or(0, |tuning| tuning.frame_max)
    }

    /// Takes a frame of the server, and appends the answer. Returns what was agreed on once the
    /// connection is open.
    pub fn take(
        &mut self,
        frame: Frame<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Agreed>, LoginError> {
        if frame.kind != FrameKind::Method {
            return Ok(None);
        }
        match ServerMethod::read(frame.payload)? {
            ServerMethod::Start { cluster_name } => {
                self.cluster_name = cluster_name.into_owned();
                let LoginRequest { mechanism, connection_name, .. } = &self.request;
                ClientMethod::StartOk { mechanism, connection_name }.put(0, out);
            }
            ServerMethod::Tune(offered) => {
                self.offered = Some(offered);
                ClientMethod::TuneOk(self.agreed(offered)).put(0, out);
                ClientMethod::Open { vhost: &self.request.vhost }.put(0, out);
            }
            ServerMethod::OpenOk => {
                let offered = self.offered.ok_or(LoginError::Unexpected(10, 41))?;
                let cluster_name = std::mem::take(&mut self.cluster_name);
                return Ok(Some(Agreed { cluster_name, tuning: self.agreed(offered) }));
            }
            ServerMethod::Close(reply) => {
                ClientMethod::CloseOk.put(0, out);
                return Err(LoginError::Refused(reply.code, reply.text.into_owned()));
            }
            ServerMethod::Other(class, method) => {
                return Err(LoginError::Unexpected(class, method));
            }
            // No other method of those that are known ends or changes a login.
            _ => {}
        }
        Ok(None)
    }

    fn agreed(&self, offered: Tuning) -> Tuning {
        let LoginRequest { frame_max, heartbeat_s, .. } = self.request;
        Tuning {
            channel_max: if offered.channel_max == 0 { u16::MAX } else { offered.channel_max },
            frame_max: agreed_limit(frame_max, offered.frame_max),
            heartbeat_s: agreed_limit(heartbeat_s, offered.heartbeat_s),
        }
    }
}

/// The lower limit of both sides, or the only one: 0 is none.
fn agreed_limit<T: Ord + Default + Copy>(ours: T, theirs: T) -> T {
    let none = T::default();
    if ours == none || theirs == none { ours.max(theirs) } else { ours.min(theirs) }
}
