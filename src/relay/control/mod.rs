//! Requests of the loop to Postgres beside its stream: sessions, the catalog, a position confirmed
//! over SQL, and what the walsender is doing.
//!
//! All of it takes connections, with name resolution, TLS, authentication and queries, for which
//! the data thread may not wait. Tasks on the control runtime do it; the loop looks for their
//! answers once per pass.

mod link;
mod sessions;
mod sql;
mod walsender;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

pub use walrelay_core::relay::control::{
    ConfirmedPosition, OpenedSession, SessionNews, SessionRequest, StopFlags, SystemTimeline,
    Walsender, WalsenderAnswer,
};
use walrelay_core::relay::ports::{CatalogLink, Database, SessionLink, WalsenderLink};

use self::link::TaskLink;
use crate::doctor::fingerprint::KnownPublication;
use crate::source::settings::SourceSettings;
use crate::source::sightings::Sightings;

/// Longest time that an answer takes from the control runtime to the data thread.
const ANSWER_MARGIN: Duration = Duration::from_secs(1);

/// Starts tasks on the control runtime.
#[derive(Debug)]
pub struct Control {
    pub runtime: Handle,
    pub source: Arc<SourceSettings>,
    /// The publication as this process met it.
    pub known: Arc<KnownPublication>,
    pub sightings: Arc<Sightings>,
}

impl Database for Control {
    fn sessions(&self) -> SessionLink {
        let (source, known) = (Arc::clone(&self.source), Arc::clone(&self.known));
        let sightings = Arc::clone(&self.sightings);
        Box::new(TaskLink::spawn(&self.runtime, |end| {
            sessions::serve(source, known, sightings, end)
        }))
    }

    fn walsender(&self) -> WalsenderLink {
        let source = Arc::clone(&self.source);
        Box::new(TaskLink::spawn(&self.runtime, |end| walsender::serve(source, end)))
    }

    fn read_catalog(&self) -> CatalogLink {
        let (source, walsender) = (Arc::clone(&self.source), self.sightings.walsender());
        Box::new(TaskLink::spawn(&self.runtime, |end| async move {
            let catalog = sql::read_catalog(&source, walsender.as_ref()).await;
            let _nobody_waits = end.answers.try_send(catalog).is_err();
        }))
    }

    fn confirm(&self, position: ConfirmedPosition) -> Result<(), String> {
        let (source, walsender) = (Arc::clone(&self.source), self.sightings.walsender());
        let link: TaskLink<(), _> = TaskLink::spawn(&self.runtime, |end| async move {
            let outcome = sql::confirm_in_time(&source, walsender.as_ref(), &position).await;
            let _nobody_waits = end.answers.try_send(outcome).is_err();
        });
        let answer = link.answer_within(sql::CONFIRM_WITHIN + ANSWER_MARGIN);
        answer.unwrap_or_else(|| Err("the process is ending".to_owned()))
    }
}
