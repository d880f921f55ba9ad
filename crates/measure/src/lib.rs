//! The measuring engine of `walrelay compare`, the benchmarks, the demo and the test harness, and of the relay's
//! metrics of its process: load at an even rate, latencies, the cost of processes, and numbers and tables for people. It knows no database and no broker.

pub mod latency;
pub mod load;
pub mod numbers;
pub mod process;
pub mod table;
