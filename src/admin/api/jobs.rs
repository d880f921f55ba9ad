//! Replays and discards that were asked for over HTTP: each on a thread of its own, one at a time.
//!
//! The last one is remembered with its outcome until the next begins. The end of the process stops a
//! job as `DELETE /api/dlq/job` does: what is in flight settles, the rest stays as it was.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::error::{ApiError, fault_json};
use crate::base::clock::{SteadyClock, steady_clock};
use crate::base::error::{Exit, Fault};
use crate::base::runtime;
use crate::base::secret::Secret;
use crate::base::time::rfc3339;
use crate::dead_letter::filter::DeadLetterFilter;
use crate::dead_letter::rate::Rate;
use crate::dead_letter::reader::DeadLetterTopic;
use crate::dead_letter::replay::{self, ReplayAction, ReplayJob, ReplayProgress};
use crate::dead_letter::writer::DeadLetterAddress;
use crate::sink::Broker;

/// How long the end of the process waits; what is in flight settles in less, or not at all.
const END_GRACE: Duration = Duration::from_secs(6);

/// What `/api` acts on.
#[derive(Clone)]
pub(crate) struct Letters {
    /// Whose dead letters.
    pub(crate) broker: Arc<dyn Broker>,
    /// Where they are.
    pub(crate) address: DeadLetterAddress,
    /// Opens it; without one it is closed.
    pub(crate) token: Option<Secret>,
}

/// What a job is to do.
pub(super) struct JobOrder {
    pub(super) action: ReplayAction,
    pub(super) filter: DeadLetterFilter,
    pub(super) rate: Option<Rate>,
    pub(super) by: String,
    pub(super) reason: String,
}

pub(super) struct ReplayJobs {
    /// The job that runs or ran last.
    last: Mutex<Option<Arc<HttpJob>>>,
    /// Makes the clock of the next one.
    new_clock: fn() -> SteadyClock,
}

pub(super) struct HttpJob {
    number: u64,
    order: JobOrder,
    clock: SteadyClock,
    begun_unix_us: i64,
    stop: AtomicBool,
    progress: Mutex<ReplayProgress>,
    outcome: Mutex<Option<JobOutcome>>,
    ended: Condvar,
}

struct JobOutcome {
    unix_us: i64,
    fault: Option<Fault>,
}

impl Default for ReplayJobs {
    fn default() -> ReplayJobs {
        ReplayJobs { last: Mutex::default(), new_clock: steady_clock }
    }
}

impl ReplayJobs {
    /// Begins a job, unless one is under way.
    pub(super) fn begin(
        &self,
        letters: Letters,
        order: JobOrder,
    ) -> Result<Arc<HttpJob>, ApiError> {
        let mut last = locked(&self.last);
        if let Some(job) = last.as_deref().filter(|job| locked(&job.outcome).is_none()) {
            let what = format!("job {}, a {}, is under way", job.number, job.order.action.name());
            let mend = "wait for it (GET /api/dlq/job), or stop it (DELETE /api/dlq/job)";
            return Err(ApiError::new(StatusCode::CONFLICT, "api.job-under-way", what, "", mend));
        }
        let clock = (self.new_clock)();
        let job = Arc::new(HttpJob {
            number: last.as_deref().map_or(1, |job| job.number + 1),
            order,
            begun_unix_us: clock(),
            clock,
            stop: AtomicBool::new(false),
            progress: Mutex::default(),
            outcome: Mutex::default(),
            ended: Condvar::new(),
        });
        let own = Arc::clone(&job);
        let spawned = runtime::spawn("dead-letter-job", move || own.run(&letters));
        spawned.map_err(|fault| ApiError::internal(fault.what))?;
        *last = Some(Arc::clone(&job));
        Ok(job)
    }

    pub(super) fn last(&self) -> Result<Arc<HttpJob>, ApiError> {
        locked(&self.last).clone().ok_or_else(|| {
            let what = "this process has had no job";
            let mend = "begin one: POST /api/dlq/replay or /api/dlq/discard";
            ApiError::new(StatusCode::NOT_FOUND, "api.no-job", what, "", mend)
        })
    }

    /// Stops the job under way and waits until it has settled.
    pub(super) fn end(&self) {
        let Some(job) = locked(&self.last).clone() else { return };
        job.stop();
        let outcome = locked(&job.outcome);
        let waited = job.ended.wait_timeout_while(outcome, END_GRACE, |end| end.is_none());
        if waited.is_ok_and(|(_, timeout)| timeout.timed_out()) {
            tracing::warn!(job = job.number, "the job has not settled; it is abandoned");
        }
    }
}

impl HttpJob {
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn run(&self, letters: &Letters) {
        let fault = catch_unwind(AssertUnwindSafe(|| self.replay(letters))).unwrap_or_else(|_| {
            let what = "the job panicked; what is not resolved is open";
            let mend = "report what the relay has logged";
            Some(Fault::new(Exit::Failed, "api.broken", what, "", mend))
        });
        *locked(&self.outcome) = Some(JobOutcome { unix_us: (self.clock)(), fault });
        self.ended.notify_all();
    }

    fn replay(&self, letters: &Letters) -> Option<Fault> {
        let Letters { broker, address, .. } = letters;
        let topic = DeadLetterTopic { broker: &**broker, address, stop: &self.stop };
        let JobOrder { action, filter, rate, by, .. } = &self.order;
        let job = ReplayJob { action: *action, filter, rate: *rate, by };
        let mut observe = |progress: &ReplayProgress| *locked(&self.progress) = progress.clone();
        let report = replay::run(&topic, &job, &self.clock, &mut observe);
        observe(&report.progress);
        report.fault
    }

    pub(super) fn json(&self) -> Value {
        let order = &self.order;
        let outcome = locked(&self.outcome);
        let fault = outcome.as_ref().and_then(|end| end.fault.as_ref());
        let state = match (&*outcome, fault) {
            (None, _) if self.stop.load(Ordering::Relaxed) => "stopping",
            (None, _) => "running",
            (Some(_), None) => "done",
            (Some(_), Some(fault)) if fault.code == "dead-letter.interrupted" => "stopped",
            (Some(_), Some(_)) => "failed",
        };
        json!({
            "job": self.number,
            "action": order.action.name(),
            "filter": order.filter.to_string(),
            "by": order.by,
            "reason": order.reason,
            "state": state,
            "begun_at": rfc3339(self.begun_unix_us),
            "ended_at": outcome.as_ref().map(|end| rfc3339(end.unix_us)),
            "progress": &*locked(&self.progress),
            "error": fault.map(fault_json),
        })
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "jobs_tests.rs"]
mod tests;
