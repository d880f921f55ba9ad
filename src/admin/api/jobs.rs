//! Replays and discards that were asked for over HTTP: each on a thread of its own, one at a time.
//!
//! The last one is remembered with its outcome until the next begins. The end of the process is a
//! stop as by `DELETE /api/dlq/job`: what is in flight settles, the rest stays as it was.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::super::Letters;
use super::refusal::{Refusal, fault_json};
use crate::base::error::{Exit, Fault};
use crate::base::time::rfc3339;
use crate::dead_letter::clock::{self, Clock};
use crate::dead_letter::filter::DeadLetterFilter;
use crate::dead_letter::rate::Rate;
use crate::dead_letter::reader::DeadLetterTopic;
use crate::dead_letter::replay::{self, Action, Tally};

/// How long the end of the process waits; what is in flight settles in less, or not at all.
const END_GRACE: Duration = Duration::from_secs(6);

/// What is to be done.
pub(super) struct Order {
    pub(super) action: Action,
    pub(super) filter: DeadLetterFilter,
    pub(super) rate: Option<Rate>,
    pub(super) by: String,
    pub(super) reason: String,
}

/// The job that runs or ran last.
pub(super) struct Jobs {
    last: Mutex<Option<Arc<Job>>>,
    /// Makes the clock of the next one.
    clocks: fn() -> Clock,
}

pub(super) struct Job {
    number: u64,
    order: Order,
    clock: Clock,
    begun_unix_us: i64,
    stop: AtomicBool,
    tally: Mutex<Tally>,
    outcome: Mutex<Option<Outcome>>,
    ended: Condvar,
}

struct Outcome {
    unix_us: i64,
    fault: Option<Fault>,
}

impl Default for Jobs {
    fn default() -> Jobs {
        Jobs { last: Mutex::default(), clocks: clock::even }
    }
}

impl Jobs {
    /// Begins a job, unless one is under way.
    pub(super) fn begin(&self, letters: Letters, order: Order) -> Result<Arc<Job>, Refusal> {
        let mut current = locked(&self.last);
        let number = match current.as_deref() {
            Some(job) if job.is_under_way() => return Err(under_way(job)),
            Some(job) => job.number + 1,
            None => 1,
        };
        let clock = (self.clocks)();
        let job = Arc::new(Job {
            number,
            order,
            begun_unix_us: clock(),
            clock,
            stop: AtomicBool::new(false),
            tally: Mutex::default(),
            outcome: Mutex::default(),
            ended: Condvar::new(),
        });
        let own = Arc::clone(&job);
        let thread = std::thread::Builder::new().name("dead-letter-job".to_owned());
        let spawned = thread.spawn(move || own.run(&letters));
        if let Err(error) = spawned {
            return Err(Refusal::broken(format!("the system refused a thread: {error}")));
        }
        *current = Some(Arc::clone(&job));
        Ok(job)
    }

    /// The job that runs or ran last.
    pub(super) fn last(&self) -> Result<Arc<Job>, Refusal> {
        locked(&self.last).clone().ok_or_else(|| {
            Refusal::new(
                StatusCode::NOT_FOUND,
                "api.no-job",
                "this process has had no job",
                "",
                "begin one: POST /api/dlq/replay or /api/dlq/discard",
            )
        })
    }

    /// Stops what is under way and waits until it has settled.
    pub(super) fn end(&self) {
        let Some(job) = locked(&self.last).clone() else { return };
        job.stop();
        let outcome = locked(&job.outcome);
        let waited = job.ended.wait_timeout_while(outcome, END_GRACE, |end| end.is_none());
        if waited.is_ok_and(|(_, timeout)| timeout.timed_out()) {
            tracing::warn!(job = job.number, "the job has not settled; it is left");
        }
    }
}

impl Job {
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn is_under_way(&self) -> bool {
        locked(&self.outcome).is_none()
    }

    fn run(&self, letters: &Letters) {
        // Ends the job however this ends.
        let mut ending = Ending { job: self, fault: Some(panicked()) };
        let Letters { broker, address, .. } = letters;
        let archive = DeadLetterTopic { broker: &**broker, address, stop: &self.stop };
        let Order { action, filter, rate, by, .. } = &self.order;
        let job = replay::Job { action: *action, filter, rate: *rate, by };
        let mut observe = |tally: &Tally| *locked(&self.tally) = tally.clone();
        let report = replay::run(&archive, &job, &self.clock, &mut observe);
        *locked(&self.tally) = report.tally;
        ending.fault = report.fault;
    }

    /// Everything there is to know.
    pub(super) fn json(&self) -> Value {
        let order = &self.order;
        let outcome = locked(&self.outcome);
        let stopping = self.stop.load(Ordering::Relaxed);
        let state = match &*outcome {
            None if stopping => "stopping",
            None => "running",
            Some(Outcome { fault: None, .. }) => "done",
            Some(Outcome { fault: Some(fault), .. }) if fault.code == "dead-letter.interrupted" => {
                "stopped"
            }
            Some(Outcome { fault: Some(_), .. }) => "failed",
        };
        let fault = outcome.as_ref().and_then(|end| end.fault.as_ref());
        json!({
            "job": self.number,
            "action": order.action.name(),
            "filter": order.filter.to_string(),
            "by": order.by,
            "reason": order.reason,
            "state": state,
            "begun_at": rfc3339(self.begun_unix_us),
            "ended_at": outcome.as_ref().map(|end| rfc3339(end.unix_us)),
            "progress": &*locked(&self.tally),
            "error": fault.map(fault_json),
        })
    }
}

struct Ending<'a> {
    job: &'a Job,
    fault: Option<Fault>,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let outcome = Outcome { unix_us: (self.job.clock)(), fault: self.fault.take() };
        *locked(&self.job.outcome) = Some(outcome);
        self.job.ended.notify_all();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn under_way(job: &Job) -> Refusal {
    let what = format!("job {}, a {}, is under way", job.number, job.order.action.name());
    let mend = "wait for it (GET /api/dlq/job), or stop it (DELETE /api/dlq/job)";
    Refusal::new(StatusCode::CONFLICT, "api.job-under-way", what, "", mend)
}

fn panicked() -> Fault {
    let what = "the job panicked; what is not resolved is open";
    Fault::new(Exit::Failed, "api.broken", what, "", "report what the relay has logged")
}

#[cfg(test)]
#[path = "jobs_tests.rs"]
mod tests;
