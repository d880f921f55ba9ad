use super::*;

fn lsn(value: u64) -> Lsn {
    Lsn::from_wire(value)
}

#[test]
fn an_idle_keepalive_counts_only_when_nothing_is_unconfirmed() {
    let mut progress = Progress::default();
    progress.on_settled(lsn(50));
    progress.on_keepalive(lsn(100));
    assert_eq!(progress.reportable(false), lsn(50));
    assert_eq!(progress.reportable(true), lsn(100));
}

#[test]
fn a_keepalive_of_an_earlier_connection_promises_nothing() {
    let mut progress = Progress::default();
    progress.on_keepalive(lsn(100));
    progress.on_connected();
    assert_eq!(progress.reportable(true), Lsn::ZERO);
}

#[test]
fn what_is_reported_never_runs_ahead_of_what_was_seen() {
    let mut progress = Progress::default();
    progress.on_wal(lsn(70));
    progress.on_settled(lsn(90));
    assert_eq!(progress.reportable(true), lsn(70));
}

#[test]
fn what_is_reported_never_goes_back() {
    let mut progress = Progress::default();
    progress.on_keepalive(lsn(100));
    progress.on_reported(progress.reportable(true));
    progress.on_keepalive(lsn(40));
    assert_eq!(progress.reportable(true), lsn(100));
    assert_eq!(progress.reportable(false), lsn(100));
}
