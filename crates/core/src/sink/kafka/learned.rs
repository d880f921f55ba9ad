//! Facts that a sink learns of the cluster while it is used, and that a sink that is built anew
//! must know.

use super::forbidden_topics::ForbiddenTopics;
use super::record_limit::RecordLimit;

/// Its owner outlives the sinks, which share it.
#[derive(Debug, Default)]
pub struct Learned {
    pub(super) record_limit: RecordLimit,
    pub(super) forbidden: ForbiddenTopics,
}

impl Learned {
    /// A state in which no fact is learned yet. The property is the user's `message.max.bytes`.
    #[must_use]
    pub fn new(message_max_bytes: Option<&str>) -> Learned {
        let record_limit = RecordLimit::new(message_max_bytes);
        Learned { record_limit, forbidden: ForbiddenTopics::default() }
    }
}
