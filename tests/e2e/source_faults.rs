//! The source side breaks under a living relay: nothing is lost, and nothing is repeated.

use std::time::Duration;

use walrelay_harness::proxy::Proxy;
use walrelay_harness::{BrokerKind, Postgres, PostgresOptions};

use crate::support::{
    Fixture, LIMIT, Repeatable, half_machine, metric, name_on, on_both_brokers, until, volume,
};

on_both_brokers!(a_living_relay_repeats_nothing_whatever_its_source_does, both in soak);

fn a_living_relay_repeats_nothing_whatever_its_source_does(kind: BrokerKind) {
    let _machine = half_machine();
    let _repeatable = Repeatable::new("e2e::source_faults");
    // GIVEN a relay that reaches Postgres over a network that can be cut, under load
    let mut postgres = Postgres::start(PostgresOptions::default()).unwrap();
    let site = Fixture::new(&postgres, kind, &name_on(kind, "source_faults"));
    let proxy = Proxy::start(postgres.port()).unwrap();
    let mut config = site.config();
    config.url = config.url.replace(&postgres.port().to_string(), &proxy.port.to_string());
    let (mut relay, reader) = (site.relay_with(config), site.reader());
    let pid = relay.pid();
    let (events, seconds, terminations) = volume((8_000, 8, 10), (60_000, 30, 20));
    let load = site.writers(events, Duration::from_secs(seconds));
    let writers = std::thread::spawn(move || load.run().unwrap());
    // WHEN its walsender is terminated, its connections are cut, and Postgres restarts and crashes
    let streaming = || site.slot_is_active() == Some(true);
    for round in 1..=terminations {
        // On a busy machine the load may be over before the rounds are.
        reader.wait_until((reader.count() + 200).min(events), LIMIT);
        until("a walsender", LIMIT, || site.terminate_walsender().then_some(()));
        if round % 4 == 0 {
            until("a stream to cut", LIMIT, || streaming().then_some(()));
            assert!(proxy.cut() > 0);
        }
        match round {
            3 => drop(postgres.stop_fast(Duration::from_secs(10)).unwrap()),
            5 | 9 | 15 => postgres.crash().unwrap(),
            _ => continue,
        }
        postgres.start_again().unwrap();
    }
    let report = writers.join().unwrap();
    // THEN the same process has carried everything, once
    let (verdict, _) = site.judge(&mut relay, reader);
    let reconnects = metric(&relay, "outbox_source_reconnects_total").unwrap();
    println!("{reconnects} reconnects; writers: {report:?}; {verdict}");
    assert_eq!(relay.pid(), pid);
    // A walsender that is terminated before the relay has taken its session over is no reconnect.
    assert!(reconnects >= f64::from(terminations / 2), "{reconnects}");
    verdict.assert_exact(0);
}
