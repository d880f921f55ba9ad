//! Who did what, in the log of the relay.

use super::error::ApiError;
use crate::base::log_queue;

/// Writes an audit line before what it tells of is done, which is refused if the line would be lost.
pub(super) fn audit(write: impl FnOnce()) -> Result<(), ApiError> {
    if log_queue::takes(write) {
        return Ok(());
    }
    let what = "the log of the relay is full, so that nobody would know of this request";
    let mend = "read the relay's standard error, or let its collector of logs run again";
    Err(ApiError::new("api.log-full", what, "", mend))
}
