//! `REPACK (CONCURRENTLY)` writes every row of the outbox again, and decodes with a slot of its own.

use std::time::Duration;

use crate::support::{Fixture, shared_kafka, volume};

#[test]
#[ignore = "needs PostgreSQL 19: make matrix"]
fn repacking_the_outbox_under_load_loses_and_repeats_nothing() {
    let postgres = super::postgres(&[], None);
    let site = Fixture::new(&postgres, shared_kafka(), "pg19_repack");
    let mut relay = site.relay();
    let (reader, load) =
        (site.reader(), site.writers(volume(6_000, 60_000), Duration::from_secs(volume(4, 40))));
    // WHEN the table is rewritten again and again while it is written
    let mut repacked = 0;
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| load.run().unwrap());
        while repacked == 0 || !writing.is_finished() {
            site.execute("REPACK (CONCURRENTLY) public.outbox");
            repacked += 1;
        }
        writing.join().unwrap();
    });
    // THEN the topic holds each event once, and only what was inserted
    site.insert_event("after", 1);
    let (verdict, _) = site.judge(&mut relay, reader);
    verdict.assert_exact(0);
    assert!(repacked > 1, "repacked {repacked} times");
}
