//! Parts that benchmarks share: progress, reports, the cost of a measurement, and the slots that each
//! gets afresh.

mod counted;
mod cpu;
mod progress;
mod source;

pub use counted::Counted;
pub use cpu::CpuSeconds;
pub use progress::Progress;
pub use source::{PUBLICATION, Source};

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::{HarnessError, Result};
use walrelay_measure::table::Table;

/// The tables as a terminal shows them.
pub fn terminal(tables: &[Table]) -> String {
    tables.iter().map(Table::to_string).collect::<Vec<_>>().join("\n")
}

pub fn markdown(tables: &[Table]) -> String {
    tables.iter().map(Table::markdown).collect::<Vec<_>>().join("\n")
}

pub fn exit(outcome: Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The commit of this tree, with `-dirty` behind it where files differ.
pub fn commit() -> String {
    let arguments = ["describe", "--always", "--dirty", "--abbrev=8", "--exclude=*"];
    let described =
        Command::new("git").args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    match described {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        _ => "unknown".to_owned(),
    }
}

/// Writes `<name>.json` and `<name>.md`; tells where.
pub fn write_report(folder: &Path, name: &str, json: &str, markdown: &str) -> Result<String> {
    let failed = || HarnessError::io(format!("write {}", folder.display()));
    std::fs::create_dir_all(folder).map_err(failed())?;
    let file = |extension: &str| folder.join(format!("{name}.{extension}"));
    std::fs::write(file("json"), json).map_err(failed())?;
    std::fs::write(file("md"), markdown).map_err(failed())?;
    Ok(format!("{}, {}", file("json").display(), file("md").display()))
}
