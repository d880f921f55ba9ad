use super::*;

fn row(number: i64, key: &str) -> TruthRow {
    TruthRow { id: format!("id-{number}"), key: key.into(), seq: number, hash: number as u128 }
}

/// Row `number` delivered at `offset`, appended at `1000 + offset` ms, committed at LSN
/// `number * 10`.
fn delivery(number: i64, key: &str, offset: i64) -> Record {
    Record {
        topic: "t".into(),
        partition: 0,
        offset,
        key: key.into(),
        id: format!("id-{number}"),
        lsn: Some(number as u64 * 10),
        hash: number as u128,
        timestamp_ms: 1_000 + offset,
        arrived_us: 0,
    }
}

/// Six rows of two keys, delivered once each in commit order.
fn clean() -> (Vec<TruthRow>, Vec<Record>) {
    let keys = ["a", "b", "a", "b", "a", "b"];
    let numbered = || keys.iter().zip(1..);
    let truth = numbered().map(|(key, number)| row(number, key)).collect();
    (truth, numbered().map(|(key, number)| delivery(number, key, number)).collect())
}

fn judge(truth: &[TruthRow], delivered: &[Record]) -> Verdict {
    check(truth, delivered, &HashSet::new())
}

/// The names of the faults that are red.
fn red(verdict: &Verdict) -> Vec<&'static str> {
    let faults = verdict.faults().into_iter();
    faults.filter(|(_, offences)| offences.count > 0).map(|(name, _)| name).collect()
}

#[test]
fn an_exact_delivery_is_green_in_whatever_order_it_was_read() {
    let (truth, mut delivered) = clean();
    delivered.reverse();
    let verdict = judge(&truth, &delivered);
    verdict.assert_exact(0);
    assert_eq!((verdict.committed, verdict.distinct, verdict.duplicates), (6, 6, 0));
}

#[test]
fn a_lost_row_is_missing() {
    let (truth, mut delivered) = clean();
    delivered.remove(3);
    let verdict = judge(&truth, &delivered);
    assert_eq!(red(&verdict), ["missing"]);
    assert_eq!(verdict.missing.first, ["id id-4 key b seq 4"]);
}

#[test]
fn a_lost_row_is_excused_by_the_dead_letter_topic_and_only_that_row() {
    let (truth, mut delivered) = clean();
    delivered.truncate(4);
    let parked = HashSet::from(["id-5".to_owned()]);
    let verdict = check(&truth, &delivered, &parked);
    assert_eq!((verdict.dead_lettered, verdict.missing.count), (1, 1));
}

#[test]
fn a_rolled_back_row_and_a_record_without_id_are_invented() {
    let (truth, mut delivered) = clean();
    delivered.push(delivery(99, "a", 99));
    delivered.push(Record { id: String::new(), ..delivery(1, "a", 100) });
    let verdict = judge(&truth, &delivered);
    assert_eq!(red(&verdict), ["invented"]);
    assert_eq!(verdict.invented.count, 2);
}

#[test]
fn repeats_are_counted_and_bounded_but_no_fault() {
    // GIVEN the tail replayed, as after a crash
    let (truth, mut delivered) = clean();
    delivered.extend([delivery(5, "a", 7), delivery(6, "b", 8), delivery(5, "a", 9)]);
    let verdict = judge(&truth, &delivered);
    assert_eq!((verdict.duplicates, red(&verdict)), (3, vec![]));
    assert!(verdict.is_exact(3) && !verdict.is_exact(2));
}

#[test]
fn a_key_that_ends_with_a_repeat_of_an_older_event_is_stale() {
    // GIVEN 1, 3, 5, and then a repeat of 3
    let (truth, mut delivered) = clean();
    delivered.push(delivery(3, "a", 7));
    let verdict = judge(&truth, &delivered);
    assert_eq!((verdict.duplicates, red(&verdict)), (1, vec!["stale last"]));
    assert_eq!(verdict.stale_last.first, ["t/0@7 id id-3 key a, seq 3 behind 5 at 5"]);
    assert!(!verdict.is_exact(1));
    // WHEN the latest event is repeated as well THEN it is the last again
    delivered.push(delivery(5, "a", 8));
    judge(&truth, &delivered).assert_exact(2);
}

#[test]
fn what_is_latest_is_judged_by_key_partition_and_topic() {
    let (truth, delivered) = clean();
    for repeat in [
        // The other key has newer events.
        delivery(5, "a", 7),
        Record { topic: "other".into(), ..delivery(3, "a", 7) },
    ] {
        let all: Vec<Record> = delivered.iter().cloned().chain([repeat]).collect();
        judge(&truth, &all).assert_exact(1);
    }
}

#[test]
fn a_dead_letter_that_is_replayed_may_be_the_last_of_its_key() {
    let (truth, mut delivered) = clean();
    let replayed = delivered.remove(2);
    delivered.push(Record { offset: 7, ..replayed });
    let parked = HashSet::from(["id-3".to_owned()]);
    assert_eq!(red(&check(&truth, &delivered, &parked)), ["out of order"]);
    assert_eq!(red(&judge(&truth, &delivered)), ["out of order", "stale last"]);
    // Nor need one that arrived all the same be the last.
    let (truth, mut delivered) = clean();
    delivered.push(delivery(3, "a", 7));
    let parked = HashSet::from(["id-5".to_owned()]);
    check(&truth, &delivered, &parked).assert_exact(1);
}

#[test]
fn two_first_deliveries_of_a_key_swapped_are_out_of_order() {
    let (truth, mut delivered) = clean();
    (delivered[2].offset, delivered[4].offset) = (delivered[4].offset, delivered[2].offset);
    let verdict = judge(&truth, &delivered);
    assert_eq!(red(&verdict), ["out of order", "stale last"]);
    assert_eq!(verdict.out_of_order.first, ["t/0@5 id id-3 key a, seq 3 behind 5 at 3"]);
}

#[test]
fn a_gap_filled_late_is_out_of_order_even_when_a_repeat_hides_it() {
    // GIVEN 1, 5, then a replay of everything: 1, 3, 5
    let (mut truth, _) = clean();
    truth.retain(|row| row.key == "a");
    let delivered: Vec<Record> =
        [1, 5, 1, 3, 5].iter().zip(0..).map(|(n, offset)| delivery(*n, "a", offset)).collect();
    let verdict = judge(&truth, &delivered);
    assert_eq!(red(&verdict), ["out of order"]);
    assert_eq!(verdict.duplicates, 2);
}

#[test]
fn other_keys_may_overtake() {
    let (truth, mut delivered) = clean();
    (delivered[0].offset, delivered[1].offset) = (delivered[1].offset, delivered[0].offset);
    judge(&truth, &delivered).assert_exact(0);
}

#[test]
fn altered_bytes_are_found_in_first_deliveries_and_in_repeats() {
    let (truth, mut delivered) = clean();
    delivered[0].hash ^= 1;
    delivered.push(Record { hash: 0, ..delivery(6, "b", 50) });
    let verdict = judge(&truth, &delivered);
    assert_eq!(red(&verdict), ["altered"]);
    assert_eq!(verdict.altered.count, 2);
}

#[test]
fn a_key_in_two_partitions_has_no_order() {
    let (truth, mut delivered) = clean();
    delivered[4].partition = 1;
    assert_eq!(red(&judge(&truth, &delivered)), ["split keys"]);
}

#[test]
fn a_record_under_another_key_is_found() {
    let (truth, mut delivered) = clean();
    delivered[5].key = "a".into();
    assert_eq!(red(&judge(&truth, &delivered)), ["wrong key"]);
}

#[test]
fn nothing_committed_proves_nothing() {
    assert!(!judge(&[], &[]).is_exact(0));
}

#[test]
fn the_report_names_the_first_few_and_counts_the_rest() {
    let truth: Vec<TruthRow> = (1..=9).map(|number| row(number, "a")).collect();
    let report = judge(&truth, &[]).to_string();
    assert!(report.contains("✗ missing      9"), "{report}");
    assert!(report.contains("id id-5 key a seq 5") && !report.contains("id-6"), "{report}");
    assert!(report.contains("… and 4 more") && report.contains("✓ invented     0"), "{report}");
}

fn sample(lsn: u64, at_ms: i64) -> ConfirmedSample {
    ConfirmedSample { lsn, at_us: at_ms * 1_000 }
}

#[test]
fn an_lsn_confirmed_after_its_records_is_clean() {
    // GIVEN rows committed at 10..=60 and appended at 1001..=1006 ms
    let (_, delivered) = clean();
    // WHEN 30 is confirmed once the row of 20 is there: 30 itself begins at that LSN
    let verdict =
        check_confirmed(&[sample(5, 0), sample(30, 1_002), sample(99, 1_006)], &delivered);
    // THEN nothing is early, and the sample below all records proves nothing
    verdict.assert_clean();
    assert_eq!((verdict.samples, verdict.compared), (3, 2));
}

#[test]
fn an_lsn_confirmed_ahead_of_the_broker_is_early() {
    let (_, delivered) = clean();
    let verdict = check_confirmed(&[sample(31, 1_002)], &delivered);
    assert_eq!(verdict.early.first, ["0/1F confirmed 1 ms before t/0@3 id id-3 key a"]);
    assert!(!verdict.is_clean());
}

#[test]
fn an_early_confirmation_is_found_below_later_lsns_too() {
    // GIVEN the row of LSN 10 appended last of all
    let (_, mut delivered) = clean();
    delivered[0].timestamp_ms = 5_000;
    let verdict = check_confirmed(&[sample(99, 2_000), sample(99, 5_000)], &delivered);
    assert_eq!(verdict.early.count, 1);
}

#[test]
fn a_repeat_neither_excuses_nor_accuses() {
    // GIVEN a row delivered in time and again much later
    let (_, mut delivered) = clean();
    delivered.push(delivery(1, "a", 4_000));
    check_confirmed(&[sample(99, 1_006)], &delivered).assert_clean();
    // GIVEN its first delivery late, THEN the repeat is no excuse
    delivered[0].timestamp_ms = 3_000;
    assert!(!check_confirmed(&[sample(99, 1_006)], &delivered).is_clean());
}

#[test]
fn no_sample_or_no_mark_proves_nothing() {
    let (_, mut delivered) = clean();
    assert!(!check_confirmed(&[], &delivered).is_clean());
    delivered[2].lsn = None;
    let verdict = check_confirmed(&[sample(99, 9_000)], &delivered);
    assert_eq!((verdict.unmarked, verdict.is_clean()), (1, false));
}
