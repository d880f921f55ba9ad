//! Dead letters: the records that a relay writes, what is read back, and what of that is open.

pub mod fit;
pub mod fold;
pub mod open_dead_letters;
pub mod owner;
pub mod parse;
pub mod record;
pub mod tail_event;
pub mod topic_stops;
pub mod writer;
