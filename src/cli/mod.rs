//! The subcommands.
#![allow(dead_code)]

mod check;
mod init;
mod slot;
