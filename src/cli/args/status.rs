//! The arguments of `walrelay status`.

use super::common::{ListenArg, OutputArgs};

const HELP: &str = "\
Without --url the command asks the relay of the configuration. With --url it needs no configuration.
It never connects to the database or the broker.

Exits 0 if every relay is ready, 1 if one is not ready or does not answer within 2 s.

Examples:
  walrelay status
  walrelay status --watch
  walrelay status --url relay-1:9464 --url relay-2:9464
  walrelay status --live                # health check for a container without a shell
  walrelay status --json | jq '.[] | {url, state, ready}'";

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct StatusArgs {
    /// Relay to ask, as in relay-1:9464 or http://relay-1:9464; repeatable [default: admin.listen].
    #[arg(long = "url", value_name = "URL")]
    pub(crate) urls: Vec<String>,
    /// Ask again each second, until Ctrl-C.
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// Ask only /livez: exits 0 if the answer is 200, else 1. Needs only `admin.listen` of the configuration.
    #[arg(long, conflicts_with_all = ["watch", "json", "output"])]
    pub(crate) live: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) listen: ListenArg,
}
