//! Events from claimed rows of a table.

mod claimed_rows;
pub(super) mod claims;

use walrelay_core::relay::feed::{Downstream, Feed, FeedStatus};
