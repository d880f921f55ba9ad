//! The command line. Everything it does lives in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    walrelay::cli::main()
}
