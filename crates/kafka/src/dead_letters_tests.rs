use std::sync::atomic::{AtomicBool, Ordering};

use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use walrelay_sink::broker::UNREACHABLE;

use super::*;
use crate::testing::{Cluster, cluster_with, write};

const TOPIC: &str = "dead";
const PATIENCE: Duration = Duration::from_millis(100);

fn cluster() -> (Cluster, KafkaSettings) {
    cluster_with(TOPIC)
}

fn open(settings: &KafkaSettings) -> KafkaDeadLetterLog {
    KafkaDeadLetterLog::open(settings, TOPIC, &ReadFrom::Beginning).ok().unwrap()
}

/// Reads until the outcome is not [`LogRead::Nothing`].
fn next(log: &mut KafkaDeadLetterLog) -> Result<LogRead, Fault> {
    loop {
        match log.next(PATIENCE) {
            Ok(LogRead::Nothing) => {}
            read => return read,
        }
    }
}

fn partition(read: Result<LogRead, Fault>) -> Option<i32> {
    match read.unwrap() {
        LogRead::Entry(entry) => Some(entry.position.partition),
        _ => None,
    }
}

#[test]
fn a_partition_without_a_leader_is_a_silence_of_a_broker_that_answers() {
    // GIVEN a topic of which one partition has no leader
    let (cluster, settings) = cluster();
    cluster.partition_leader(TOPIC, 1, None).unwrap();
    let began = Instant::now();
    let mut log = open(&settings);
    // WHEN it is read THEN the other one is read,
    assert_eq!(partition(next(&mut log)), Some(0));
    assert!(began.elapsed() < SILENCE_MAX, "{:?}", began.elapsed());
    // and the fault comes not before the silence is over, and names the partition
    let began = Instant::now();
    let fault = next(&mut log).unwrap_err();
    assert!(began.elapsed() >= SILENCE_MAX, "{:?}", began.elapsed());
    assert_eq!((fault.code, fault.may_pass), (SILENT, true), "{fault}");
    assert!(fault.what.ends_with("partition 1 of dead without a leader"), "{fault}");
}

#[test]
fn what_is_written_meanwhile_does_not_end_the_silence() {
    let (cluster, settings) = cluster();
    cluster.partition_leader(TOPIC, 1, None).unwrap();
    let (mut log, began) = (open(&settings), Instant::now());
    let (is_over, mut records) = (AtomicBool::new(false), 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                write(&settings, TOPIC);
            }
        });
        let fault = loop {
            match log.next(PATIENCE) {
                Ok(read) => records += usize::from(read != LogRead::Nothing),
                Err(fault) => break fault,
            }
            if began.elapsed() > 4 * SILENCE_MAX {
                break Fault::new(Exit::Failed, "late", "", "", "");
            }
        };
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(fault.code, SILENT, "{fault}");
    });
    assert!(began.elapsed() >= SILENCE_MAX && records > 3, "{records}");
}

#[test]
fn a_partition_that_gets_a_leader_is_read_to_its_end() {
    let (cluster, settings) = cluster();
    cluster.partition_leader(TOPIC, 0, None).unwrap();
    let mut log = open(&settings);
    assert_eq!(log.next(PATIENCE).unwrap(), LogRead::Nothing);
    cluster.partition_leader(TOPIC, 0, Some(1)).unwrap();
    assert_eq!(partition(next(&mut log)), Some(0));
    assert_eq!(next(&mut log).unwrap(), LogRead::End);
}

#[test]
fn the_end_is_read_from_only_where_all_ends_are_known() {
    let (cluster, settings) = cluster();
    cluster.partition_leader(TOPIC, 1, None).unwrap();
    let opened = KafkaDeadLetterLog::open(&settings, TOPIC, &ReadFrom::End);
    assert_eq!(opened.err().map(|fault| fault.code), Some(SILENT));
}

#[test]
fn a_partition_whose_leader_sends_nothing_is_named() {
    // GIVEN a broker that tells where the partitions end, and refuses to send their records
    let (cluster, settings) = cluster();
    let refused = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE; 1000];
    cluster.request_errors(RDKafkaApiKey::Fetch, &refused);
    // WHEN they are read THEN that is a silence
    let fault = next(&mut open(&settings)).unwrap_err();
    assert_eq!((fault.code, fault.may_pass), (SILENT, true), "{fault}");
    assert!(fault.what.ends_with("partition 0 of dead cannot be read to the end"), "{fault}");
}

#[test]
fn a_broker_that_is_away_is_unreachable_and_not_silent() {
    // GIVEN a topic that is read, and of which one partition has no leader
    let (cluster, settings) = cluster();
    cluster.partition_leader(TOPIC, 1, None).unwrap();
    let mut log = open(&settings);
    assert_eq!(partition(next(&mut log)), Some(0));
    // WHEN the broker answers no more THEN that is the fault
    cluster.broker_round_trip_time(1, Duration::from_secs(60)).unwrap();
    let fault = next(&mut log).unwrap_err();
    assert_eq!((fault.code, fault.may_pass), (UNREACHABLE, true), "{fault}");
}
