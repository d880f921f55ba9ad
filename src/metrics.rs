//! Metrics: the one table.
