//! `walrelay dlq`: letters are written as a relay would write them, and worked off by the binary.

mod commands;
mod fixture;
mod forged;
mod many;
mod of_consumer;
mod words;
