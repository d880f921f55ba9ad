//! SIGTERM ends a consumer whatever it is doing, also before it has begun to consume.

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use walrelay_harness::program::{Launch, Program};
use walrelay_harness::{Postgres, PostgresOptions};

const LIMIT: Duration = Duration::from_secs(30);

fn billing(postgres: &Postgres, database: &str, amqp_url: String) -> Program {
    let env = [
        ("DATABASE_URL", postgres.url(database)),
        ("BROKER", "rabbitmq".into()),
        ("AMQP_URL", amqp_url),
        ("LISTEN", "127.0.0.1:0".into()),
        ("NO_COLOR", "1".into()),
    ];
    let launch = Launch {
        name: "billing-service".into(),
        program: env!("CARGO_BIN_EXE_billing-service").into(),
        arguments: Vec::new(),
        env: env.map(|(name, value)| (name.to_owned(), value)).into(),
        folder: postgres.folder().join("billing-service"),
    };
    Program::start(launch).unwrap()
}

#[track_caller]
fn accept(broker: &TcpListener, service: &Program) -> TcpStream {
    broker.set_nonblocking(true).unwrap();
    let began = Instant::now();
    loop {
        match broker.accept() {
            Ok((connection, _)) => return connection,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(began.elapsed() < LIMIT, "it does not connect\n{}", service.tail(20));
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn sigterm_ends_a_consumer_whose_broker_is_down() {
    // GIVEN a broker that is down until `init` has failed twice, and then does not answer
    let postgres = Postgres::start(PostgresOptions::default()).unwrap();
    let broker = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = broker.local_addr().unwrap().port();
    let mut billing = billing(&postgres, "postgres", format!("amqp://127.0.0.1:{port}/%2f"));
    while billing.tail(100).matches("init has failed").count() < 2 {
        drop(accept(&broker, &billing));
    }
    let _silent = accept(&broker, &billing);
    // WHEN it is told to stop in the middle of an attempt
    billing.sigterm().unwrap();
    // THEN it ends, and with success
    assert_eq!(billing.wait_exit(LIMIT).unwrap(), 0, "{}", billing.tail(20));
}

#[test]
fn a_mistake_that_time_does_not_mend_ends_a_consumer() {
    // GIVEN a database that does not exist
    let postgres = Postgres::start(PostgresOptions::default()).unwrap();
    let mut billing = billing(&postgres, "no_such_database", "amqp://127.0.0.1:1/%2f".into());
    // THEN it ends, and says why
    assert_eq!(billing.wait_exit(LIMIT).unwrap(), 1, "{}", billing.tail(20));
    assert!(billing.said("no_such_database"), "{}", billing.tail(20));
}
