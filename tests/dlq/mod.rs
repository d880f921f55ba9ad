//! `walrelay dlq`: letters are written as a relay would write them, and worked off by the binary.

mod bench;
mod commands;
mod many;
mod pace;
mod words;
