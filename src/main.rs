//! The command line. Everything it does lives in the library.

#[cfg(feature = "jemalloc")]
mod allocator_ffi;

use std::process::ExitCode;

fn main() -> ExitCode {
    walrelay::cli::main()
}
