//! What the loop needs from Postgres beside its stream: sessions, the catalog, a position confirmed
//! over SQL, and what the walsender is doing.
//!
//! All of it takes connections, with name resolution, TLS, authentication and queries, for which
//! the data thread may not wait. Tasks on the control runtime do it; the loop looks for their
//! answers once per pass.

mod link;
mod sessions;
mod slot_history;
mod sql;
mod walsender;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::runtime::Handle;

pub use self::link::Link;
#[cfg(test)]
pub(super) use self::link::LinkEnd;
pub use self::sessions::{OpenedSession, SessionNews, SessionRequest};
pub use self::slot_history::{Mover, PeerProgress, Seen, SystemTimeline};
pub use self::sql::ConfirmedPosition;
pub use self::walsender::{Walsender, WalsenderAnswer};
use super::stops::Stops;
use crate::doctor::fingerprint::KnownPublication;
use crate::source::catalog::Catalog;
use crate::source::settings::SourceSettings;
use crate::source::sightings::Sightings;

/// Longest time that an answer takes from the control runtime to the data thread.
const ANSWER_MARGIN: Duration = Duration::from_secs(1);

/// What other threads ask of the loop.
#[derive(Debug, Default)]
pub struct StopFlags {
    /// Asks the loop to settle what is in flight, report it and end.
    pub stop: Arc<AtomicBool>,
    /// Postgres refuses new connections because it shuts down.
    pub source_stopping: AtomicBool,
}

pub type SessionLink = Link<SessionRequest, SessionNews>;
pub type WalsenderLink = Link<Walsender, WalsenderAnswer>;
/// A link that brings one answer and takes no requests.
pub type CatalogLink = Link<(), Catalog>;

/// Starts tasks on the control runtime.
#[derive(Debug)]
pub struct Control {
    pub runtime: Handle,
    pub source: Arc<SourceSettings>,
    /// The publication as this process met it.
    pub known: Arc<KnownPublication>,
    pub sightings: Arc<Sightings>,
    pub(crate) stops: Arc<Stops>,
}

impl Control {
    /// Opens one session for each request.
    pub(super) fn sessions(&self) -> SessionLink {
        let (source, known) = (Arc::clone(&self.source), Arc::clone(&self.known));
        let sightings = Arc::clone(&self.sightings);
        Link::spawn(&self.runtime, |end| sessions::serve(source, known, sightings, end))
    }

    /// Looks at a walsender for each request.
    pub(super) fn walsender(&self) -> WalsenderLink {
        let source = Arc::clone(&self.source);
        Link::spawn(&self.runtime, |end| walsender::serve(source, end))
    }

    /// Reads the catalog as it is from now on, however long that takes.
    pub(super) fn read_catalog(&self) -> CatalogLink {
        let (source, server) = (Arc::clone(&self.source), self.sightings.server());
        Link::spawn(&self.runtime, |end| async move {
            let catalog = sql::read_catalog(&source, server.as_ref()).await;
            let _nobody_waits = end.answers.try_send(catalog).is_err();
        })
    }

    /// Confirms a position to the slot. Waits for it, a few seconds at most.
    pub(super) fn confirm(&self, position: ConfirmedPosition) -> Result<(), String> {
        let source = Arc::clone(&self.source);
        let link: Link<(), _> = Link::spawn(&self.runtime, |end| async move {
            let outcome = sql::confirm_in_time(&source, &position).await;
            let _nobody_waits = end.answers.try_send(outcome).is_err();
        });
        let answer = link.answer_within(sql::CONFIRM_WITHIN + ANSWER_MARGIN);
        answer.unwrap_or_else(|| Err("the process is ending".to_owned()))
    }
}
