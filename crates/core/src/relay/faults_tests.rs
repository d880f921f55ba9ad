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
