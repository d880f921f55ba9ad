use std::sync::atomic::AtomicBool;
use std::time::Instant;

use super::*;
use crate::dead_letter::writer::DeadLetterAddress;
use crate::sink::log::DeadLetterLog;
use crate::sink::testing::MemoryBroker;

/// A dead-letter topic that sends nothing, and no end.
struct SilentLog;

impl DeadLetterLog for SilentLog {
    fn next(&mut self, _patience: Duration) -> Result<LogRead, Fault> {
        Ok(LogRead::Nothing)
    }
}

#[test]
fn a_silent_dead_letter_topic_is_given_up_before_the_time_of_the_search_is_over() {
    let broker = MemoryBroker::default();
    broker.change_logs(|_| Ok(Box::new(SilentLog)));
    let (address, stop) = (DeadLetterAddress::default(), AtomicBool::new(false));
    let topic = DeadLetterTopic::of_relay(&broker, &address, &stop);
    let limits = SearchLimits { deadline: Instant::now() + Duration::from_secs(3600), stop: &stop };
    let typed = Wanted::Id("4711".to_owned());
    let wanted = WantedSpellings { typed: &typed, tables: &[] };
    let (_, report) = letters(&topic, &wanted, ReadFrom::Beginning, &limits).unwrap();
    assert!(report.searched.is_empty(), "{:?}", report.searched);
    let [not_searched] = &report.not_searched[..] else { panic!("{:?}", report.not_searched) };
    assert!(not_searched.ends_with("after 0 records: the broker has sent none for 10 s"));
}
