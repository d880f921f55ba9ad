//! Where a stop is kept.

/// Where a stop is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    StateFile,
    Topic,
    Nowhere,
}
