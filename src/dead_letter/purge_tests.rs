use super::*;
use crate::dead_letter::record::DeadLetter;
use crate::dead_letter::record::{RecordKey, Resolution};

const OLD: i64 = 10;
const YOUNG: i64 = 1_000;
const BEFORE: i64 = 500;

fn letter(id: &str, partition: i32, offset: i64, parks: Option<&str>) -> LogRecord {
    LogRecord::DeadLetter(Box::new(DeadLetter {
        position: PartitionOffset { partition, offset },
        event_id: id.to_owned(),
        key: parks.map(|key| RecordKey { bytes: key.into(), uncut: None }),
        parks_key: parks.is_some(),
        failed_unix_us: OLD,
        ..DeadLetter::default()
    }))
}

fn resolved(id: &str, partition: i32, offset: i64, kind: ResolutionKind, at: i64) -> LogRecord {
    let LogRecord::DeadLetter(of) = letter(id, partition, offset, Some(id)) else { panic!() };
    LogRecord::Resolution(Resolution { resolved_unix_us: at, ..of.resolution(kind, 0, "me", at) })
}

/// The cut of each partition.
fn cuts(log: &[LogRecord]) -> Vec<(i32, i64)> {
    let mut purged = PurgedLog::default();
    log.iter().for_each(|record| purged.add(record));
    purged.cut(BEFORE).into_iter().map(|it| (it.partition, it.before)).collect()
}

const DISCARDED: ResolutionKind = ResolutionKind::Discarded;

#[test]
fn all_before_the_oldest_record_that_must_stay_is_deleted() {
    let done = |id: &str, offset: i64| {
        [letter(id, 0, offset, None), resolved(id, 0, offset + 1, DISCARDED, OLD)]
    };
    let mut log = [done("a", 0), done("b", 2)].concat();
    assert_eq!(cuts(&log), [(0, 4)], "nothing of it is needed");
    // An open dead letter, and what is behind it.
    log.extend([letter("c", 0, 4, None)]);
    log.extend(done("d", 5));
    assert_eq!(cuts(&log), [(0, 4)]);
    // A resolution that is younger keeps what is behind it, and not its old dead letter.
    let young = [letter("a", 0, 0, None), resolved("a", 0, 1, DISCARDED, YOUNG)];
    assert_eq!(cuts(&young), [(0, 1)]);
}

#[test]
fn a_key_stays_parked_until_it_is_released() {
    let parked = [letter("k", 0, 0, Some("k")), resolved("k", 0, 1, DISCARDED, OLD)];
    assert_eq!(cuts(&parked), [(0, 0)]);
    let release = resolved("k", 0, 2, ResolutionKind::Released, OLD);
    assert_eq!(cuts(&[&parked[..], &[release]].concat()), [(0, 3)]);
}

#[test]
fn what_resolves_a_dead_letter_that_stays_in_another_partition_stays_too() {
    let log = [
        letter("open", 0, 0, None),
        letter("k", 0, 1, Some("k")),
        // Without these, what stays in partition 0 would be open, and its key parked.
        resolved("k", 1, 7, DISCARDED, OLD + 1),
        resolved("k", 1, 8, ResolutionKind::Released, OLD + 1),
        letter("x", 1, 6, None),
        resolved("x", 2, 3, DISCARDED, OLD + 1),
        letter("y", 2, 4, None),
        resolved("y", 2, 5, DISCARDED, OLD),
    ];
    assert_eq!(cuts(&log), [(0, 0), (1, 7), (2, 6)]);
}
