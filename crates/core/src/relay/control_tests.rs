use super::*;
use crate::source::progress::Signature;

fn run(stats_reset_unix_us: Option<i64>) -> ServerRun {
    ServerRun::new("a".into(), stats_reset_unix_us)
}

/// A position that was confirmed in this run of the server, of a relay that has found the slot at 80.
fn position(run: ServerRun, peer_seen: bool) -> ConfirmedPosition {
    ConfirmedPosition {
        lsn: Lsn::from_wire(800),
        place: SystemTimeline { system_id: "7".to_owned(), timeline: 1 },
        run,
        own_pid: 1,
        own: OwnPositions {
            signature: Signature::drawn(0),
            found: Lsn::from_wire(80),
            ..OwnPositions::default()
        },
        peer_seen,
    }
}

fn slot(confirmed: u64, run: ServerRun) -> HeldSlot {
    HeldSlot { confirmed_flush: Lsn::from_wire(confirmed), run, ..HeldSlot::default() }
}

#[test]
fn a_position_is_not_confirmed_beside_a_peer_whose_trace_a_crash_may_have_taken_back() {
    for (before, now, peer_seen, is_refused) in [
        (Some(1), Some(1), true, false),
        (Some(1), Some(2), false, false),
        (Some(1), Some(2), true, true),
        // PostgreSQL 14 does not say whether it has crashed.
        (None, None, true, false),
    ] {
        let (position, slot) = (position(run(before), peer_seen), slot(80, run(now)));
        let case = (before, now, peer_seen);
        assert_eq!(position.refusal(&slot).is_some(), is_refused, "{case:?}");
        // A peer that is there only now may have been there as well.
        let beside_peer = HeldSlot { has_peer: true, ..slot };
        assert_eq!(position.refusal(&beside_peer).is_some(), before != now, "{case:?}");
    }
}

#[test]
fn a_position_is_not_confirmed_at_another_server_nor_where_another_relay_has_left_the_slot() {
    let position = position(run(Some(1)), false);
    let other = ServerRun::new("b".into(), Some(1));
    assert!(position.refusal(&slot(80, other)).is_some());
    for (confirmed, is_refused) in [(80, false), (97, false), (98, true), (72, false)] {
        assert_eq!(position.refusal(&slot(confirmed, run(Some(1)))).is_some(), is_refused);
    }
}
