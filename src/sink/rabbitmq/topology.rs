//! What must be there before the first event, and its making.

use super::connection::Connection;
use super::settings::RabbitSettings;
use crate::error::Fault;
use crate::sink::{Inspection, Wanted};

/// Looks at what is wanted over an open connection.
pub(super) async fn look(
    _settings: &RabbitSettings,
    _wanted: &Wanted,
    _connection: &mut Connection,
) -> Inspection {
    Inspection::default()
}

/// The same over a connection of its own, for `check`.
pub(super) fn inspect(_settings: &RabbitSettings, _wanted: &Wanted) -> Inspection {
    Inspection::default()
}

/// Makes what is missing, for `init`.
pub(super) fn prepare(
    _settings: &RabbitSettings,
    _wanted: &Wanted,
) -> Result<Vec<String>, Vec<Fault>> {
    Ok(Vec::new())
}
