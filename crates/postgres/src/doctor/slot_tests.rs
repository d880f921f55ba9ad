use serde_json::json;

use super::*;

#[test]
fn a_temporary_slot_is_that_of_a_session_or_one_that_a_standby_still_synchronizes() {
    let slot = |synced: Option<bool>| -> SlotFacts {
        let row = json!({
            "slot_name": "s", "plugin": "pgoutput", "database": "app", "temporary": true,
            "active": true, "active_pid": 7, "confirmed_flush_lsn": null, "restart_lsn": "0/10",
            "wal_status": "reserved", "synced": synced, "in_recovery": synced == Some(true),
        });
        serde_json::from_value(row).unwrap()
    };
    for of_session in [None, Some(false)] {
        let fault = temporary(&slot(of_session)).unwrap();
        assert!(fault.mend.starts_with("end that session"), "{fault}");
    }
    let synchronized = slot(Some(true));
    let fault = temporary(&synchronized).unwrap();
    assert!(fault.what.contains("not synchronized yet"), "{fault}");
    assert!(fault.mend.contains("do not promote this standby"), "{fault}");
    assert_eq!(being_made(&synchronized), None);
}
