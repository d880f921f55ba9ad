//! A relay that has lost the slot publishes nothing of what it held: neither while it is cut off, nor
//! when it runs again after it was frozen.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use walrelay_harness::consumer::Record;
use walrelay_harness::oracle::{self, TruthRow};
use walrelay_harness::proxy::Proxy;
use walrelay_harness::relay::{RelayConfig, RelayProcess, get};
use walrelay_harness::{BrokerKind, Kafka, KafkaListener, KafkaOptions, Postgres, free_port};

use crate::support::{
    Fixture, LIMIT, metric, name_on, on_both_brokers, own_postgres, shared_rabbitmq, start, state,
    until, wait_until,
};

const WAL_SENDER_TIMEOUT_MS: &str = "2000";
pub(crate) const KEYS: u64 = 10;
/// Events of each key that the first relay holds, and that the second publishes after them.
pub(crate) const EACH: u64 = 20;

/// A network in which the first relay can be cut off from Postgres, or from its broker, and the
/// second from neither.
struct Network {
    postgres: Postgres,
    to_postgres: Proxy,
    to_broker: Proxy,
    /// Its own, because a broker tells clients where to connect; none for RabbitMQ.
    kafka: Option<Kafka>,
}

impl Network {
    fn start(kind: BrokerKind) -> Network {
        let postgres = own_postgres(&[("wal_sender_timeout", WAL_SENDER_TIMEOUT_MS)]);
        let to_postgres = Proxy::start(postgres.port()).unwrap();
        let (kafka, to_broker) = match kind {
            BrokerKind::Kafka => {
                let port = free_port().unwrap();
                let to_broker = Proxy::start(port).unwrap();
                let advertised_port = to_broker.port;
                let listener =
                    KafkaListener { name: "FIRST", protocol: "PLAINTEXT", port, advertised_port };
                let listener = Some(listener);
                let options = KafkaOptions { listener, ..KafkaOptions::default() };
                (Some(Kafka::start_with(&options).unwrap()), to_broker)
            }
            BrokerKind::RabbitMq => (None, Proxy::start(shared_rabbitmq().port()).unwrap()),
        };
        Network { postgres, to_postgres, to_broker, kafka }
    }

    fn site(&self, kind: BrokerKind, name: &str) -> Fixture {
        let name = name_on(kind, name);
        match &self.kafka {
            Some(kafka) => Fixture::new(&self.postgres, kafka, &name),
            None => Fixture::new(&self.postgres, kind, &name),
        }
    }

    /// The configuration of the relay that is behind both proxies.
    fn config(&self, site: &Fixture) -> RelayConfig {
        let mut config = site.config();
        let own = self.to_postgres.port.to_string();
        config.url = config.url.replace(&self.postgres.port().to_string(), &own);
        let to_broker = format!("127.0.0.1:{}", self.to_broker.port);
        match &mut config.rabbitmq {
            Some(rabbitmq) => {
                let direct = format!("127.0.0.1:{}", shared_rabbitmq().port());
                rabbitmq.url = rabbitmq.url.replace(&direct, &to_broker);
            }
            None => config.brokers = to_broker,
        }
        config
    }
}

/// The next events of each key, in one transaction.
pub(crate) fn insert(site: &Fixture, from: u64) {
    let to = from + EACH - 1;
    site.execute(&format!(
        "insert into outbox select gen_random_uuid(), 'order', 'k' || key, 'created',
         jsonb_build_object('seq', seq)
         from generate_series({from}, {to}) seq, generate_series(1, {KEYS}) key order by seq"
    ));
}

/// The relay streams, and its client holds events that the broker does not answer.
fn relay_with_events(site: &Fixture, network: &Network) -> RelayProcess {
    let mut relay = start(network.config(site), &format!("{}_first", site.name));
    relay.wait_ready(LIMIT).unwrap();
    insert(site, 1);
    site.wait_confirmed(&mut relay, LIMIT);
    network.to_broker.silence();
    insert(site, 1 + EACH);
    let held = Some((KEYS * EACH) as f64);
    wait_until("events in flight", || metric(&relay, "outbox_in_flight_events") == held);
    relay
}

/// Another relay takes the slot, and publishes what was held and newer events.
fn take_over(site: &Fixture) -> RelayProcess {
    let mut second = start(site.config(), &format!("{}_second", site.name));
    second.wait_ready(LIMIT).unwrap();
    insert(site, 1 + 2 * EACH);
    site.wait_confirmed(&mut second, LIMIT);
    second
}

pub(crate) fn wait_nothing_in_flight(relay: &RelayProcess) {
    wait_until("nothing in flight", || metric(relay, "outbox_in_flight_events") == Some(0.0));
}

/// Keys whose last record is not their latest event, and records behind it.
pub(crate) fn stale(truth: &[TruthRow], records: &[Record]) -> (usize, usize) {
    let seqs: HashMap<&str, i64> = truth.iter().map(|row| (row.id.as_str(), row.seq)).collect();
    let mut sorted: Vec<&Record> = records.iter().collect();
    sorted.sort_by_key(|record| (record.partition, record.offset));
    let (mut latest, mut stale, mut behind) = (HashMap::new(), HashSet::new(), 0);
    for record in sorted {
        let seq = seqs[record.id.as_str()];
        let newest = latest.entry(record.key.as_str()).or_insert(seq);
        if seq < *newest {
            behind += 1;
            stale.insert(record.key.as_str());
        } else {
            *newest = seq;
            stale.remove(record.key.as_str());
        }
    }
    (stale.len(), behind)
}

fn assert_nothing_behind(site: &Fixture, mut second: RelayProcess, first: &RelayProcess) {
    let truth = oracle::read_truth(&site.url, "public.outbox").unwrap();
    let (verdict, records) = site.judge(&mut second, site.reader());
    println!("{verdict}");
    let (keys, behind) = stale(&truth, &records);
    println!("{keys} keys end with an old event, {behind} records behind newer ones");
    assert_eq!((keys, behind), (0, 0), "{verdict}\n{}", first.tail(30));
    // What the first relay held had reached no broker.
    verdict.assert_exact(0);
}

on_both_brokers!(a_relay_that_was_frozen_or_cut_off_publishes_nothing_behind_its_peer);

fn a_relay_that_was_frozen_or_cut_off_publishes_nothing_behind_its_peer(kind: BrokerKind) {
    let network = Network::start(kind);

    // GIVEN a relay that is frozen while its client holds events
    let site = network.site(kind, "frozen");
    let mut first = relay_with_events(&site, &network);
    first.freeze().unwrap();
    // WHEN a second one has published newer events, and the first runs again and reaches its broker
    let second = take_over(&site);
    network.to_broker.cut();
    first.thaw().unwrap();
    wait_until("a standby", || state(&first) == "standby");
    wait_nothing_in_flight(&first);
    // THEN nothing of it stands behind them
    assert_nothing_behind(&site, second, &first);
    // AND it goes on when it gets the slot
    let ready = |relay: &RelayProcess| get(relay.admin(), "/readyz", Duration::from_secs(2));
    until("the slot", LIMIT, || ready(&first).ok().filter(|answer| answer.status == 200));
    site.insert_event("k1", 1 + 3 * EACH);
    site.wait_confirmed(&mut first, LIMIT);
    drop(first);

    // GIVEN a relay that is cut off from Postgres while its client holds events
    let site = network.site(kind, "cut_off");
    let mut first = relay_with_events(&site, &network);
    network.to_postgres.stall();
    // WHEN a second one has published newer events, and the first reaches its broker again
    let second = take_over(&site);
    network.to_broker.cut();
    wait_nothing_in_flight(&first);
    // THEN nothing of it stands behind them
    assert!(first.is_running(), "{}", first.tail(20));
    assert_nothing_behind(&site, second, &first);
    network.to_postgres.go_on();
}
