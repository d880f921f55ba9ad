use super::*;
use crate::base::lsn::Lsn;
use crate::relay::testing::{LinkEnd, link, walsender};

const TIMEOUT: Duration = Duration::from_secs(8);
const SECOND: Duration = Duration::from_secs(1);

/// A lease of four seconds that begins now, and who answers its questions.
fn lease() -> (SessionLease, LinkEnd<Walsender, WalsenderAnswer>, Instant) {
    let (link, end) = link();
    let now = Instant::now();
    let mut lease = SessionLease::new(link, now);
    lease.begin(walsender(7), Some(TIMEOUT), now, now);
    (lease, end, now)
}

fn gone(pid: i32) -> WalsenderAnswer {
    WalsenderAnswer { pid, activity: Ok(Activity::Gone), confirmed: Lsn::ZERO }
}

#[test]
fn it_lasts_half_of_the_time_after_which_postgres_frees_the_slot() {
    let (mut lease, _end, began) = lease();
    lease.observe(began + SECOND, began + SECOND, None, true);
    assert!(!lease.has_expired(began + 4 * SECOND));
    assert!(lease.has_expired(began + 5 * SECOND));
    assert_eq!(lease.until(), began + 5 * SECOND);
}

/// Signs of the session at that time.
fn lives(lease: &mut SessionLease, at: Instant, delivered_at: Option<Instant>) {
    lease.observe(at, at, delivered_at, true);
}

#[test]
fn a_session_is_heard_from_when_it_was_opened() {
    let (mut lease, _end, began) = lease();
    lives(&mut lease, began + 4 * SECOND, None);
    assert_eq!(lease.until(), began + 16 * SECOND / 3);
    // What arrived in the session before counts for no other.
    lives(&mut lease, began + 5 * SECOND, Some(began + 5 * SECOND));
    lease.begin(walsender(8), Some(TIMEOUT), began + SECOND, began + SECOND);
    lives(&mut lease, began + 5 * SECOND, None);
    assert_eq!(lease.until(), began + 19 * SECOND / 3);
    // The preflight may last longer than START_REPLICATION.
    lease.begin(walsender(9), Some(TIMEOUT), began + 5 * SECOND, began + 8 * SECOND);
    lives(&mut lease, began + 9 * SECOND, None);
    assert_eq!(lease.until(), began + 31 * SECOND / 3);
}

#[test]
fn a_session_with_a_long_preflight_waits_for_its_first_update_and_sends_nothing() {
    let (mut lease, _end, began) = lease();
    let opened = began + 6 * SECOND;
    lease.begin(walsender(8), Some(TIMEOUT), began, opened);
    lives(&mut lease, opened, None);
    assert!(lease.has_expired(opened) && lease.send_until() < opened);
    assert!(!lease.is_over(opened) && !lease.is_over(began + 15 * SECOND / 2));
    // WHEN Postgres waits no longer THEN the relay does not either
    assert!(lease.is_over(began + 8 * SECOND));
    // WHEN the update arrives THEN the lease goes on, and counts as it always does
    lives(&mut lease, began + 7 * SECOND, Some(opened));
    assert_eq!(lease.until(), began + 11 * SECOND);
    assert!(lease.is_over(began + 11 * SECOND));
    // WHEN later ones do not arrive THEN it waits no longer than in any other session
    lives(&mut lease, began + 9 * SECOND, Some(opened));
    assert!(lease.is_over(began + 12 * SECOND));
}

#[test]
fn updates_at_a_third_of_the_timeout_keep_it() {
    let (mut lease, end, began) = lease();
    let (every, late) = (TIMEOUT / 3, TIMEOUT / 4);
    let mut delivered_at = None;
    let step = SECOND / 10;
    // The stream is not read: each answer comes at the next look, each acknowledgement much later.
    for steps in 1..600 {
        let now = began + steps * step;
        let updates = (now - began).saturating_sub(late).as_millis() / every.as_millis();
        if updates > 0 {
            delivered_at = Some(began + every * updates as u32);
        }
        lease.observe(now, began, delivered_at, false);
        assert!(!lease.has_expired(now), "after {:?}", now - began);
        if end.requests.try_recv().is_ok() {
            let activity = Ok(Activity::Busy("CPU".to_owned()));
            end.answers.send(WalsenderAnswer { pid: 7, activity, confirmed: Lsn::ZERO }).unwrap();
        }
    }
}

#[test]
fn it_is_shorter_by_what_its_clock_has_missed() {
    let (mut lease, end, began) = lease();
    lives(&mut lease, began + 3 * SECOND, Some(began + 3 * SECOND));
    // GIVEN a machine that was suspended twice for less than the lease
    lease.missed(began + 4 * SECOND, SECOND);
    lease.missed(began + 5 * SECOND, SECOND);
    assert_eq!(lease.until(), began + 5 * SECOND);
    // WHEN the signs of before are seen once more, and an answer comes to a question of before
    lease.observe(began + 9 * SECOND / 2, began + 3 * SECOND, Some(began + 3 * SECOND), true);
    assert!(end.requests.try_recv().is_ok());
    lease.missed(began + 9 * SECOND / 2 + SECOND / 10, SECOND / 2);
    let activity = Ok(Activity::Waiting);
    end.answers.send(WalsenderAnswer { pid: 7, activity, confirmed: Lsn::ZERO }).unwrap();
    lease.observe(began + 19 * SECOND / 4, began + 3 * SECOND, Some(began + 3 * SECOND), true);
    // THEN they do not prolong it beyond what is left
    assert_eq!(lease.until(), began + SECOND / 2 + 4 * SECOND / 3 + 4 * SECOND);
    // AND newer ones do
    lives(&mut lease, began + 6 * SECOND, Some(began + 6 * SECOND));
    assert_eq!(lease.until(), began + 10 * SECOND);
    // AND what was missed before them is over
    lease.missed(began + 7 * SECOND, SECOND);
    lease.observe(began + 7 * SECOND, began + 6 * SECOND, Some(began + 6 * SECOND), true);
    assert_eq!(lease.until(), began + 9 * SECOND);
    lives(&mut lease, began + 13 * SECOND / 2, None);
    assert_eq!(lease.until(), began + 19 * SECOND / 2);
    // AND a session whose opening began before is as much older
    lease.begin(walsender(8), Some(TIMEOUT), began + 4 * SECOND, began + 4 * SECOND);
    assert_eq!(lease.until(), began + 7 * SECOND);
}

#[test]
fn an_old_sign_does_not_shorten_it() {
    let (mut lease, _end, began) = lease();
    lives(&mut lease, began + 2 * SECOND, Some(began + 2 * SECOND));
    lease.observe(began + 3 * SECOND, began, Some(began), true);
    assert_eq!(lease.until(), began + 6 * SECOND);
}

#[test]
fn postgres_is_asked_before_it_expires_and_the_answer_counts_from_the_question() {
    let (mut lease, end, began) = lease();
    lease.observe(began + 2 * SECOND, began, None, true);
    lease.observe(began + SECOND / 2, began, None, false);
    assert!(end.requests.try_recv().is_err(), "asked too early");
    lease.observe(began + 3 * SECOND, began, None, true);
    assert_eq!(end.requests.try_recv().unwrap().pid, 7);
    let activity = Ok(Activity::Busy("CPU".to_owned()));
    end.answers.send(WalsenderAnswer { pid: 7, activity, confirmed: Lsn::ZERO }).unwrap();
    lease.observe(began + 4 * SECOND, began, Some(began + 3 * SECOND), true);
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
        lease.observe(began + asked_after, began, None, true);
        assert!(end.requests.try_recv().is_ok(), "nothing was asked");
        end.answers.send(WalsenderAnswer { pid, activity, confirmed: Lsn::ZERO }).unwrap();
    }
    lease.observe(began + 4 * SECOND, began, None, true);
    assert!(lease.has_expired(began + 4 * SECOND));
}

#[test]
fn a_walsender_that_has_ended_ends_the_session_and_not_the_lease() {
    let (mut lease, end, began) = lease();
    lease.observe(began + SECOND, began, None, false);
    assert!(end.requests.try_recv().is_ok());
    end.answers.send(gone(7)).unwrap();
    lease.observe(began + SECOND, began, None, false);
    assert!(lease.is_walsender_gone());
    assert!(!lease.has_expired(began + 3 * SECOND));
    assert!(lease.has_expired(began + 4 * SECOND));
    // A new session begins a new lease.
    lease.begin(walsender(8), None, began + 4 * SECOND, began + 4 * SECOND);
    assert!(!lease.is_walsender_gone());
    assert_eq!(lease.until(), began + 34 * SECOND);
    assert!(!lease.has_expired(began + 4 * SECOND));
}

#[test]
fn without_a_session_nobody_is_asked() {
    let (mut lease, end, began) = lease();
    lease.session_ended(began + SECOND);
    lease.observe(began + 3 * SECOND, began, None, true);
    assert!(end.requests.try_recv().is_err());
    assert!(lease.has_expired(began + 4 * SECOND));
    // Nothing is sent in the meantime.
    assert_eq!(lease.send_until(), began + SECOND);
    lease.begin(walsender(8), Some(TIMEOUT), began + 2 * SECOND, began + 2 * SECOND);
    assert_eq!(lease.send_until(), began + 6 * SECOND);
}

#[test]
fn one_question_is_asked_at_a_time_and_the_next_one_later() {
    let (mut lease, end, began) = lease();
    let mut asks_after = |millis| {
        lease.observe(began + Duration::from_millis(millis), began, None, true);
        end.requests.try_recv().is_ok()
    };
    assert_eq!([2_999, 3_000, 3_900].map(&mut asks_after), [false, true, false]);
    // WHEN the answer says nothing THEN it asks again, an eighth of the lease after it asked last
    let says_nothing =
        WalsenderAnswer { pid: 7, activity: Ok(Activity::Unasked), confirmed: Lsn::ZERO };
    end.answers.send(says_nothing.clone()).unwrap();
    assert_eq!([3_901, 4_000].map(&mut asks_after), [true, false]);
    end.answers.send(says_nothing).unwrap();
    assert_eq!([4_100, 4_400, 4_401].map(&mut asks_after), [false, false, true]);
}

#[test]
fn updates_are_undelivered_since_the_last_that_arrived() {
    let (mut lease, _end, began) = lease();
    assert_eq!(lease.undelivered_for(began + 2 * SECOND), 2 * SECOND);
    lives(&mut lease, began + 3 * SECOND, Some(began + SECOND));
    assert_eq!(lease.undelivered_for(began + 3 * SECOND), 2 * SECOND);
}
