//! The arguments of `walrelay status`.

const HELP: &str = "\
Exits 0 when every relay is ready, 1 when one is not, or does not answer within 2 s. Without --url it
asks the relay of the configuration; with it, it needs no configuration, and never a database or broker.

Examples:
  walrelay status
  walrelay status --watch
  walrelay status --url relay-1:9464 --url relay-2:9464
  walrelay status --live                # a health check where there is no shell
  walrelay status --json | jq '.[] | {url, state, ready}'";

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct StatusArgs {
    /// Relay to ask, as in relay-1:9464 or http://relay-1:9464; repeatable [default: admin.listen].
    #[arg(long = "url", value_name = "URL")]
    pub(crate) urls: Vec<String>,
    /// Ask again each second, until Ctrl-C.
    #[arg(long)]
    pub(crate) watch: bool,
    /// Ask /livez alone: exits 0 if it says 200, else 1. Of the configuration it needs `admin.listen`.
    #[arg(long, conflicts_with_all = ["watch", "json"])]
    pub(crate) live: bool,
    /// Print JSON: an array with the /status of each relay; with --watch one line each second.
    #[arg(long)]
    pub(crate) json: bool,
}
