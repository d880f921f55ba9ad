use super::*;
use crate::base::lsn::Lsn;
use crate::relay::testing::{LinkEnd, link};
use crate::source::settings::PostgresHost;

const TIMEOUT: Duration = Duration::from_secs(8);
const SECOND: Duration = Duration::from_secs(1);

fn walsender(pid: i32) -> Walsender {
    Walsender { host: PostgresHost { name: "db".to_owned(), port: 5432, password: None }, pid }
}

/// A lease of four seconds that begins now, and who answers its questions.
fn lease() -> (SessionLease, LinkEnd<Walsender, WalsenderAnswer>, Instant) {
    let (link, end) = link();
    let now = Instant::now();
    let mut lease = SessionLease::new(link, now);
    lease.begins(walsender(7), Some(TIMEOUT), now);
    (lease, end, now)
}

fn gone(pid: i32) -> WalsenderAnswer {
    WalsenderAnswer { pid, activity: Ok(Activity::Gone), confirmed: Lsn::ZERO }
}

#[test]
fn it_lasts_half_of_the_time_after_which_postgres_frees_the_slot() {
    let (mut lease, _end, began) = lease();
    lease.observe(began + SECOND, began + SECOND, true);
    assert!(!lease.has_expired(began + 4 * SECOND));
    assert!(lease.has_expired(began + 5 * SECOND));
    assert_eq!(lease.until(), began + 5 * SECOND);
}

#[test]
fn an_old_sign_does_not_shorten_it() {
    let (mut lease, _end, began) = lease();
    lease.observe(began + 2 * SECOND, began + 2 * SECOND, true);
    lease.observe(began + 3 * SECOND, began, true);
    assert_eq!(lease.until(), began + 6 * SECOND);
}

#[test]
fn postgres_is_asked_before_it_expires_and_the_answer_counts_from_the_question() {
    let (mut lease, end, began) = lease();
    lease.observe(began + 2 * SECOND, began, true);
    lease.observe(began + SECOND / 2, began, false);
    assert!(end.requests.try_recv().is_err(), "asked too early");
    lease.observe(began + 3 * SECOND, began, true);
    assert_eq!(end.requests.try_recv().unwrap().pid, 7);
    let activity = Ok(Activity::Busy("CPU".to_owned()));
    end.answers.send(WalsenderAnswer { pid: 7, activity, confirmed: Lsn::ZERO }).unwrap();
    lease.observe(began + 4 * SECOND, began, true);
    assert_eq!(lease.until(), began + 7 * SECOND);
}

#[test]
fn an_answer_about_an_earlier_session_or_none_is_no_sign() {
    let (mut lease, end, began) = lease();
    for (asked_after, pid, activity) in [
        (3 * SECOND, 6, Ok(Activity::Waiting)),
        (7 * SECOND / 2, 7, Err("no connection".to_owned())),
        (4 * SECOND, 7, Ok(Activity::Unasked)),
    ] {
        lease.observe(began + asked_after, began, true);
        assert!(end.requests.try_recv().is_ok(), "nothing was asked");
        end.answers.send(WalsenderAnswer { pid, activity, confirmed: Lsn::ZERO }).unwrap();
    }
    lease.observe(began + 4 * SECOND, began, true);
    assert!(lease.has_expired(began + 4 * SECOND));
}

#[test]
fn a_walsender_that_has_ended_ends_the_session_and_not_the_lease() {
    let (mut lease, end, began) = lease();
    lease.observe(began + SECOND, began, false);
    assert!(end.requests.try_recv().is_ok());
    end.answers.send(gone(7)).unwrap();
    lease.observe(began + SECOND, began, false);
    assert!(lease.is_walsender_gone());
    assert!(!lease.has_expired(began + 3 * SECOND));
    assert!(lease.has_expired(began + 4 * SECOND));
    // A new session begins a new lease.
    lease.begins(walsender(8), None, began + 4 * SECOND);
    assert!(!lease.is_walsender_gone());
    assert_eq!(lease.until(), began + 34 * SECOND);
    assert!(!lease.has_expired(began + 4 * SECOND));
}

#[test]
fn without_a_session_nobody_is_asked() {
    let (mut lease, end, began) = lease();
    lease.session_ended(began + SECOND);
    lease.observe(began + 3 * SECOND, began, true);
    assert!(end.requests.try_recv().is_err());
    assert!(lease.has_expired(began + 4 * SECOND));
    // Nothing is sent in the meantime.
    assert_eq!(lease.sends_until(), began + SECOND);
    lease.begins(walsender(8), Some(TIMEOUT), began + 2 * SECOND);
    assert_eq!(lease.sends_until(), began + 6 * SECOND);
}
