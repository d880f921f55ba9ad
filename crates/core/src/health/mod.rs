//! Facts that the data thread knows at the end of a pass.

mod pass;

pub use self::pass::{Pass, Phase, SilentDestination};
pub use crate::metrics::IntakeHold;
