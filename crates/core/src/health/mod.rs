//! What the data thread knows at the end of a pass.

mod pass;

pub use self::pass::{IntakeHold, Pass, Phase, SilentDestination};
