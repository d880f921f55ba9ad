//! `walrelay config`: what holds, and what may be written.

use super::args::ConfigAction;
use crate::base::error::{Exit, Fault};
use crate::base::text::json_lines_shown;
use crate::config::{self, Request};

pub(crate) fn run(action: &ConfigAction, request: &Request) -> Result<Exit, Vec<Fault>> {
    let text = match action {
        ConfigAction::Show => json_lines_shown(&config::show(&config::load(request)?.effective)),
        ConfigAction::Schema => config::schema() + "\n",
    };
    super::print(&text).map_err(|fault| vec![fault])
}
