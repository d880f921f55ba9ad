//! The last minute of the demo: the slot beside polling, by the relay's own `compare`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::screen::Screen;
use crate::process::without_variables;
use crate::relay::RelayConfig;
use crate::{HarnessError, Result};

/// Where the page is left, in the repository and elsewhere; everything else of the demo is removed.
const PAGES: [&str; 2] = ["target/demo/compare.html", "walrelay-compare.html"];
/// One run of each mode takes about four seconds more.
const LONGEST: Duration = Duration::from_secs(12);

pub(super) fn run(
    screen: &Screen,
    binary: &Path,
    folder: &Path,
    owner: &RelayConfig,
    length: Duration,
) -> Result<()> {
    let name = PAGES[usize::from(!Path::new("target").is_dir())];
    let page = std::path::absolute(name).map_err(HarnessError::io("find the working folder"))?;
    let parent = page.parent().unwrap_or(&page);
    std::fs::create_dir_all(parent).map_err(HarnessError::io("make target/demo"))?;
    let file = folder.join("compare.toml");
    let admin = ([127, 0, 0, 1], 0).into();
    std::fs::write(&file, owner.toml(admin)).map_err(HarnessError::io("write compare.toml"))?;
    let seconds = length.min(LONGEST).as_secs();
    let words =
        format!("compare --rates 500 --intervals 100ms,1s --duration {seconds}s --backlog 0");
    screen
        .head("the same load through the slot, and through polling every 100 ms and every second");
    screen.command(&format!("walrelay {words} --html {name}"));
    let mut command = Command::new(binary);
    command.args(words.split(' ')).arg("--html").arg(&page).arg("--config").arg(&file);
    // Whoever runs the demo may have a relay of their own.
    let status = without_variables(&mut command, "WALRELAY_").status();
    let status = status.map_err(HarnessError::io("run walrelay compare"))?;
    if !status.success() {
        return Err(HarnessError::Other(format!("walrelay compare ended with {status}")));
    }
    screen.say(&format!("with plots: file://{}", page.display()));
    Ok(())
}
