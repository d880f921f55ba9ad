use walrelay_core::source::walsender::Walsender;
use walrelay_postgres::server::{ServerError, ServerStart};
use walrelay_postgres::settings::PostgresHost;

use super::*;

fn host(name: &str) -> PostgresHost {
    PostgresHost { name: name.to_owned(), port: 5432, password: None }
}

fn refusal(name: &str, sqlstate: &str) -> ConnectError {
    let error = ServerError { sqlstate: sqlstate.to_owned(), ..ServerError::default() };
    ConnectError::new(host(name), ConnectCause::Server(Box::new(error)))
}

fn refusal_by_all(each: Vec<ConnectError>) -> ConnectError {
    ConnectError::new("", ConnectCause::All(each))
}

#[test]
fn only_the_server_of_the_stream_stops_the_stream() {
    let sightings = Sightings::default();
    let is_stop = |error: ConnectError| is_stop_of_stream(&sightings, &error);
    assert!(!is_stop(refusal("a", "57P03")), "without a stream");
    // GIVEN a stream of one of two servers
    let server = ServerStart::from("1");
    sightings.opened(Walsender { host: host("a"), server, pid: 1 });
    // THEN it stops when it says so, alone or in the list, whatever the other one says
    assert!(is_stop(refusal("a", "57P03")));
    assert!(is_stop(refusal_by_all(vec![refusal("b", "53300"), refusal("a", "57P03")])));
    // AND not when the other one starts, or when it refuses for another reason
    assert!(!is_stop(refusal_by_all(vec![refusal("a", "53300"), refusal("b", "57P03")])));
    assert!(!is_stop(refusal("b", "57P03")));
    assert!(!is_stop(refusal("a", "53300")));
}

#[test]
fn lag_is_the_age_of_the_oldest_unconfirmed_position() {
    let start = Instant::now();
    let at = |s| start + Duration::from_secs(s);
    let lsn = Lsn::from_wire;
    let mut clock = LagAge::default();
    assert_eq!(clock.observe(lsn(10), lsn(10), at(0)), Duration::ZERO);
    assert_eq!(clock.observe(lsn(20), lsn(10), at(1)), Duration::ZERO);
    assert_eq!(clock.observe(lsn(30), lsn(10), at(4)), Duration::from_secs(3));
    assert_eq!(clock.observe(lsn(30), lsn(20), at(5)), Duration::from_secs(1));
    assert_eq!(clock.observe(lsn(30), lsn(30), at(6)), Duration::ZERO);
}

#[test]
fn the_lag_clock_goes_on_where_a_failover_has_put_the_end_of_the_wal_back() {
    let start = Instant::now();
    let at = |second| start + Duration::from_secs(second);
    let lsn = Lsn::from_wire;
    let mut clock = LagAge::default();
    clock.observe(lsn(20), lsn(10), at(0));
    clock.observe(lsn(50), lsn(20), at(1));
    // WHEN the new primary ends before what was seen THEN what it has is as old as that
    assert_eq!(clock.observe(lsn(40), lsn(20), at(5)), Duration::from_secs(4));
    assert_eq!(clock.observe(lsn(40), lsn(40), at(6)), Duration::ZERO);
}

#[test]
fn the_lag_clock_is_bounded_and_keeps_its_oldest_witness() {
    let start = Instant::now();
    let mut clock = LagAge::default();
    for second in 0..100_000u64 {
        clock.observe(Lsn::from_wire(second + 1), Lsn::ZERO, start + Duration::from_secs(second));
    }
    assert!(clock.stood.len() <= LOOKS_MAX);
    let age = clock.observe(Lsn::from_wire(1), Lsn::ZERO, start + Duration::from_secs(100_000));
    assert!(age >= Duration::from_secs(99_000), "{age:?}");
}
