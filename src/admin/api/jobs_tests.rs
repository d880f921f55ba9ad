use std::time::Instant;

use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use walrelay_core::base::clock::Moment;

use super::*;
use crate::admin::tests::letters_of;
use crate::dead_letter::filter::DeadLetterFilter;
use crate::dead_letter::replay::ReplayAction;
use crate::sink::testing::MemoryBroker;

fn stopped_clock() -> SteadyClock {
    let instant = Instant::now();
    Box::new(move || Moment { instant, unix_us: 86_400_000_000 })
}

#[test]
fn a_job_goes_by_its_own_clock_and_not_by_the_one_of_the_system() {
    // GIVEN a clock that stands
    let jobs = ReplayJobs { new_clock: stopped_clock, ..ReplayJobs::default() };
    let access = letters_of(&MemoryBroker::default(), None);
    let job = ReplayJob::new(ReplayAction::Discard, DeadLetterFilter::default(), "me");
    // WHEN a job has run
    let job = jobs.begin(access, job, String::new(), || {}).unwrap();
    jobs.end();
    // THEN it knows of no other time
    let told = job.json();
    assert_eq!(told["begun_at"], "1970-01-02T00:00:00.000000Z");
    assert_eq!(told["ended_at"], "1970-01-02T00:00:00.000000Z", "{told}");
}

#[test]
fn a_request_whose_body_comes_while_the_relay_stops_begins_no_job() {
    let jobs = ReplayJobs::default();
    let access = letters_of(&MemoryBroker::default(), None);
    let job = ReplayJob::new(ReplayAction::Replay, DeadLetterFilter::default(), "me");
    // GIVEN a relay that stops, and no job to wait for
    jobs.end();
    // WHEN one is asked for THEN it is refused, before it is in the audit log
    let refused = jobs.begin(access, job, String::new(), || panic!("written")).err().unwrap();
    assert_eq!(refused.into_response().status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(jobs.last().is_err());
}
