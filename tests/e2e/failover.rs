//! The primary dies and a standby is promoted: a relay that has streamed waits, and goes on there.

use std::time::Duration;

use walrelay_harness::load::ChaosWriters;
use walrelay_harness::relay::{RelayConfig, RelayProcess, get};
use walrelay_harness::{BrokerKind, Postgres, PostgresOptions};

use crate::support::{
    Fixture, LIMIT, Repeatable, half_machine, name_on, on_both_brokers, shared_kafka, until,
    volume, wait_until,
};

const NAME: &str = "failover";

/// Makes the slot on the standby too. That waits for the primary to log its running transactions.
fn make_slot(primary: &Postgres, standby: &Postgres) {
    let sql = format!("select pg_create_logical_replication_slot('{NAME}', 'pgoutput')");
    std::thread::scope(|scope| {
        let making = scope.spawn(|| standby.sql(NAME, &sql));
        wait_until("a slot on the standby", || {
            primary.sql(NAME, "select pg_log_standby_snapshot()").unwrap();
            making.is_finished()
        });
        making.join().unwrap().unwrap();
    });
}

/// Gives the slot the flag `failover`, and the standby a slot of its own.
fn make_failover_slots(site: &Fixture) {
    let name = &site.name;
    site.execute("select pg_create_physical_replication_slot('standby', true)");
    site.execute(&format!("select pg_drop_replication_slot('{name}')"));
    site.execute(&format!(
        "select pg_create_logical_replication_slot('{name}', 'pgoutput', failover => true)"
    ));
}

fn with_both(url: &str, primary: &Postgres, standby: &Postgres) -> String {
    let host = |server: &Postgres| format!("127.0.0.1:{}", server.port());
    url.replace(&host(primary), &format!("{},{}", host(primary), host(standby)))
}

/// The relay says that it waits for a primary.
fn wait_for_waiting(relay: &mut RelayProcess) {
    until("a relay that waits", LIMIT, || {
        assert!(relay.is_running(), "{}", relay.tail(20));
        let answer = get(relay.admin(), "/readyz", Duration::from_secs(2)).ok()?;
        answer.body.contains("waiting_for_primary").then_some(())
    });
}

#[test]
fn a_living_relay_waits_for_the_promotion_and_goes_on() {
    // GIVEN a relay that knows both servers and has streamed from the primary
    let mut primary = Postgres::start(PostgresOptions::default()).unwrap();
    let mut site = Fixture::new(&primary, shared_kafka(), NAME);
    let standby = Postgres::standby(&primary).unwrap();
    make_slot(&primary, &standby);
    let mut config = site.config();
    config.url = with_both(&config.url, &primary, &standby);
    let (mut relay, reader) = (site.relay_with(config), site.reader());
    let pid = relay.pid();
    site.insert_event("key", 1);
    site.wait_confirmed(&mut relay, LIMIT);
    site.url = standby.url(NAME);
    wait_until("the row on the standby", || site.value("select count(*) from outbox") == "1");
    // WHEN the primary dies THEN the relay says what it waits for
    primary.crash().unwrap();
    wait_for_waiting(&mut relay);
    // WHEN the standby is promoted THEN the same process streams from it
    standby.sql(NAME, "select pg_promote()").unwrap();
    relay.wait_ready(LIMIT).unwrap();
    site.insert_event("key", 2);
    let (verdict, _) = site.judge(&mut relay, reader);
    println!("{verdict}");
    // Another timeline: what the slot sends again is found in the topic.
    verdict.assert_exact(0);
    assert_eq!(relay.pid(), pid);
    let said = std::fs::read_to_string(relay.log_file()).unwrap();
    assert_eq!(said.matches("waiting for a primary").count(), 1, "{said}");
}

#[test]
fn a_relay_whose_standby_is_down_waits_for_it() {
    // GIVEN a failover slot, and a standby that must have all before it, and is down
    let primary = Postgres::start(PostgresOptions::default()).unwrap();
    let site = Fixture::new(&primary, shared_kafka(), "failover_wait");
    make_failover_slots(&site);
    let config = site.config();
    let (mut relay, reader) = (site.relay_with(config), site.reader());
    site.insert_event("key", 1);
    site.wait_confirmed(&mut relay, LIMIT);
    site.execute("alter system set synchronized_standby_slots = 'standby'");
    site.execute("select pg_reload_conf()");
    // WHEN more is written THEN the relay says what Postgres waits for, and goes on
    let pid = relay.pid();
    let mut seq = 1;
    wait_until("the warning of postgres", || {
        assert!(relay.is_running(), "{}", relay.tail(20));
        seq += 1;
        site.insert_event("key", seq);
        let tail = relay.tail(100);
        tail.contains("source.notice") && tail.contains("synchronized_standby_slots")
    });
    // WHEN Postgres does not wait any more THEN all comes, in the same process
    site.execute("alter system reset synchronized_standby_slots");
    site.execute("select pg_reload_conf()");
    let (verdict, _) = site.judge(&mut relay, reader);
    verdict.assert_exact(0);
    assert_eq!(relay.pid(), pid);
}

on_both_brokers!(a_synchronized_slot_outlives_its_primary, both in soak);

fn a_synchronized_slot_outlives_its_primary(kind: BrokerKind) {
    let _machine = half_machine();
    let _repeatable = Repeatable::new("e2e::failover");
    // GIVEN a standby that copies the slot, and has all before a COMMIT returns and before the relay has it
    let mut primary = Postgres::start(PostgresOptions::default()).unwrap();
    let mut site = Fixture::new(&primary, kind, &name_on(kind, "failover_slot"));
    make_failover_slots(&site);
    let standby = Postgres::standby(&primary).unwrap();
    standby.synchronize_slots(&primary).unwrap();
    site.execute("alter system set synchronized_standby_slots = 'standby'");
    site.execute("alter system set synchronous_standby_names = 'standby'");
    site.execute("select pg_reload_conf()");
    let config = site.config();
    let url = with_both(&config.url, &primary, &standby);
    let mut relay = site.relay_with(RelayConfig { url, ..config });
    let reader = site.reader();
    let copied = format!(
        "select count(*) from pg_replication_slots where slot_name = '{}' and synced and not temporary",
        site.name
    );
    let mut seq = 0;
    wait_until("a slot on the standby", || {
        seq += 1;
        site.insert_event("key", seq);
        primary.sql("postgres", "select pg_log_standby_snapshot()").unwrap();
        standby.sql("postgres", &copied).unwrap() == "1"
    });
    // (Commands that would change slots are for the primary.)
    let on_standby = RelayConfig { url: standby.url(&site.name), ..site.config() };
    for words in [["slot", "create"].as_slice(), &["slot", "drop", "--yes"]] {
        let ended = site.command(&on_standby, words).wait();
        assert!(ended.err.contains("source.standby"), "{words:?}\n{ended}");
    }
    // WHEN the primary dies under load, and the standby is promoted
    let (events, seconds) = volume((6_000, 5), (40_000, 15));
    let to_both = with_both(&site.url, &primary, &standby) + "?target_session_attrs=read-write";
    let load = ChaosWriters { url: to_both, ..site.writers(events, Duration::from_secs(seconds)) };
    let writers = std::thread::spawn(move || load.run().unwrap());
    reader.wait_until(events / 3, LIMIT);
    primary.crash().unwrap();
    wait_for_waiting(&mut relay);
    standby.sql("postgres", "select pg_promote()").unwrap();
    relay.wait_ready(LIMIT).unwrap();
    println!("{:?}", writers.join().unwrap());
    // THEN every row that is there is published, in order; and on Kafka, which can be asked, once
    site.url = standby.url(&site.name);
    let (verdict, _) = site.judge(&mut relay, reader);
    println!("{verdict}");
    match kind {
        BrokerKind::Kafka => verdict.assert_exact(0),
        BrokerKind::RabbitMq => verdict.assert_complete(),
    }
}
