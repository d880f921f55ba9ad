//! A Postgres with a single WAL sender: somebody else has it for a while, or our last one has not
//! ended yet.

use std::io::Write as _;
use std::net::TcpStream;

use walrelay_harness::Postgres;

use crate::support::{Fixture, LIMIT, own_postgres, shared_kafka, start, wait_until};

const TERMINATIONS: u64 = 10;

#[test]
fn a_relay_waits_for_the_only_wal_sender() {
    // GIVEN a client that has the only WAL sender
    let postgres = own_postgres(&[("max_wal_senders", "1")]);
    let site = Fixture::new(&postgres, shared_kafka(), "wal_senders");
    let senders = || site.value("select count(*)::text from pg_stat_replication");
    let holder = replication_client(&postgres, &site.name);
    wait_until("the other client", || senders() == "1");
    // WHEN a relay starts THEN it does not give up at once
    let mut relay = start(site.config(), &site.name);
    wait_until("a refused login", || {
        assert!(relay.is_running(), "{}", relay.tail(20));
        relay.said("max_wal_senders")
    });
    // AND streams once the other is gone
    drop(holder);
    relay.wait_ready(LIMIT).unwrap();
    // WHEN its own is ended, and may still be there when it comes back
    let reader = site.reader();
    for seq in 1..=TERMINATIONS {
        wait_until("a walsender", || site.terminate_walsender());
        site.insert_event("key", seq);
        // THEN it goes on
        site.wait_confirmed(&mut relay, LIMIT);
    }
    let (verdict, _) = site.judge(&mut relay, reader);
    verdict.assert_exact(0);
}

/// A login in replication mode, where everybody is trusted.
fn replication_client(postgres: &Postgres, database: &str) -> TcpStream {
    let mut body = 196_608_u32.to_be_bytes().to_vec();
    for word in ["user", "postgres", "database", database, "replication", "database"] {
        body.extend_from_slice(word.as_bytes());
        body.push(0);
    }
    body.push(0);
    let mut client = TcpStream::connect(("127.0.0.1", postgres.port())).unwrap();
    let length = u32::try_from(body.len()).unwrap() + 4;
    client.write_all(&length.to_be_bytes()).unwrap();
    client.write_all(&body).unwrap();
    client
}
