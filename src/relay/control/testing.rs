//! The other end of a link, in the hands of a test.

use super::link::{self, LinkEnd};
use super::{Walsender, WalsenderAnswer, WalsenderLink};
use crate::source::walsender::Activity;

/// Answers what is asked about a walsender.
pub(in crate::relay) struct AnsweringEnd(LinkEnd<Walsender, WalsenderAnswer>);

pub(in crate::relay) fn walsender_pair() -> (WalsenderLink, AnsweringEnd) {
    let (link, end) = link::pair();
    (link, AnsweringEnd(end))
}

impl AnsweringEnd {
    /// Answers the open request; its process id, if there is one.
    pub(in crate::relay) fn answers(&mut self, activity: Result<Activity, String>) -> Option<i32> {
        let pid = self.0.requests.try_recv().ok()?.pid;
        self.0.answers.send(WalsenderAnswer { pid, activity }).ok()?;
        Some(pid)
    }
}
