//! What one event costs between admission and the LSN that may be forgotten: window and ledger.
//!
//! Confirms come back in the order in which a broker with eight partitions gives them: in runs,
//! one partition after the other, so that the settled prefix advances in leaps.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use walrelay::base::lsn::Lsn;
use walrelay::delivery::known::Fingerprint;
use walrelay::delivery::ledger::Ledger;
use walrelay::delivery::window::Window;

const IN_FLIGHT: u64 = 8_192;
const PARTITIONS: u64 = 8;
const EVENT_BYTES: usize = 330;

/// Fills the window, lets every event settle in the given order, and asks for the LSN.
fn turn(window: &mut Window, ledger: &mut Ledger, per_transaction: u64, order: &[u64]) -> Lsn {
    let first = window.next();
    for number in 0..IN_FLIGHT {
        let at = Lsn::from_wire(first + number);
        if number % per_transaction == 0 {
            ledger.begin(at, window.next(), 0);
        }
        assert!(window.has_room());
        window.admit(EVENT_BYTES, 0, Fingerprint::NONE);
        if (number + 1) % per_transaction == 0 {
            ledger.commit(at, window.next());
        }
    }
    for number in order {
        window.settle(first + number).expect("it was admitted");
    }
    ledger.settle(window.settled_below())
}

fn bench(criterion: &mut Criterion) {
    let in_order: Vec<u64> = (0..IN_FLIGHT).collect();
    let by_partition: Vec<u64> =
        (0..PARTITIONS).flat_map(|first| (first..IN_FLIGHT).step_by(PARTITIONS as usize)).collect();
    let backwards: Vec<u64> = (0..IN_FLIGHT).rev().collect();
    let mut group = criterion.benchmark_group("window+ledger");
    group.throughput(Throughput::Elements(IN_FLIGHT));
    for (name, order) in
        [("in order", &in_order), ("by partition", &by_partition), ("backwards", &backwards)]
    {
        for per_transaction in [1, 128, IN_FLIGHT] {
            let id = BenchmarkId::new(name, format!("{per_transaction} per transaction"));
            let mut window = Window::new(IN_FLIGHT as usize, usize::MAX);
            let mut ledger = Ledger::default();
            group.bench_function(id, |bencher| {
                bencher.iter(|| black_box(turn(&mut window, &mut ledger, per_transaction, order)));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
