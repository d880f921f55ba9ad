//! Many rows, quickly: the server makes them itself, so no client is in the way.

use std::time::{Duration, Instant};

use super::{FRAME_BYTES, KEYS, PAYLOAD_BYTES, TABLE};
use crate::Result;
use crate::kit::{Session, block_on};

/// A backlog of rows of about 330 B of WAL payload each, in transactions of equal size.
///
/// Row `n` has the key `key-<n mod keys>` and the payload `{"t": …, "seq": n, "pad": "…"}`, so
/// `seq` rises per key. Ids, keys and pads depend on `seed` and `n` alone.
#[derive(Clone, Debug)]
pub struct Backlog {
    pub url: String,
    pub rows: u64,
    pub rows_per_transaction: u64,
    pub keys: u64,
    pub aggregatetype: String,
    /// Payload size aimed at; the default of 230 B gives 330 B of WAL payload.
    pub payload_bytes: u64,
    /// Makes ids and pads repeatable, and two backlogs of one table distinct.
    pub seed: u64,
}

impl Backlog {
    /// The shape that the peers were measured with: 100-row transactions, 1,000 keys.
    pub fn new(url: impl Into<String>, rows: u64) -> Backlog {
        Backlog {
            url: url.into(),
            rows,
            rows_per_transaction: 100,
            keys: KEYS,
            aggregatetype: "order".into(),
            payload_bytes: PAYLOAD_BYTES,
            seed: 1,
        }
    }

    /// Writes all rows; says how long that took.
    pub fn fill(&self) -> Result<Duration> {
        let sql = self.sql();
        let began = Instant::now();
        block_on(async {
            let session = Session::open(&self.url).await?;
            // Durability of the load is nobody's subject; its flushes would only cost time.
            session.client.batch_execute("set synchronous_commit = off").await?;
            session.client.batch_execute(&sql).await?;
            // Unflushed WAL is invisible to a walsender, and a drain must find all of it: one
            // synchronous commit that did write WAL flushes everything before it.
            session.client.batch_execute("set synchronous_commit = on").await?;
            let flush = "select pg_logical_emit_message(true, 'kit.flush', '')";
            session.client.batch_execute(flush).await?;
            Ok(())
        })?;
        Ok(began.elapsed())
    }

    fn sql(&self) -> String {
        let pad_bytes = self.payload_bytes.saturating_sub(FRAME_BYTES);
        let repeats = pad_bytes.div_ceil(32).max(1);
        let seed = self.seed;
        let aggregatetype = self.aggregatetype.replace('\'', "''");
        let (rows, step, keys) = (self.rows, self.rows_per_transaction.max(1), self.keys.max(1));
        format!(
            "do $backlog$ declare first bigint := 0; begin
               while first < {rows} loop
                 insert into {TABLE} (id, aggregatetype, aggregateid, type, payload)
                 select md5('{seed}/' || n)::uuid, '{aggregatetype}', 'key-' || (n % {keys}), 'created',
                        ('{{\"t\":' || (extract(epoch from clock_timestamp()) * 1000000)::bigint
                         || ',\"seq\":' || n || ',\"pad\":\"'
                         || left(repeat(md5(n || '/{seed}'), {repeats}), {pad_bytes}) || '\"}}')::jsonb
                 from generate_series(first, least(first + {step}, {rows}) - 1) n;
                 commit;
                 first := first + {step};
               end loop;
             end $backlog$"
        )
    }
}
