use super::*;
use crate::relay::control::WalsenderAnswer;
use crate::relay::testing::{link, walsender};

fn answer(pid: i32, activity: Result<Activity, String>, confirmed: u64) -> WalsenderAnswer {
    WalsenderAnswer { pid, activity, confirmed: Lsn::from_wire(confirmed) }
}

#[test]
fn it_is_awaited_until_the_slot_of_this_walsender_shows_it() {
    let (link, end) = link();
    let mut now = Instant::now();
    let mut check = TraceCheck::new(link, now);
    check.connected(walsender(7), now);
    assert!(!check.is_awaited(now));
    check.sent(Lsn::from_wire(103), now);
    // One question after the other, until the answer has it.
    let refused = || Err("no connection".to_owned());
    for (pid, activity, confirmed, pause) in [
        (7, Ok(Activity::Waiting), 100, ASK_AGAIN_AFTER),
        (6, Ok(Activity::Waiting), 103, ASK_AGAIN_AFTER),
        (7, Ok(Activity::Unasked), 0, RETRY_AFTER),
        (7, refused(), 0, RETRY_AFTER),
    ] {
        assert!(check.is_awaited(now));
        assert!(check.is_awaited(now));
        assert_eq!(end.requests.try_recv().unwrap().pid, 7);
        assert!(end.requests.try_recv().is_err(), "asked twice");
        end.answers.send(answer(pid, activity, confirmed)).unwrap();
        assert!(check.is_awaited(now));
        assert!(end.requests.try_recv().is_err(), "asked at once");
        now += pause;
    }
    assert!(check.is_awaited(now));
    end.answers.send(answer(7, Ok(Activity::Busy("CPU".to_owned())), 103)).unwrap();
    assert!(!check.is_awaited(now));
    assert!(!check.session_ended());
}

#[test]
fn a_walsender_that_has_ended_is_known() {
    let (link, end) = link();
    let now = Instant::now();
    let mut check = TraceCheck::new(link, now);
    check.connected(walsender(7), now);
    check.sent(Lsn::from_wire(103), now);
    for (pid, is_gone) in [(6, false), (7, true)] {
        assert!(check.is_awaited(now));
        end.answers.send(answer(pid, Ok(Activity::Gone), 0)).unwrap();
        assert!(check.is_awaited(now));
        assert_eq!(check.is_walsender_gone(), is_gone);
    }
    check.connected(walsender(8), now);
    assert!(!check.is_walsender_gone() && check.is_awaited(now));
    check.give_up();
    assert!(!check.is_awaited(now));
}

#[test]
fn it_is_not_awaited_for_ever() {
    let (link, _end) = link();
    let now = Instant::now();
    let mut check = TraceCheck::new(link, now);
    check.connected(walsender(7), now);
    check.sent(Lsn::from_wire(103), now);
    assert!(check.is_awaited(now + KNOWN_WITHIN));
    assert!(!check.is_awaited(now + KNOWN_WITHIN + RETRY_AFTER));
    // It is not left again in the next session.
    assert!(!check.session_ended());
}

#[test]
fn where_none_fits_the_session_must_have_lasted_until_peers_have_noticed() {
    let (link, end) = link();
    let began = Instant::now();
    let mut check = TraceCheck::new(link, began);
    check.connected(walsender(7), began);
    assert!(!check.is_awaited(began) && !check.has_no_position());
    // GIVEN a slot without a free position THEN it waits, and asks Postgres for nothing
    assert!(check.is_unnoticed(began) && check.has_no_position());
    assert!(check.is_awaited(began + NOTICED_AFTER));
    assert!(end.requests.try_recv().is_err());
    let late = began + NOTICED_AFTER + Duration::from_millis(1);
    assert!(!check.is_awaited(late) && !check.is_unnoticed(late));
    // WHEN the session ends before THEN the next one begins to wait anew
    assert!(check.is_unnoticed(began));
    assert!(!check.session_ended());
    check.connected(walsender(8), late);
    assert!(!check.is_awaited(late));
    assert!(check.is_unnoticed(late + NOTICED_AFTER));
}
