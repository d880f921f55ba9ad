use clap::Parser as _;

use super::*;
use crate::cli::args::{Args, Command};

#[test]
fn without_an_id_and_a_key_the_help_names_both() {
    let Command::Find(args) = Args::try_parse_from(["walrelay", "find"]).unwrap().command else {
        panic!("no find");
    };
    let fault = requests(&args).unwrap_err().remove(0);
    assert_eq!((fault.code, fault.exit), ("find.bad-request", Exit::Usage));
    assert_eq!(fault.mend, "walrelay find ID, or --key KEY");
}

#[test]
fn nothing_that_is_found_is_said_with_what_was_searched() {
    let text = FindText { id: Some("e\u{1b}1".to_owned()), ..FindText::default() };
    let request = FindRequest::parse(&text, "1s", 0).unwrap();
    let report = FindReport {
        searched: vec!["public.outbox: 0 rows".to_owned()],
        not_searched: vec!["topic t: the partition is not known".to_owned()],
        ..FindReport::default()
    };
    assert_eq!(
        to_text(&request, &report),
        "no event with id e\\u{1b}1 was found\n\
         a transaction that was rolled back, or is still open, leaves nothing to be found\n\
         searched:\n  public.outbox: 0 rows\nnot searched:\n  topic t: the partition is not known\n"
    );
}

#[test]
fn a_search_that_may_look_nowhere_begins_with_what_it_may_not() {
    let text = FindText { id: Some("e1".to_owned()), ..FindText::default() };
    let request = FindRequest::parse(&text, "1s", 0).unwrap();
    let report = FindReport {
        searched: vec!["dead letters in dlq: 1 record".to_owned()],
        not_searched: vec!["rows of public.outbox: GRANT SELECT".to_owned()],
        is_unsearched: true,
        ..FindReport::default()
    };
    assert_eq!(
        to_text(&request, &report),
        "an event with id e1 may exist: neither rows nor topics could be searched\n\
         not searched:\n  rows of public.outbox: GRANT SELECT\n\
         searched:\n  dead letters in dlq: 1 record\n"
    );
}

#[test]
fn an_event_is_a_block_of_lines() {
    let text = FindText { id: Some("e1".to_owned()), ..FindText::default() };
    let request = FindRequest::parse(&text, "1s", 0).unwrap();
    let event =
        FoundEvent { id: "e1".to_owned(), key: Some("k".to_owned()), ..FoundEvent::default() };
    let report = FindReport { events: vec![event], ..FindReport::default() };
    assert_eq!(
        to_text(&request, &report),
        "event e1, key k: unknown\n  row: none was found\n  \
         state: whether it was published is not known\n\n"
    );
}
