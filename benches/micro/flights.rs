//! Cost of one event between admission and the LSN that may be forgotten: flights and transactions.
//!
//! Confirms come back in the order in which a broker with eight partitions gives them: in runs,
//! one partition after the other, so that the settled prefix advances in leaps.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use walrelay::base::event::Position;
use walrelay::base::lsn::Lsn;
use walrelay::delivery::flight::{Flight, FlightState};
use walrelay::delivery::flights::Flights;
use walrelay::delivery::history::CommitId;
use walrelay::delivery::known::Fingerprint;
use walrelay::delivery::transactions::Transactions;

const IN_FLIGHT: u64 = 8_192;
const PARTITIONS: u64 = 8;
const EVENT_BYTES: u32 = 330;

fn flight(commit_lsn: Lsn) -> Flight {
    Flight {
        position: Position { commit_lsn, ordinal: 0 },
        bytes: EVENT_BYTES,
        commit_unix_us: 0,
        fingerprint: Fingerprint::NONE,
        state: FlightState::Sent,
        extras: None,
    }
}

/// Fills the table, lets every event settle in the given order, and asks for the LSN.
fn turn(
    flights: &mut Flights,
    transactions: &mut Transactions,
    per_transaction: u64,
    order: &[u64],
) -> Lsn {
    let first = flights.next();
    for number in 0..IN_FLIGHT {
        let at = Lsn::from_wire(first + number);
        if number % per_transaction == 0 {
            transactions.begin(CommitId { commit_lsn: at, ..CommitId::default() });
        }
        assert!(flights.has_room());
        flights.admit(flight(at));
        if (number + 1) % per_transaction == 0 {
            transactions.commit(at, flights.next());
        }
    }
    for number in order {
        flights.settle(first + number).expect("it was admitted");
    }
    transactions.settle(flights.settled_below())
}

fn bench(criterion: &mut Criterion) {
    let in_order: Vec<u64> = (0..IN_FLIGHT).collect();
    let by_partition: Vec<u64> =
        (0..PARTITIONS).flat_map(|first| (first..IN_FLIGHT).step_by(PARTITIONS as usize)).collect();
    let backwards: Vec<u64> = (0..IN_FLIGHT).rev().collect();
    let mut group = criterion.benchmark_group("flights+transactions");
    group.throughput(Throughput::Elements(IN_FLIGHT));
    for (name, order) in
        [("in order", &in_order), ("by partition", &by_partition), ("backwards", &backwards)]
    {
        for per_transaction in [1, 128, IN_FLIGHT] {
            let id = BenchmarkId::new(name, format!("{per_transaction} per transaction"));
            let mut flights = Flights::new(IN_FLIGHT as usize, usize::MAX);
            let mut transactions = Transactions::default();
            group.bench_function(id, |bencher| {
                bencher.iter(|| {
                    black_box(turn(&mut flights, &mut transactions, per_transaction, order))
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
