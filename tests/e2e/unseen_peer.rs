//! A peer that confirmed events and is gone, and was never seen to hold the slot: what it confirmed
//! is published, so the relay goes on after it. What a crash of Postgres has set back is found in the
//! topic.

use std::time::Duration;

use walrelay_harness::{BrokerKind, Postgres, PostgresOptions};

use crate::support::{Fixture, LIMIT, start, state, until, wait_looks};

const WITHIN: Duration = Duration::from_secs(10);
const EVENTS: u64 = 10;

/// The event of Postgres before the relay that was frozen goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Server {
    Lives,
    Restarts,
    Crashes,
}

#[test]
#[ignore = "soak"]
fn what_a_peer_confirmed_unseen_is_no_move_of_the_slot() {
    // GIVEN two relays on one slot
    let mut postgres = Postgres::start(PostgresOptions::default()).unwrap();
    let site = Fixture::new(&postgres, BrokerKind::Kafka, "unseen_peer");
    let mut config = site.config();
    config.source_extra = "watch_interval = \"100ms\"\n".into();
    let (mut relay, reader) = (site.relay_with(config.clone()), site.reader());
    let mut peer = start(config, "unseen_peer_second");
    let mut seq = 0;
    for server in [Server::Lives, Server::Restarts, Server::Crashes, Server::Lives] {
        until("a standby", LIMIT, || (state(&peer) == "standby").then_some(()));
        wait_looks(&site, 3);
        // WHEN one is frozen while the other takes over, publishes and is killed
        relay.freeze().unwrap();
        until("a walsender", LIMIT, || site.terminate_walsender().then_some(()));
        peer.wait_ready(LIMIT).unwrap();
        for _ in 0..EVENTS {
            seq += 1;
            site.insert_event("key", seq);
        }
        site.wait_confirmed(&mut peer, LIMIT);
        peer.kill9().unwrap();
        match server {
            Server::Lives => {}
            Server::Restarts => drop(postgres.stop_fast(WITHIN).unwrap()),
            Server::Crashes => postgres.crash().unwrap(),
        }
        if server != Server::Lives {
            postgres.start_again().unwrap();
        }
        relay.thaw().unwrap();
        // THEN the first goes on after it, and nothing comes twice
        seq += 1;
        site.insert_event("key", seq);
        site.wait_confirmed(&mut relay, LIMIT);
        peer.restart().unwrap();
    }
    let (verdict, _) = site.judge(&mut relay, reader);
    verdict.assert_exact(0);
    assert!(relay.said("slot.peer-gone"), "{}", relay.tail(20));
    // WHEN the peer has gone for good, and somebody advances the slot THEN that is no peer's work
    peer.sigterm().unwrap();
    assert_eq!(peer.wait_exit(LIMIT).unwrap(), 0, "{}", peer.tail(20));
    wait_looks(&site, 1);
    relay.freeze().unwrap();
    until("a walsender", LIMIT, || site.terminate_walsender().then_some(()));
    until("the slot to be free", LIMIT, || (site.slot_is_active() == Some(false)).then_some(()));
    site.insert_event("foreign", 1);
    site.execute("select pg_replication_slot_advance('unseen_peer', pg_current_wal_lsn())");
    relay.thaw().unwrap();
    assert_eq!(relay.wait_exit(LIMIT).unwrap(), 3, "{}", relay.tail(20));
    assert!(relay.said("slot.moved"), "{}", relay.tail(20));
}
