//! The last minute of the demo: the slot beside polling, by the relay's own `compare`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::screen::Screen;
use crate::relay::RelayConfig;
use crate::{HarnessError, Result};

/// Where the page is left; everything else of the demo is removed.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/demo");
/// One run of each mode takes about four seconds more.
const LONGEST: Duration = Duration::from_secs(12);

pub(super) fn run(
    screen: &Screen,
    binary: &Path,
    folder: &Path,
    owner: &RelayConfig,
    length: Duration,
) -> Result<()> {
    std::fs::create_dir_all(FOLDER).map_err(HarnessError::io("make target/demo"))?;
    let page = std::fs::canonicalize(FOLDER).map_err(HarnessError::io("find target/demo"))?;
    let page = page.join("compare.html");
    let file = folder.join("compare.toml");
    let admin = ([127, 0, 0, 1], 0).into();
    std::fs::write(&file, owner.toml(admin)).map_err(HarnessError::io("write compare.toml"))?;
    let seconds = length.min(LONGEST).as_secs();
    let words =
        format!("compare --rates 500 --intervals 100ms,1s --duration {seconds}s --backlog 0");
    screen
        .head("the same load through the slot, and through polling every 100 ms and every second");
    screen.command(&format!("walrelay {words} --html target/demo/compare.html"));
    let mut command = Command::new(binary);
    command.args(words.split(' ')).arg("--html").arg(&page).arg("--config").arg(&file);
    for (name, _) in std::env::vars_os() {
        // Whoever runs the demo may have a relay of their own.
        if name.to_string_lossy().starts_with("WALRELAY_") {
            command.env_remove(name);
        }
    }
    let status = command.status().map_err(HarnessError::io("run walrelay compare"))?;
    if !status.success() {
        return Err(HarnessError::Other(format!("walrelay compare ended with {status}")));
    }
    screen.say(&format!("with plots: file://{}", page.display()));
    Ok(())
}
