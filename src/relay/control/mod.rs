//! What the loop asks of the control runtime: sessions, the catalog, a position confirmed over SQL,
//! and what the walsender does.
//!
//! Connecting needs name resolution, TLS, authentication and queries, none of which the data thread
//! may wait for. It sends a request over a channel, and looks for the answer when it comes by.

mod link;
mod session_opener;
mod sessions;
mod slot_history;
mod sql;
#[cfg(test)]
pub(super) mod testing;
mod walsender;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use self::link::{Link, LinkEnd};
pub use self::session_opener::{OpenedSession, SessionNews};
pub use self::sessions::SessionRequest;
pub use self::slot_history::{Mover, PeerProgress};
pub use self::sql::{CatalogLink, ConfirmedPosition};
pub use self::walsender::{Walsender, WalsenderAnswer};
use crate::doctor::fingerprint::KnownPublication;
use crate::source::catalog::Catalog;
use crate::source::settings::SourceSettings;

/// What other threads ask of the loop.
#[derive(Debug, Default)]
pub struct StopFlags {
    /// Settle, report, end.
    pub stop: Arc<AtomicBool>,
    /// Postgres refuses new connections because it shuts down.
    pub source_stopping: AtomicBool,
}

/// Asks for a session.
pub type SessionLink = Link<SessionRequest, SessionNews>;
/// Confirms the last position without a stream.
pub type ConfirmLink = Link<ConfirmedPosition, Result<(), String>>;
/// Asks what the walsender does.
pub type WalsenderLink = Link<Walsender, WalsenderAnswer>;

/// The ends of the data thread.
#[derive(Debug)]
pub struct ControlLinks {
    pub(super) sessions: SessionLink,
    pub(super) catalog: CatalogLink,
    pub(super) confirm: ConfirmLink,
    pub(super) walsender: WalsenderLink,
}

/// The ends of the control runtime.
#[derive(Debug)]
pub struct ControlEnds {
    sessions: LinkEnd<SessionRequest, SessionNews>,
    catalog: LinkEnd<u64, (u64, Catalog)>,
    confirm: LinkEnd<ConfirmedPosition, Result<(), String>>,
    walsender: LinkEnd<Walsender, WalsenderAnswer>,
}

/// Both ends of all links.
#[must_use]
pub fn links() -> (ControlLinks, ControlEnds) {
    let (sessions, sessions_end) = link::pair();
    let (catalog, catalog_end) = link::pair();
    let (confirm, confirm_end) = link::pair();
    let (walsender, walsender_end) = link::pair();
    let catalog = CatalogLink::new(catalog);
    let links = ControlLinks { sessions, catalog, confirm, walsender };
    let (sessions, catalog) = (sessions_end, catalog_end);
    let (confirm, walsender) = (confirm_end, walsender_end);
    (links, ControlEnds { sessions, catalog, confirm, walsender })
}

/// Answers requests until the loop is gone. Dropping the future between two requests loses nothing.
pub async fn serve(settings: &SourceSettings, known: &KnownPublication, ends: ControlEnds) {
    tokio::join!(
        sessions::serve(settings, known, ends.sessions),
        sql::serve_catalogs(settings, ends.catalog),
        sql::serve_confirms(settings, ends.confirm),
        walsender::serve(settings, ends.walsender),
    );
}
