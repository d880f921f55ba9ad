use super::*;

#[test]
fn the_loads_share_and_the_looking_are_taken_off() {
    let before = PostgresCounters {
        transactions: 100,
        wal_bytes: 5000,
        queries: 3,
        ..PostgresCounters::default()
    };
    let after = PostgresCounters {
        transactions: 1500,
        read: 900,
        inserted: 1000,
        updated: 2000,
        deleted: 5,
        wal_bytes: 105_000,
        queries: 13,
    };
    let load = LoadShare { rows: 1000, wal_bytes: 40_000.4, measured: 1.0 };
    let cost = after.since(before, load);
    let expected = PostgresCost {
        transactions: 390,
        tuples_read: 900,
        tuples_written: 2005,
        dead_tuples: 2005,
        wal_bytes: 60_000,
        cpu_s: None,
    };
    assert_eq!(cost, expected);
}

#[test]
fn a_load_that_explains_more_than_there_is_leaves_nothing() {
    let load = LoadShare { rows: 9, wal_bytes: 9.0, measured: 1.0 };
    assert_eq!(
        PostgresCounters::default().since(PostgresCounters::default(), load),
        PostgresCost::default()
    );
}

#[test]
fn the_measured_part_is_given() {
    let now = PostgresCounters { transactions: 1001, wal_bytes: 10, ..PostgresCounters::default() };
    let load = LoadShare { rows: 0, wal_bytes: 0.0, measured: 300.0 / 400.0 };
    let part = now.since(PostgresCounters::default(), load);
    assert_eq!((part.transactions, part.wal_bytes), (751, 8));
}

#[test]
fn cpu_time_counts_from_the_beginning_and_outlives_a_process() {
    let mut cpu = CpuTimes::default();
    cpu.observe(1, 10.0, true);
    cpu.observe(1, 10.5, false);
    // Began in between: all of it counts.
    cpu.observe(2, 0.25, false);
    cpu.observe(1, 11.0, false);
    assert_eq!(cpu.total_s(), 1.25);
}
