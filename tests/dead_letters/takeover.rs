//! A relay that takes over knows what its peer has written into the dead-letter topic.

use walrelay_harness::BrokerKind;

use super::fixture::DeadLetterFixture;
use crate::support::{LIMIT, on_both_brokers, start, state, wait_looks, wait_until};

on_both_brokers!(a_key_that_a_peer_has_parked_is_parked_after_a_takeover, rabbitmq in soak);

fn a_key_that_a_peer_has_parked_is_parked_after_a_takeover(kind: BrokerKind) {
    // GIVEN a relay that has read the dead-letter topic and streamed, and is frozen
    let delivery = "on_dead_letter = \"park_key\"\nattempts_max = 1\n";
    let case = DeadLetterFixture::on(kind, "takeover_parked", delivery, "");
    let (site, name) = (&case.site, case.site.name.clone());
    let mut relay = case.relay();
    case.insert_one(&name, "k", 1);
    site.wait_confirmed(&mut relay, LIMIT);
    let mut peer = start(case.config_of_peer(), &format!("{name}_second"));
    wait_until("a standby", || state(&peer) == "standby");
    wait_looks(site, 3);
    relay.freeze().unwrap();
    wait_until("a walsender", || site.terminate_walsender());
    peer.wait_ready(LIMIT).unwrap();
    // WHEN its peer parks a key, and is killed before the next event of the key
    let poison = case.insert_one(&case.lost(), "k", 2);
    site.wait_confirmed(&mut peer, LIMIT);
    peer.freeze().unwrap();
    let follower = case.insert_one(&name, "k", 3);
    peer.kill9().unwrap();
    relay.thaw().unwrap();
    // THEN that event is parked too
    site.wait_confirmed(&mut relay, LIMIT);
    assert_eq!(case.open(), [poison, follower]);
}
