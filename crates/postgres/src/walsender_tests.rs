use super::*;

fn process(wait: Option<(&str, &str)>, sent_lsn: u64) -> Option<Process> {
    let wait = wait.map(|(kind, event)| (kind.to_owned(), event.to_owned()));
    Some(Process { wait, sent_lsn: Some(sent_lsn.into()) })
}

#[test]
fn a_process_that_neither_waits_for_us_nor_moves_is_busy() {
    let mut looks = WalsenderObserver::default();
    assert_eq!(looks.judge(7, process(None, 100)), Activity::Unclear, "one look");
    assert_eq!(looks.judge(7, process(None, 100)), Activity::Busy("CPU".into()));
    let reads = process(Some(("IO", "ReorderBufferRead")), 100);
    assert_eq!(looks.judge(7, reads), Activity::Busy("IO:ReorderBufferRead".into()));
    // WHEN its position moves THEN its loop turns, and it reads what we send
    assert_eq!(looks.judge(7, process(None, 101)), Activity::Moving);
    // WHEN another process has the slot THEN nothing is known of it yet
    assert_eq!(looks.judge(8, process(None, 101)), Activity::Unclear);
    assert_eq!(looks.judge(8, None), Activity::Gone);
    assert_eq!(looks.judge(8, process(None, 101)), Activity::Unclear);
}

#[test]
fn a_process_that_waits_for_wal_or_for_its_client_listens() {
    for wait in [
        ("Activity", "WalSenderMain"),
        // Until 16, and since 17.
        ("Client", "WalSenderWaitForWAL"),
        ("Client", "WalSenderWaitForWal"),
        ("Client", "WalSenderWriteData"),
        ("Client", "WaitForStandbyConfirmation"),
    ] {
        let mut looks = WalsenderObserver::default();
        for _ in 0..3 {
            assert_eq!(looks.judge(7, process(Some(wait), 100)), Activity::Waiting);
        }
    }
}
