//! Answers of a broker to publishes on a channel.

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReturnedMessage {
    /// The message id.
    pub id: String,
    pub code: u16,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// An ack or a nack, of all messages up to the tag if `multiple`.
    Confirm { tag: u64, multiple: bool, acked: bool },
    /// Comes before the confirm of the message.
    Returned(ReturnedMessage),
}
