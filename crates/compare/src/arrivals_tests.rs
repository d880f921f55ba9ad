use super::*;
use crate::load::payload;
use walrelay_base::error::Exit;
use walrelay_sink::bench_target::Arrival;

fn after(arrivals: &Arrivals, ms: u64) -> Instant {
    arrivals.origin + Duration::from_millis(ms)
}

/// Written one a millisecond, from number 0 on.
fn written(events: u64) -> Arrivals {
    let arrivals = Arrivals::new(events);
    for number in 0..events {
        arrivals.note_sent(number, after(&arrivals, number));
    }
    arrivals
}

#[test]
fn what_comes_once_and_in_order_is_counted_as_that() {
    let arrivals = written(3);
    for number in 0..3 {
        arrivals.note_arrived(number, after(&arrivals, 10 + 2 * number));
    }
    assert_eq!(arrivals.counts(3), EventCounts::default());
    assert_eq!(arrivals.latencies(0), [10_000, 11_000, 12_000].into_iter().collect());
    assert_eq!(arrivals.latencies(1), [11_000, 12_000].into_iter().collect());
    assert_eq!(arrivals.recent_p50_ms(), Some(11.0));
    assert_eq!(arrivals.progress(), (3, Some(after(&arrivals, 14))));
}

#[test]
fn what_never_comes_is_missing_and_what_comes_again_is_twice() {
    let arrivals = written(4);
    for number in [0, 2, 2, 2] {
        arrivals.note_arrived(number, after(&arrivals, 50));
    }
    let counts = EventCounts { missing: 2, duplicated: 2, out_of_order: 0 };
    assert_eq!(arrivals.counts(4), counts);
}

#[test]
fn order_is_that_of_a_key_and_of_first_deliveries() {
    let arrivals = written(2 * KEYS + 1);
    // Another key may come when it likes.
    arrivals.note_arrived(1, after(&arrivals, 1));
    arrivals.note_arrived(0, after(&arrivals, 2));
    arrivals.note_arrived(2 * KEYS, after(&arrivals, 3));
    assert_eq!(arrivals.counts(0).out_of_order, 0);
    arrivals.note_arrived(KEYS, after(&arrivals, 4));
    assert_eq!(arrivals.counts(0).out_of_order, 1);
    // A repetition is no disorder.
    arrivals.note_arrived(0, after(&arrivals, 5));
    let counts = EventCounts { missing: 0, duplicated: 1, out_of_order: 1 };
    assert_eq!(arrivals.counts(4), counts);
}

#[test]
fn what_nobody_wrote_is_none_of_ours() {
    let arrivals = written(1);
    arrivals.note_arrived(7, after(&arrivals, 1));
    assert_eq!(arrivals.counts(1), EventCounts { missing: 1, ..EventCounts::default() });
}

#[test]
fn seconds_show_what_was_written_and_what_waited() {
    let arrivals = Arrivals::new(4);
    for (number, sent_ms) in [(0, 100), (1, 1100), (2, 1200), (3, 1900)] {
        arrivals.note_sent(number, after(&arrivals, sent_ms));
    }
    for (number, arrived_ms) in [(1, 1150), (2, 2300), (3, 4000)] {
        arrivals.note_arrived(number, after(&arrivals, arrived_ms));
    }
    let seconds = arrivals.seconds(1, after(&arrivals, 1000));
    let short: Vec<_> =
        seconds.iter().map(|it| (it.at_s, it.written, it.delivered, it.backlog)).collect();
    assert_eq!(short, [(0, 3, 1, 2), (1, 0, 1, 1), (2, 0, 0, 1), (3, 0, 1, 0)]);
    let p50: Vec<_> = seconds.iter().map(|it| it.p50_ms).collect();
    assert_eq!(p50, [Some(50.0), Some(1100.0), None, Some(2100.0)]);
}

/// Hands out what it has, then fails.
struct Few(Vec<Vec<u8>>);

impl BenchTarget for Few {
    fn kind(&self) -> &'static str {
        "few"
    }

    fn place(&self) -> String {
        String::new()
    }

    fn consume(&mut self, _patience: Duration) -> Result<Option<Arrival>, Fault> {
        let ended = || Fault::new(Exit::Sink, "sink.unreachable", "", "", "");
        let value = self.0.pop().ok_or_else(ended)?;
        Ok(Some(Arrival { at: Instant::now(), value }))
    }
}

#[test]
fn only_events_of_the_run_at_hand_are_counted_and_an_end_is_told() {
    let state = ReaderState::default();
    let arrivals = Arc::new(Arrivals::new(10));
    *locked(&state.current) = Some((2, Arc::clone(&arrivals)));
    let values = [payload(2, 3), payload(1, 4), "no event".to_owned(), payload(2, 5)];
    let ended = read(Box::new(Few(values.map(String::into_bytes).into())), &state);
    assert_eq!(arrivals.progress().0, 2);
    assert_eq!(arrivals.counts(10).missing, 8);
    assert_eq!(ended.unwrap_err().code, "sink.unreachable");
}
