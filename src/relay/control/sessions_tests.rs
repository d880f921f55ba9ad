use super::*;
use crate::base::tls::{TlsCause, TlsFailure};
use crate::source::settings::LoginFiles;

#[test]
fn only_a_session_that_broke_soon_and_by_itself_is_waited_for() {
    let mut backoff = random::backoff(Duration::from_millis(100), Duration::from_secs(5));
    let soon = Some(Duration::from_secs(1));
    assert_eq!(pause(None, false, &mut backoff), None);
    assert!(pause(soon, false, &mut backoff).is_some());
    // WHEN the relay ends one after the other itself THEN that is no reason to wait
    for _ in 0..10 {
        assert_eq!(pause(soon, true, &mut backoff), Some(Duration::ZERO));
    }
    let waits = pause(Some(LET_GO_GAP / 5), true, &mut backoff);
    assert_eq!(waits, Some(LET_GO_GAP * 4 / 5), "in circles all the same");
    assert_eq!(pause(Some(STEADY_AFTER * 2), false, &mut backoff), None);
}

#[test]
fn a_column_that_events_can_do_without_is_a_warning_and_other_faults_stay() {
    let fault = |column: &str| {
        let what = format!("public.outbox has no column {column}; it has id");
        Fault::new(Exit::Source, "table.column-missing", what, "source.outbox", "add it")
    };
    // GIVEN a table without a column that is needed, and without one that is not
    let (needed, optional) = (Finding::fail(fault("payload")), fault("trace"));
    let mut findings = vec![needed.clone(), Finding::fail(optional.clone())];
    // WHEN the relay runs already
    pass_over(&mut findings, &[optional]);
    // THEN only the first ends it
    let text = "events are published without a column that is configured: public.outbox has no column trace; \
                it has id (docs/postgres.md, \"Renaming a column\")";
    assert_eq!(findings, [needed, Finding::warn("outbox.column-gone", text)]);
}

#[test]
fn what_was_accepted_before_is_waited_for_while_its_files_are_replaced() {
    let error = |cause| ConnectError::new("db:5432", cause);
    let of_tls = |cause| error(ConnectCause::Tls(TlsFailure { text: String::new(), cause }));
    let (untrusted, handshake) = (of_tls(TlsCause::Authority), of_tls(TlsCause::Handshake));
    let (refused, unsupported) = (error(ConnectCause::NoPassword), error(ConnectCause::NoTls));
    let fixed = ConnInfo::default();
    let passfile = LoginFiles { passfile: Some("/pgpass".into()), ..LoginFiles::default() };
    let in_files = ConnInfo { login_files: passfile, ..ConnInfo::default() };
    for of_tls in [&untrusted, &handshake] {
        assert_eq!(awaited_phase(of_tls, true, &fixed), Some(Phase::Connecting));
        assert_eq!(awaited_phase(of_tls, false, &fixed), None, "at the start");
    }
    assert_eq!(awaited_phase(&refused, true, &in_files), Some(Phase::LoginRefused));
    assert_eq!(awaited_phase(&refused, false, &in_files), None, "at the start");
    assert_eq!(awaited_phase(&refused, true, &fixed), None);
    assert_eq!(awaited_phase(&unsupported, true, &in_files), None);
}
