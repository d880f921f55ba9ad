//! Labels of metrics.

pub mod labels;

pub use self::labels::{
    HealthState, Ignored, IntakeHold, KnownFrom, LabelSet, Outcome, Point, Stage, Version,
    WalStatus,
};
