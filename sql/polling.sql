-- The outbox table for mode = "polling".
-- Run by: the migrator (sql/roles.sql), in the application's database. Safe to repeat.
--
-- The application INSERTs one row per event, in the transaction that changes its data, and sets
-- event_key and payload (and traceparent); everything else is the relay's. Column names and the
-- values of the status can be mapped in walrelay.toml ([source.polling.columns], [source.polling.status_values]).
-- docs/polling.md says what an existing table needs.

CREATE TABLE IF NOT EXISTS public.outbox (
    id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- event id, and the order within a key
    event_key      text        NOT NULL,                    -- ordering key; topic or routing key, where the route says so
    payload        jsonb,                                   -- carried as it is; text, json and bytea work too
    status         text        NOT NULL DEFAULT 'pending'
                   CHECK (status IN ('pending', 'in_progress', 'published', 'failed')),
    retry_count    integer     NOT NULL DEFAULT 0,          -- attempts that have failed
    next_retry_at  timestamptz,                             -- not to be claimed before
    locked_at      timestamptz,                             -- claimed, or the claim renewed
    locked_by      text,                                    -- which process has claimed it last
    failure_reason text,                                    -- why the last attempt failed
    failed_at      timestamptz,                             -- when it was given up
    traceparent    text,                                    -- W3C trace context
    created_at     timestamptz NOT NULL DEFAULT pg_catalog.now()
);

-- Partial, so that their size is that of the backlog and not that of the table. The values must be
-- those of the configuration: a claim that names others does not find its index.
CREATE INDEX IF NOT EXISTS outbox_pending     ON public.outbox (id)         WHERE status = 'pending';
CREATE INDEX IF NOT EXISTS outbox_in_progress ON public.outbox (locked_by)  WHERE status = 'in_progress';
CREATE INDEX IF NOT EXISTS outbox_waiting     ON public.outbox (next_retry_at)
    WHERE status = 'pending' AND next_retry_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS outbox_failed      ON public.outbox (failed_at)  WHERE status = 'failed';
CREATE INDEX IF NOT EXISTS outbox_published   ON public.outbox (created_at) WHERE status = 'published';

-- Every row is written three times: inserted, claimed, settled. The space of the old versions is
-- used again soon only if vacuum comes often; HOT updates are not possible, because the status is
-- what the indexes are about.
ALTER TABLE public.outbox SET (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

-- Order per key is the order of ids. Two transactions that write the same key at once have none,
-- unless they lock the aggregate's row first (SELECT ... FOR UPDATE).
