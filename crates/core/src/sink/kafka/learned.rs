//! Facts that a sink learns of the cluster while it is used, and that a sink that is built anew
//! must know.

use super::fault::ToolArguments;
use super::forbidden_topics::ForbiddenTopics;
use super::record_limit::RecordLimit;

/// Its owner outlives the sinks, which share it.
#[derive(Debug, Default)]
pub struct Learned {
    pub(super) record_limit: RecordLimit,
    pub(super) forbidden: ForbiddenTopics,
    /// Configured, for the texts of failures.
    pub(super) tools: ToolArguments,
}

impl Learned {
    /// A state in which no fact is learned yet. The property is the user's `message.max.bytes`.
    #[must_use]
    pub fn new(message_max_bytes: Option<&str>) -> Learned {
        let record_limit = RecordLimit::new(message_max_bytes);
        Learned { record_limit, ..Learned::default() }
    }

    /// The same, with these values in the commands that texts of failures name.
    #[must_use]
    pub fn with_tools(self, tools: ToolArguments) -> Learned {
        Learned { tools, ..self }
    }
}
