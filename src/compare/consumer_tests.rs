use crate::base::error::Exit;
use std::time::Instant;

use super::*;
use crate::compare::load::payload;
use crate::sink::bench_target::Arrival;

/// Hands out what it has, then fails.
struct Few(Vec<Vec<u8>>);

impl Scratch for Few {
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
    let shared = Shared::default();
    let tally = Arc::new(Tally::new(10));
    *held(&shared.current) = Some((2, Arc::clone(&tally)));
    let values = [payload(2, 3), payload(1, 4), "no event".to_owned(), payload(2, 5)];
    consume(Box::new(Few(values.map(String::into_bytes).into())), &shared);
    assert_eq!(tally.progress().0, 2);
    assert_eq!(tally.counts(10).missing, 8);
    assert!(held(&shared.fault).is_some());
}
