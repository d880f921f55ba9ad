//! The kit's Postgres side against a real server: loads write what they say, through a crash too.

use std::collections::HashMap;
use std::time::Duration;

use walrelay_harness::load::{self, Backlog, ChaosWriters, SteadyLoad};
use walrelay_harness::oracle::{ConfirmedSampler, read_truth};
use walrelay_harness::{Postgres, PostgresOptions, proc};

fn postgres() -> (Postgres, String) {
    let postgres = Postgres::start(PostgresOptions::default()).unwrap();
    let url = postgres.url("postgres");
    load::create_outbox(&url, "public.outbox").unwrap();
    (postgres, url)
}

fn number(postgres: &Postgres, sql: &str) -> i64 {
    postgres.sql("postgres", sql).unwrap().trim().parse().unwrap()
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn a_backlog_has_its_rows_its_transactions_and_its_size() {
    // GIVEN 25,050 rows in transactions of 100
    let (postgres, url) = postgres();
    let report = Backlog::new(&url, 25_050).fill().unwrap();
    assert_eq!(report.rows, 25_050);
    println!("{} rows/s", report.rows as f64 / report.elapsed.as_secs_f64());
    // THEN all are there, in 251 transactions, over 1,000 keys, with payloads of the size
    let count = |what: &str| number(&postgres, &format!("select {what} from outbox"));
    assert_eq!(count("count(*)"), 25_050);
    assert_eq!(count("count(distinct xmin::text)"), 251);
    assert_eq!(count("count(distinct aggregateid)"), 1_000);
    let bytes = count("avg(length(payload::text))::bigint");
    assert!((225..=240).contains(&bytes), "{bytes}");
    // THEN a second seed does not collide, and the same one does
    assert!(Backlog { seed: 2, ..Backlog::new(&url, 10) }.fill().is_ok());
    assert!(Backlog::new(&url, 10).fill().is_err());
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn a_steady_load_is_on_time_in_single_row_transactions() {
    let (postgres, url) = postgres();
    let report = SteadyLoad::new(&url, 500.0, Duration::from_secs(2)).run().unwrap();
    println!("{report:?}");
    assert_eq!(report.events, 1_000);
    assert!(report.elapsed >= Duration::from_millis(1_990), "{report:?}");
    let sql = "select count(distinct xmin::text) from outbox where payload->>'t' is not null
               and abs(extract(epoch from created_at) * 1e6 - (payload->>'t')::bigint) < 1e5";
    assert_eq!(number(&postgres, sql), 1_000);
    let truth = read_truth(&url, "public.outbox").unwrap();
    let mut seqs: Vec<i64> = truth.iter().map(|row| row.seq).collect();
    seqs.sort_unstable();
    assert!(seqs.iter().copied().eq(0..1_000));
}

/// Sequences per key as the table has them: 1, 2, 3, … without a gap.
fn assert_gap_free(url: &str, events: u64) {
    let truth = read_truth(url, "public.outbox").unwrap();
    assert_eq!(truth.len() as u64, events);
    let mut keys: HashMap<&str, Vec<i64>> = HashMap::new();
    truth.iter().for_each(|row| keys.entry(&row.key).or_default().push(row.seq));
    for (key, mut seqs) in keys {
        seqs.sort_unstable();
        assert!(seqs.iter().copied().eq(1..=seqs.len() as i64), "{key}: {seqs:?}");
    }
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn chaos_writers_commit_exactly_what_they_say() {
    let (postgres, url) = postgres();
    let load = ChaosWriters { copy_share: 0.3, ..ChaosWriters::new(&url, 20_000, 7) };
    let report = load.run().unwrap();
    println!("{report:?}");
    assert_eq!(report.events_committed, 20_000);
    assert!(report.committed > 0 && report.rolled_back > 0 && report.copies > 0, "{report:?}");
    assert!(report.savepoint_rollbacks > 0 && report.reconnects == 0, "{report:?}");
    assert_gap_free(&url, 20_000);
    // THEN what the server stored is what the writers meant
    let sql = "select count(*) from outbox where payload->>'key' <> aggregateid or payload->>'hash'
               <> left(encode(sha256(convert_to(payload->>'text', 'UTF8')), 'hex'), 32)";
    assert_eq!(number(&postgres, sql), 0);
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn chaos_writers_survive_crashes_and_know_what_became_of_their_commits() {
    // GIVEN writers of small transactions, so that commits are often in the air
    let (mut postgres, url) = postgres();
    let load = ChaosWriters {
        rows_max: 20,
        writers: 16,
        last: Some(Duration::from_secs(6)),
        ..ChaosWriters::new(&url, 30_000, 11)
    };
    let slot = "select slot_name from pg_create_logical_replication_slot('s', 'pgoutput')";
    postgres.sql("postgres", slot).unwrap();
    let sampler = ConfirmedSampler::start(&url, "s", Duration::from_millis(50)).unwrap();
    // WHEN Postgres crashes three times under them
    let report = std::thread::scope(|scope| {
        let writers = scope.spawn(|| load.run());
        for crash in 1..=3 {
            while number(&postgres, "select count(*) from outbox") < crash * 6_000 {}
            postgres.crash().unwrap();
            postgres.start_again().unwrap();
        }
        writers.join().unwrap().unwrap()
    });
    println!("{report:?}");
    // THEN they went on, and the table has what they say
    assert_eq!(report.events_committed, 30_000);
    assert!(report.reconnects > 0, "{report:?}");
    assert_gap_free(&url, 30_000);
    let samples = sampler.stop();
    assert!(samples.len() > 20 && samples.is_sorted_by_key(|sample| sample.at_us));
    assert!(samples.iter().all(|sample| sample.lsn > 0));
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn a_paced_run_lasts_and_a_wrong_table_is_told() {
    let (_postgres, url) = postgres();
    let last = Some(Duration::from_secs(2));
    let load = ChaosWriters { rows_max: 10, last, ..ChaosWriters::new(&url, 1_000, 3) };
    let began = std::time::Instant::now();
    load.run().unwrap();
    assert!(began.elapsed() >= Duration::from_millis(1_800), "{:?}", began.elapsed());
    let wrong = ChaosWriters { table: "public.nowhere".into(), ..load };
    assert!(wrong.run().unwrap_err().to_string().contains("\"public.nowhere\" does not exist"));
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn a_slot_and_its_publication_are_made_afresh_and_walsenders_found() {
    let (postgres, url) = postgres();
    for _ in 0..2 {
        load::create_slot(&url, "walrelay", "walrelay", "public.outbox").unwrap();
    }
    let slots = "select count(*) from pg_replication_slots where plugin = 'pgoutput'";
    assert_eq!(number(&postgres, slots), 1);
    let publications = "select count(*) from pg_publication where pubinsert and not pubupdate";
    assert_eq!(number(&postgres, publications), 1);
    assert_eq!(proc::walsenders(&url).unwrap(), []);
}
