//! One transaction of a chaos writer: drawn first, then run, so that a seed repeats it.

use std::io::Cursor;
use std::pin::pin;

use futures_util::SinkExt as _;
use tokio_postgres::{Client, Error};

use super::{ChaosReport, ChaosWriters, KEYS_TABLE, text};
use crate::kit::{Rng, payload_hash};
use crate::load::TABLE;

/// Rows per INSERT or COPY, and the unit that a savepoint rolls back.
const CHUNK_ROWS: u64 = 500;
const KEYS_MAX: u64 = 8;
/// Share of chunks that go through COPY, whose rows share one LSN.
const COPY_SHARE: f64 = 0.1;
/// Longest random text in a payload; lengths are log-uniform.
const TEXT_CHARS_MAX: u64 = 400;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Committed,
    RolledBack,
}

#[derive(Debug)]
pub(super) struct Broken {
    /// COMMIT was sent and its answer lost: only the table knows.
    pub(super) at_commit: bool,
    pub(super) error: Error,
}

impl Broken {
    /// An answer that a new session would only get again: a fault of the load, not of the chaos.
    pub(super) fn is_permanent(&self) -> bool {
        let code = self.error.as_db_error().map(|error| error.code().code());
        // Connection, rollback (deadlock), resources, operator intervention, system, internal.
        const PASSING: [&str; 6] = ["08", "40", "53", "57", "58", "XX"];
        code.is_some_and(|code| !PASSING.iter().any(|class| code.starts_with(class)))
    }
}

impl From<Error> for Broken {
    fn from(error: Error) -> Broken {
        Broken { at_commit: false, error }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Insert,
    Copy,
    /// Written behind a savepoint, rolled back to it, then the next chunk reuses its sequences.
    Undone,
}

struct Row {
    id: String,
    key: usize,
    text: String,
}

struct Chunk {
    how: How,
    rows: Vec<Row>,
}

/// A transaction as drawn: everything but the sequences, which only the locks can give.
pub(super) struct Plan {
    rolls_back: bool,
    keys: Vec<String>,
    aggregatetypes: Vec<String>,
    chunks: Vec<Chunk>,
}

impl Plan {
    pub(super) fn draw(load: &ChaosWriters, rows: u64, rng: &mut Rng) -> Plan {
        let rolls_back = rng.chance(load.rollback_share);
        let key_count = KEYS_MAX.min(load.keys).min(rows).max(1);
        let mut numbers: Vec<u64> =
            (0..1 + rng.below(key_count)).map(|_| rng.below(load.keys.max(1))).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let mut chunks = Vec::new();
        let undone_at =
            rng.chance(load.savepoint_share).then(|| rng.below(rows.div_ceil(CHUNK_ROWS)));
        let mut left = rows;
        while left > 0 {
            let size = left.min(CHUNK_ROWS);
            if undone_at == Some(chunks.len() as u64) {
                let undone = 1 + rng.below(size);
                chunks.push(Chunk::draw(How::Undone, undone, numbers.len(), rng));
            }
            let how = if rng.chance(COPY_SHARE) { How::Copy } else { How::Insert };
            chunks.push(Chunk::draw(how, size, numbers.len(), rng));
            left -= size;
        }
        let types = load.aggregatetypes.len() as u64;
        Plan {
            rolls_back,
            keys: numbers.iter().map(|number| format!("key-{number}")).collect(),
            aggregatetypes: numbers
                .iter()
                .map(|number| load.aggregatetypes[(number % types) as usize].clone())
                .collect(),
            chunks,
        }
    }

    /// Rows that are there if the transaction commits, and rows that never are.
    fn rows(&self) -> (u64, u64) {
        let count = |undone: bool| {
            let kept = self.chunks.iter().filter(|chunk| (chunk.how == How::Undone) == undone);
            kept.map(|chunk| chunk.rows.len() as u64).sum()
        };
        (count(false), count(true))
    }

    pub(super) async fn run(
        &self,
        client: &Client,
        report: &mut ChaosReport,
    ) -> Result<Outcome, Broken> {
        client.batch_execute("begin").await?;
        let mut seqs = self.lock_keys(client).await?;
        for chunk in &self.chunks {
            let rows = self.number(chunk, &mut seqs.clone());
            match chunk.how {
                How::Insert => insert(client, &rows).await?,
                How::Copy => {
                    copy(client, &rows).await?;
                    report.copies += 1;
                }
                How::Undone => {
                    client.batch_execute("savepoint undone").await?;
                    insert(client, &rows).await?;
                    client.batch_execute("rollback to savepoint undone").await?;
                    report.savepoint_rollbacks += 1;
                    continue;
                }
            }
            self.number(chunk, &mut seqs);
        }
        let update = format!(
            "update {KEYS_TABLE} k set seq = n.seq from unnest($1::text[], $2::bigint[]) n(key, seq)
             where k.key = n.key"
        );
        client.execute(&update, &[&self.keys, &seqs]).await?;
        if self.rolls_back {
            client.batch_execute("rollback").await?;
            return Ok(Outcome::RolledBack);
        }
        client.batch_execute("commit").await.map_err(|error| Broken { at_commit: true, error })?;
        Ok(Outcome::Committed)
    }

    /// Locks the keys in order and returns their last sequences, in the order of `self.keys`.
    async fn lock_keys(&self, client: &Client) -> Result<Vec<i64>, Broken> {
        let lock = format!(
            "select key, seq from {KEYS_TABLE} where key = any($1::text[]) order by key for update"
        );
        let rows = client.query(&lock, &[&self.keys]).await?;
        let seq_of = |key: &String| {
            let row = rows.iter().find(|row| row.get::<_, &str>(0) == key);
            row.map_or(0, |row| row.get::<_, i64>(1))
        };
        Ok(self.keys.iter().map(seq_of).collect())
    }

    /// Whether a transaction whose COMMIT was not answered is in the table.
    pub(super) async fn is_committed(&self, client: &Client) -> Result<bool, Broken> {
        let kept = self.chunks.iter().rev().find(|chunk| chunk.how != How::Undone);
        let Some(row) = kept.and_then(|chunk| chunk.rows.first()) else { return Ok(false) };
        client.batch_execute("begin").await?;
        self.lock_keys(client).await?;
        let look = format!("select 1 from {TABLE} where id = $1::text::uuid");
        let found = client.query(&look, &[&row.id]).await?;
        client.batch_execute("rollback").await?;
        Ok(!found.is_empty())
    }

    /// Books the outcome and tells how many events it committed.
    pub(super) fn account(&self, outcome: Outcome, broke: bool, report: &mut ChaosReport) -> u64 {
        let (kept, undone) = self.rows();
        match (outcome, broke) {
            (Outcome::Committed, _) => {
                report.events_committed += kept;
                report.events_rolled_back += undone;
                report.committed += 1;
                report.unknown_committed += u64::from(broke);
                return kept;
            }
            (Outcome::RolledBack, false) => {
                report.rolled_back += 1;
                report.events_rolled_back += kept + undone;
            }
            (Outcome::RolledBack, true) => report.broken += 1,
        }
        0
    }

    /// Gives each row of a chunk the next sequence of its key.
    fn number(&self, chunk: &Chunk, seqs: &mut [i64]) -> Vec<Numbered> {
        let number = |row: &Row| {
            seqs[row.key] += 1;
            Numbered {
                id: row.id.clone(),
                aggregatetype: self.aggregatetypes[row.key].clone(),
                key: self.keys[row.key].clone(),
                payload: payload(&self.keys[row.key], seqs[row.key], &row.text),
            }
        };
        chunk.rows.iter().map(number).collect()
    }
}

impl Chunk {
    fn draw(how: How, rows: u64, keys: usize, rng: &mut Rng) -> Chunk {
        let row = |rng: &mut Rng| {
            let chars = rng.log_uniform(TEXT_CHARS_MAX);
            Row {
                id: rng.uuid(),
                key: rng.below(keys as u64) as usize,
                text: text::random(rng, chars),
            }
        };
        Chunk { how, rows: (0..rows).map(|_| row(rng)).collect() }
    }
}

struct Numbered {
    id: String,
    aggregatetype: String,
    key: String,
    payload: String,
}

/// `hash` is of the text alone: what the writer meant, beside what the server stored.
fn payload(key: &str, seq: i64, text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 96);
    let hash = payload_hash(text.as_bytes());
    json.push_str(&format!("{{\"seq\":{seq},\"key\":\"{key}\",\"hash\":\"{hash:032x}\",\"text\":"));
    text::push_json(&mut json, text);
    json.push('}');
    json
}

async fn insert(client: &Client, rows: &[Numbered]) -> Result<(), Broken> {
    let column = |of: fn(&Numbered) -> &String| rows.iter().map(of).collect::<Vec<_>>();
    let sql = format!(
        "insert into {TABLE} (id, aggregatetype, aggregateid, type, payload)
         select n.id::uuid, n.aggregatetype, n.key, 'changed', n.payload::jsonb
         from unnest($1::text[], $2::text[], $3::text[], $4::text[])
              with ordinality n(id, aggregatetype, key, payload, at) order by n.at"
    );
    let (ids, types) = (column(|row| &row.id), column(|row| &row.aggregatetype));
    let (keys, payloads) = (column(|row| &row.key), column(|row| &row.payload));
    client.execute(&sql, &[&ids, &types, &keys, &payloads]).await?;
    Ok(())
}

async fn copy(client: &Client, rows: &[Numbered]) -> Result<(), Broken> {
    let mut text = String::new();
    for row in rows {
        text.push_str(&format!("{}\t{}\t{}\tchanged\t", row.id, row.aggregatetype, row.key));
        text::push_copy(&mut text, &row.payload);
        text.push('\n');
    }
    let sql = format!("copy {TABLE} (id, aggregatetype, aggregateid, type, payload) from stdin");
    let mut sink = pin!(client.copy_in::<_, Cursor<Vec<u8>>>(&sql).await?);
    sink.send(Cursor::new(text.into_bytes())).await?;
    sink.finish().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load() -> ChaosWriters {
        ChaosWriters { savepoint_share: 1.0, ..ChaosWriters::new("", 1, 1) }
    }

    #[test]
    fn the_same_seed_draws_the_same_transaction() {
        let ids = |seed| {
            let plan = Plan::draw(&load(), 1_200, &mut Rng::new(seed));
            plan.chunks.iter().flat_map(|c| c.rows.iter().map(|r| r.id.clone())).collect::<Vec<_>>()
        };
        assert_eq!(ids(9), ids(9));
        assert_ne!(ids(9), ids(10));
    }

    #[test]
    fn a_plan_keeps_its_rows_and_an_undone_chunk_its_sequences() {
        // GIVEN a transaction of 1,200 rows with an undone chunk
        let plan = Plan::draw(&load(), 1_200, &mut Rng::new(4));
        let (kept, undone) = plan.rows();
        assert_eq!(kept, 1_200);
        assert!((1..=CHUNK_ROWS).contains(&undone));
        assert!(
            plan.keys.is_sorted() || plan.keys.len() > 1,
            "numbers are sorted, names may differ"
        );
        // WHEN an undone chunk is numbered on a copy of the sequences and then the kept ones
        let mut seqs = vec![0; plan.keys.len()];
        for chunk in plan.chunks.iter().filter(|chunk| chunk.how != How::Undone) {
            plan.number(chunk, &mut seqs);
        }
        // THEN sequences have no gap
        assert_eq!(seqs.iter().sum::<i64>(), 1_200);
    }
}
