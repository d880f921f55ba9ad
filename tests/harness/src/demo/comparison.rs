//! The last minute of the demo: the slot beside polling, by the relay's own `compare`.

use std::path::Path;
use std::time::Duration;

use super::command;
use super::screen::Screen;
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
    let seconds = length.min(LONGEST).as_secs();
    screen
        .head("the same load through the slot, and through polling every 100 ms and every second");
    let words = format!(
        "compare --rates 500 --intervals 100ms,1s --duration {seconds}s --backlog 0 --html {name}"
    );
    command(screen, binary, folder, owner, &words)?;
    screen.say(&format!("with plots: file://{}", page.display()));
    Ok(())
}
