-- The outbox table.
-- Run by: the migrator (sql/roles.sql), in the application's database. Safe to repeat.
--
-- The application INSERTs one row per event, in the transaction that changes its data.
-- Column names can be mapped in walrelay.toml ([[source.outbox]] columns = { … }).

CREATE TABLE IF NOT EXISTS public.outbox (
    id            uuid        PRIMARY KEY DEFAULT pg_catalog.gen_random_uuid(), -- event id: consumers drop duplicates by it
    aggregatetype text        NOT NULL,                              -- topic: outbox.event.<aggregatetype>
    aggregateid   text        NOT NULL,                              -- ordering key: order holds per key
    type          text        NOT NULL,                              -- event type, e.g. OrderPlaced
    payload       jsonb,                                             -- carried as it is; text, json and bytea work too
    headers       jsonb,                                             -- object of further headers
    traceparent   text,                                              -- W3C trace context
    created_at    timestamptz NOT NULL DEFAULT pg_catalog.now()
);

-- Order per key is the order of commits. Two transactions that write the same key at once have
-- none, unless they lock the aggregate's row first (SELECT … FOR UPDATE).
