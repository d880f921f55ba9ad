//! Cost of one row between the socket and the window: frame, message, columns, event.
//!
//! The row is the first of tests/golden: about 330 bytes, captured from a real Postgres.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use walrelay::base::event::HeaderSlots;
use walrelay::outbox::settings::{Columns, OutboxTable, Preset, Route};
use walrelay::outbox::{CommitStamp, ExtractScratch, Outboxes};
use walrelay::pgoutput::frame::Frame;
use walrelay::pgoutput::message::Message;

fn from_hex(line: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or_default() as u8;
    line.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn outbox(preset: Preset, headers: &str) -> OutboxTable {
    let columns = Columns { headers: headers.into(), ..Columns::default() };
    let route = Route { preset, ..Route::default() };
    OutboxTable { columns, route, ..OutboxTable::default() }
}

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode+extract");
    group.throughput(Throughput::Elements(1));
    let (binary, text) = (
        include_str!("../../crates/core/tests/golden/binary.hex"),
        include_str!("../../crates/core/tests/golden/text.hex"),
    );
    for (name, hex, preset, headers) in [
        ("binary", binary, Preset::Walrelay, "-"),
        ("binary, headers column", binary, Preset::Walrelay, "headers"),
        ("binary, debezium preset", binary, Preset::Debezium, "-"),
        ("text", text, Preset::Walrelay, "-"),
    ] {
        let lines: Vec<_> = hex.lines().take(3).map(from_hex).collect();
        let mut transaction = CommitStamp::default();
        if let Ok(Message::Begin { final_lsn, commit_ts, .. }) = Message::parse(&lines[0]) {
            transaction.begin(final_lsn, commit_ts);
        }
        let mut outboxes = Outboxes::new(vec![outbox(preset, headers)], None).expect("settings");
        if let Ok(Message::Relation(relation)) = Message::parse(&lines[1]) {
            outboxes.learn(&relation, name != "text").expect("a table that fits");
        }
        let frame = [b"w", [0; 24].as_slice(), &lines[2]].concat();
        let mut scratch = ExtractScratch::default();
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let Ok(Frame::XLogData { body, .. }) = Frame::parse(black_box(&frame)) else {
                    panic!("not data")
                };
                let Ok(Message::Insert { relation, tuple }) = Message::parse(body) else {
                    panic!("not an insert")
                };
                let Ok(Some(plan)) = outboxes.plan(relation) else { panic!("no outbox") };
                let mut headers = HeaderSlots::new();
                let event = plan.extract(tuple, &transaction, &mut scratch, &mut headers);
                black_box(event.expect("an event")).size_bytes()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
