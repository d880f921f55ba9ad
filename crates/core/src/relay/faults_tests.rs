use std::io;

use super::*;
use crate::source::server::ServerError;

#[test]
fn an_event_is_refused_after_as_many_attempts_as_were_made() {
    let failure = Failure {
        disposition: Disposition::Halt,
        known: true,
        key: None,
        class: "kafka.invalid-record".to_owned(),
        subject: "event 7".to_owned(),
        reason: "the broker refuses it".to_owned(),
        mend: "change it".to_owned(),
    };
    let what = |attempts| refused(&failure, Lsn::from_wire(80), attempts).what;
    assert_eq!(
        what(1),
        "an event could not be published: the broker refuses it (kafka.invalid-record)"
    );
    assert!(what(2).contains("published after 2 attempts: "));
}

#[test]
fn the_range_in_doubt_of_a_postgres_that_has_gone_back_begins_at_the_slot_or_where_the_histories_part()
 {
    let source = SourceSettings::default();
    let [slot, found, seen] = [0x10, 0x20, 0x30].map(Lsn::from_wire);
    let doubt = |fault: &Fault| fault.doubt.as_deref().map(|doubt| (doubt.from, doubt.to));
    // GIVEN rows that were written after the restore WHEN the end of the WAL is farther than the slot
    let fault = went_back(&source, seen, found, slot);
    assert_eq!(doubt(&fault), Some((slot, seen)));
    assert!(fault.mend.contains("events between 0/10 and 0/30"), "{fault}");
    // GIVEN a slot that was confirmed farther than the WAL goes
    assert_eq!(doubt(&went_back(&source, seen, slot, found)), Some((slot, seen)));
    // GIVEN other transactions WHEN none is known to be the same THEN the range begins at the slot
    for (same_until, from) in [(Lsn::ZERO, slot), (found, found)] {
        let other = OtherHistory { same_until, known: None, sent: None };
        let fault = other_history(&source, &other, slot, seen);
        assert_eq!(doubt(&fault), Some((from, seen)));
        assert!(fault.mend.contains(&format!("events between {from} and 0/30")), "{fault}");
        assert!(fault.what.contains(&format!("up to {from} nothing is known")), "{fault}");
    }
}

#[test]
fn a_stream_that_has_broken_is_a_fault_if_a_new_connection_would_end_in_the_same_way() {
    let fault = |error: &StreamError| of_stream(error, &SourceSettings::default());
    let code = |error: &StreamError| fault(error).map(|fault| fault.code);
    assert_eq!(code(&StreamError::Ended), None);
    assert_eq!(code(&StreamError::Io(io::ErrorKind::BrokenPipe.into())), None);
    assert!(code(&StreamError::Oversized(1 << 31)).is_some());
    let told = |sqlstate: &str, routine: &str| {
        let (sqlstate, routine) = (sqlstate.to_owned(), routine.to_owned());
        code(&StreamError::Server(Box::new(ServerError {
            sqlstate,
            routine,
            ..ServerError::default()
        })))
    };
    assert_eq!(told("42501", ""), Some("source.stream-refused"));
    assert_eq!(told("42704", "get_publication_oid"), Some("publication.missing"));
    // It can never send a row.
    let row = ServerError { sqlstate: "22P05".to_owned(), ..ServerError::default() };
    let mend = fault(&StreamError::Server(Box::new(row))).unwrap().mend;
    assert!(mend.contains("delete outbox rows\nmake a new slot: "), "{mend}");
    // The server stops, or does not say why.
    assert_eq!([told("57P01", ""), told("", "")], [None, None]);
}
