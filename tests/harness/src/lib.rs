//! Real services for tests, demo and benchmarks.
