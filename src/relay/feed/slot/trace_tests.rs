use super::*;
use crate::relay::control::{Link, WalsenderAnswer};
use crate::source::settings::PostgresHost;
use crate::source::walsender::Activity;

fn walsender(pid: i32) -> Walsender {
    Walsender { host: PostgresHost { name: "db".to_owned(), port: 5432, password: None }, pid }
}

fn answer(pid: i32, confirmed: u64) -> WalsenderAnswer {
    let confirmed = Lsn::from_wire(confirmed);
    WalsenderAnswer { pid, activity: Ok(Activity::Waiting), confirmed }
}

#[test]
fn it_is_awaited_until_the_slot_of_this_walsender_shows_it() {
    let (link, mut end) = Link::pair();
    let mut check = TraceCheck::new(link);
    assert!(!check.is_awaited());
    check.connected(walsender(7));
    check.sent(Lsn::from_wire(103));
    // One question after the other, until the answer has it.
    for (pid, confirmed) in [(7, 100), (6, 103), (7, 0)] {
        assert!(check.is_awaited());
        assert!(check.is_awaited());
        assert_eq!(end.requests.try_recv().unwrap().pid, 7);
        assert!(end.requests.try_recv().is_err(), "asked twice");
        end.answers.send(answer(pid, confirmed)).unwrap();
    }
    assert!(check.is_awaited());
    end.answers.send(answer(7, 103)).unwrap();
    assert!(!check.is_awaited());
    assert!(!check.session_ended());
}

#[test]
fn the_end_of_a_session_leaves_it_open_whether_it_has_arrived() {
    let (link, end) = Link::pair();
    let mut check = TraceCheck::new(link);
    check.connected(walsender(7));
    check.sent(Lsn::from_wire(103));
    assert!(check.is_awaited());
    assert!(check.session_ended());
    assert!(!check.is_awaited());
    // An answer about the last session is none about the next.
    end.answers.send(answer(7, 103)).unwrap();
    check.connected(walsender(8));
    check.sent(Lsn::from_wire(102));
    assert!(check.is_awaited());
}
