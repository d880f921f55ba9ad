//! `walrelay-man DIR` writes one man page per command of walrelay into an existing folder. Their date is
//! `SOURCE_DATE_EPOCH`, or the beginning of 1970.
//!
//! clap_mangen fills paragraphs, which would join the lines of examples: what stands below the options in
//! `--help` is written here, as sections of its own.

use std::error::Error;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use walrelay::base::time::rfc3339;

const FILES: &str = "\
walrelay.toml
    the configuration, in the folder in which the command is run
/etc/walrelay/walrelay.toml
    the configuration if there is none there
/var/lib/walrelay
    the state file of a relay that systemd runs";

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from);
    let folder = folder.ok_or("name the folder for the pages: walrelay-man DIR")?;
    let mut walrelay = walrelay::cli::command().disable_help_subcommand(true);
    walrelay.build();
    let pages = write_pages(&walrelay, &folder)?;
    println!("{pages} man pages in {}", folder.display());
    Ok(())
}

/// The titles that blocks below the options get.
const TITLES: [(&str, &str); 3] =
    [("Exit codes:\n", "EXIT STATUS"), ("Examples:\n", "EXAMPLES"), ("Example:\n", "EXAMPLES")];
const ENVIRONMENT: &str = "\
WALRELAY_CONFIG
    the configuration file, unless --config names one
WALRELAY_LOG
    the level of the log, unless --log gives one
WALRELAY_LOG_FORMAT
    the format of the log, unless --log-format gives one
WALRELAY_SECTION__KEY
    one key of the configuration, as in WALRELAY_SOURCE__URL";

/// Writes the page of a command and those of its subcommands; returns how many.
fn write_pages(command: &Command, folder: &Path) -> std::io::Result<usize> {
    let mut pages = 1;
    for subcommand in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        pages += write_pages(subcommand, folder)?;
    }
    let page = page(command)?;
    let name = command.get_display_name().unwrap_or(command.get_name());
    std::fs::write(folder.join(format!("{name}.1")), page)?;
    Ok(pages)
}

fn page(command: &Command) -> std::io::Result<Vec<u8>> {
    let mut page = Vec::new();
    let epoch = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|text| text.parse().ok());
    let time = rfc3339(epoch.unwrap_or(0) * 1_000_000);
    let (date, _) = time.split_once('T').unwrap_or((&time, ""));
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let source = format!("walrelay {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).date(date).source(source).manual("walrelay");
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    for (title, text) in sections(&after) {
        section(title, text, &mut page)?;
    }
    if command.get_version().is_some() {
        section("ENVIRONMENT", ENVIRONMENT, &mut page)?;
        section("FILES", FILES, &mut page)?;
    }
    Ok(page)
}

/// Blocks of the text below the options, with the titles that man pages give them.
fn sections(after: &str) -> impl Iterator<Item = (&'static str, &str)> {
    let blocks = after.split("\n\n").filter(|block| !block.trim().is_empty());
    blocks.map(|block| {
        let found =
            TITLES.iter().find_map(|(head, title)| Some((*title, block.strip_prefix(head)?)));
        found.unwrap_or(("NOTES", block))
    })
}

/// A section whose lines stay as they are, except in notes.
fn section(title: &str, text: &str, page: &mut Vec<u8>) -> std::io::Result<()> {
    let mut roff = Roff::new();
    let is_filled = title == "NOTES";
    roff.control("SH", [title]);
    if !is_filled {
        roff.control("nf", []);
    }
    for line in text.lines() {
        roff.text([roman(line)]);
    }
    if !is_filled {
        roff.control("fi", []);
    }
    roff.to_writer(page)
}
