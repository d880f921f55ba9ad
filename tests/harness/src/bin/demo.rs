//! `demo`: see [`walrelay_harness::demo`]. Asks nothing; exits 1 when an event was lost.

use std::process::ExitCode;

use walrelay_harness::demo::{self, Settings};

fn main() -> ExitCode {
    let settings = match Settings::from_environment() {
        Ok(settings) => settings,
        Err(problem) => {
            eprintln!("demo: {problem}");
            return ExitCode::from(2);
        }
    };
    match demo::run(&settings) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}
