//! A broker closes the channel of who leaves records unacknowledged for long: reading goes on.

use std::time::{Duration, Instant};

use walrelay::dead_letter::writer::DeadLetterAddress;
use walrelay::sink::log::{LogRead, ReadFrom};
use walrelay_harness::RabbitMq;
use walrelay_harness::rabbit::Rabbit;

use crate::sinks::rabbit_log::{bodies, numbered, write};
use crate::sinks::reading::whole;
use crate::sinks::section;
use crate::sinks::test_relay::LIMIT;

const NAME: &str = "patience";
/// Half an hour otherwise, looked at every minute.
const IMPATIENCE: &str = "application:set_env(rabbit, consumer_timeout, 1000),
                          application:set_env(rabbit, channel_tick_interval, 100)";
/// More than are on their way at once.
const RECORDS: usize = 300;

/// The log line of the broker when it has lost its patience.
const LOST: &str = "delivery acknowledgement on channel";

/// From 4.3 on RabbitMQ waits for the readers of streams without end.
fn is_impatient(rabbitmq: &RabbitMq) -> bool {
    let version = rabbitmq.eval("rabbit_misc:version()").unwrap();
    let numbers: Vec<u32> =
        version.trim_matches('"').split('.').filter_map(|number| number.parse().ok()).collect();
    numbers < vec![4, 3]
}

#[test]
fn a_reader_that_takes_its_time_goes_on_behind_its_last_record() {
    // GIVEN a broker that waits a second for an acknowledgement, and a stream
    let rabbitmq = RabbitMq::start().unwrap();
    rabbitmq.eval(IMPATIENCE).unwrap();
    let mut rabbit = Rabbit::open(&rabbitmq.amqp_url()).unwrap();
    rabbit.declare_stream(NAME).unwrap();
    rabbit.confirm().unwrap();
    let written = numbered(0..RECORDS);
    write(&mut rabbit, NAME, &written);
    let address = DeadLetterAddress { exchange: NAME.to_owned(), topic: NAME.to_owned() };
    let broker = section::rabbitmq(rabbitmq.port(), Duration::from_secs(10));
    let mut log =
        broker.log(&address, ReadFrom::Beginning).unwrap_or_else(|fault| panic!("{fault}"));
    // WHEN one record is taken, and no other until the broker has closed the channel
    let LogRead::Entry(first) = log.next(LIMIT).unwrap() else { panic!("no record") };
    let began = Instant::now();
    while is_impatient(&rabbitmq) && !rabbitmq.recent_log().contains(LOST) {
        assert!(began.elapsed() < LIMIT, "the broker has waited for {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    // THEN the others come, each once, in order
    let mut read = vec![first];
    read.extend(whole(&mut *log));
    assert!(bodies(&read) == written, "{} records", read.len());
}
