//! Options that several commands have, each declared once.

use clap::{Args, ValueEnum};

/// How the result of a command is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// Text with units.
    #[default]
    Text,
    /// One JSON document.
    Json,
    /// One JSON object per line.
    Jsonl,
}

/// The format of a command that prints one document.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct OutputArgs {
    /// Output format: text, json (one document) or jsonl (one object per line) [default: text].
    #[arg(short, long, value_enum, value_name = "FORMAT", hide_possible_values = true)]
    output: Option<OutputFormat>,
    /// Short for --output json.
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

impl OutputArgs {
    pub(crate) fn format(self) -> OutputFormat {
        self.output.unwrap_or(if self.json { OutputFormat::Json } else { OutputFormat::Text })
    }

    /// The format of a list that the command prints instead, for a dry run.
    pub(crate) fn list_format(self) -> OutputFormat {
        ListOutputArgs { output: self.output, json: self.json }.format()
    }
}

/// The format of a command that prints a list, which may be longer than memory.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct ListOutputArgs {
    /// Output format: text, json (one array) or jsonl (one object per line) [default: text].
    #[arg(short, long, value_enum, value_name = "FORMAT", hide_possible_values = true)]
    output: Option<OutputFormat>,
    /// Short for --output jsonl.
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

impl ListOutputArgs {
    pub(crate) fn format(self) -> OutputFormat {
        self.output.unwrap_or(if self.json { OutputFormat::Jsonl } else { OutputFormat::Text })
    }
}

/// The confirmation of a command that destroys something.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct YesArg {
    /// Do not ask for confirmation; required without a terminal.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// The dry run of a command that changes something.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct DryRunArg {
    /// Show what would be done, and change nothing.
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}

/// The reason for an action, which is logged with it.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ReasonArg {
    /// Reason, for the audit log.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) reason: String,
}

/// The replication slot that a command acts on.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Configuration")]
pub(crate) struct SlotArg {
    /// Replication slot; short for --set source.slot=NAME.
    #[arg(long, value_name = "NAME")]
    pub(crate) slot: Option<String>,
}

/// The admin server that a command starts or asks.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Configuration")]
pub(crate) struct ListenArg {
    /// Address of the admin server; short for --set admin.listen=ADDRESS.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
}
