//! Replays and discards that were requested over HTTP: one at a time, each on a thread of its own.
//!
//! The last one is kept with its outcome until the next one begins. The end of the process stops a
//! job as `DELETE /api/dlq/job` does: what is in flight settles, the rest stays open.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::error::ApiError;
use crate::base::clock::{SteadyClock, steady_clock};
use crate::base::error::{Exit, Fault};
use crate::base::lock::locked;
use crate::base::runtime;
use crate::base::secret::Secret;
use crate::base::time::rfc3339;
use crate::dead_letter::destinations::Destinations;
use crate::dead_letter::reader::DeadLetterTopic;
use crate::dead_letter::replay::{self, ReplayJob, ReplayProgress};
use crate::dead_letter::writer::DeadLetterAddress;
use crate::find::EventFinder;
use crate::relay::stops::StandingStops;
use crate::sink::Broker;

/// How long the end of the process waits; what is in flight settles in less, or not at all.
const END_GRACE: Duration = Duration::from_secs(6);

/// Dead letters that a reading inside the relay may hold: 10 MB of them.
const LETTERS_MAX: usize = 100_000;

/// The dead-letter topic on which `/api` acts.
#[derive(Clone)]
pub(crate) struct DeadLetterAccess {
    pub(crate) broker: Arc<dyn Broker>,
    pub(crate) address: DeadLetterAddress,
    /// Where a replay may go.
    pub(crate) destinations: Destinations,
    /// The finder of events.
    pub(crate) finder: Option<EventFinder>,
    /// The stops that a request may acknowledge.
    pub(crate) stops: Option<Arc<StandingStops>>,
    /// Without a token every request is refused.
    pub(crate) token: Option<Secret>,
}

impl DeadLetterAccess {
    /// The dead-letter topic, read until `stop` is set.
    pub(super) fn topic<'a>(&'a self, stop: &'a AtomicBool) -> DeadLetterTopic<'a> {
        let topic = DeadLetterTopic::of_relay(&*self.broker, &self.address, stop);
        DeadLetterTopic { letters_max: LETTERS_MAX, ..topic }
    }

    pub(in crate::admin) fn has_token(&self) -> bool {
        self.token.as_ref().is_some_and(|token| !token.is_empty())
    }
}

pub(super) struct ReplayJobs {
    /// The job that runs, or ran last.
    last: Mutex<Option<Arc<HttpJob>>>,
    /// No job begins any more. Changed only while `last` is locked.
    has_ended: AtomicBool,
    new_clock: fn() -> SteadyClock,
}

pub(super) struct HttpJob {
    number: u64,
    job: ReplayJob,
    reason: String,
    clock: SteadyClock,
    begun_unix_us: i64,
    stop: AtomicBool,
    progress: Mutex<ReplayProgress>,
    /// When the job ended, and its fault.
    outcome: Mutex<Option<(i64, Option<Fault>)>>,
    ended: Condvar,
}

impl Default for ReplayJobs {
    fn default() -> ReplayJobs {
        ReplayJobs {
            last: Mutex::default(),
            has_ended: AtomicBool::new(false),
            new_clock: steady_clock,
        }
    }
}

impl ReplayJobs {
    /// Begins a job, unless one is under way. `write_audit_line` is called before.
    pub(super) fn begin(
        &self,
        access: DeadLetterAccess,
        job: ReplayJob,
        reason: String,
        write_audit_line: impl FnOnce(),
    ) -> Result<Arc<HttpJob>, ApiError> {
        let mut last = locked(&self.last);
        // The body of its request may arrive after the job under way was stopped.
        if self.has_ended.load(Ordering::Relaxed) {
            return Err(ApiError::stopping());
        }
        if let Some(job) = last.as_deref().filter(|job| locked(&job.outcome).is_none()) {
            let what = format!("job {}, a {}, is under way", job.number, job.job.action.name());
            let mend = "wait for it (GET /api/dlq/job), or stop it (DELETE /api/dlq/job)";
            return Err(ApiError::new("api.job-under-way", what, "", mend));
        }
        write_audit_line();
        let clock = (self.new_clock)();
        let job = Arc::new(HttpJob {
            number: last.as_deref().map_or(1, |job| job.number + 1),
            job,
            reason,
            begun_unix_us: clock().unix_us,
            clock,
            stop: AtomicBool::new(false),
            progress: Mutex::default(),
            outcome: Mutex::default(),
            ended: Condvar::new(),
        });
        let own = Arc::clone(&job);
        let spawned = runtime::spawn("dead-letter-job", move || own.run(&access));
        spawned.map_err(|fault| ApiError::internal(fault.what))?;
        *last = Some(Arc::clone(&job));
        Ok(job)
    }

    pub(super) fn last(&self) -> Result<Arc<HttpJob>, ApiError> {
        locked(&self.last).clone().ok_or_else(|| {
            let what = "this process has had no job";
            let mend = "begin one: POST /api/dlq/replay or /api/dlq/discard";
            ApiError::new("api.no-job", what, "", mend)
        })
    }

    /// Stops the job under way and waits until it has settled. None begins afterwards.
    pub(super) fn end(&self) {
        let last = {
            let last = locked(&self.last);
            self.has_ended.store(true, Ordering::Relaxed);
            last.clone()
        };
        let Some(job) = last else { return };
        job.stop();
        let outcome = locked(&job.outcome);
        let waited = job.ended.wait_timeout_while(outcome, END_GRACE, |end| end.is_none());
        if waited.is_ok_and(|(_, timeout)| timeout.timed_out()) {
            tracing::warn!(
                code = "job.abandoned",
                job = job.number,
                "the job has not settled; it is abandoned"
            );
        }
    }
}

impl HttpJob {
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn run(&self, access: &DeadLetterAccess) {
        let topic = access.topic(&self.stop);
        let replayed = catch_unwind(AssertUnwindSafe(|| {
            let mut observe =
                |progress: &ReplayProgress| *locked(&self.progress) = progress.clone();
            let report = replay::run(&topic, &self.job, &self.clock, &mut observe);
            observe(&report.progress);
            report.fault
        }));
        let fault = replayed.unwrap_or_else(|_| {
            let what = "the job panicked; what is not resolved is open";
            let mend = "report what the relay has logged";
            Some(Fault::new(Exit::Failed, "api.broken", what, "", mend))
        });
        *locked(&self.outcome) = Some(((self.clock)().unix_us, fault));
        self.ended.notify_all();
    }

    pub(super) fn json(&self) -> Value {
        let outcome = locked(&self.outcome);
        let fault = outcome.as_ref().and_then(|(_, fault)| fault.as_ref());
        let state = match (&*outcome, fault) {
            (None, _) if self.stop.load(Ordering::Relaxed) => "stopping",
            (None, _) => "running",
            (Some(_), None) => "done",
            (Some(_), Some(fault)) if fault.code == "dead-letter.interrupted" => "stopped",
            (Some(_), Some(_)) => "failed",
        };
        json!({
            "job": self.number,
            "action": self.job.action.name(),
            "filter": self.job.filter.to_string(),
            "by": self.job.by,
            "reason": self.reason,
            "state": state,
            "begun_at": rfc3339(self.begun_unix_us),
            "ended_at": outcome.as_ref().map(|(unix_us, _)| rfc3339(*unix_us)),
            "progress": &*locked(&self.progress),
            "error": fault.map(Fault::to_json),
        })
    }
}

#[cfg(test)]
#[path = "jobs_tests.rs"]
mod tests;
