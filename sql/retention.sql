-- Keeping the outbox small: three ways, choose one.
-- Run by: the owner of the outbox table. This file as it is only defines the function of the third
-- way and deletes nothing. Safe to repeat.
-- Called by: the owner, from a scheduler; another role needs SELECT and DELETE on public.outbox, and
-- SELECT, INSERT and UPDATE on public.outbox_retention_mark.
--
-- Deleting costs something that is easy to forget: when the slot is lost (dropped, or its WAL
-- removed), rows that are gone cannot be published again. Keep rows for at least as long as it
-- takes to notice a lost slot and to repair it.

-- 1. Insert and delete in the same transaction. The table stays empty; the row travels in the WAL.
--    Nothing is left to repair from.
--
--      BEGIN;
--      INSERT INTO public.outbox (aggregatetype, aggregateid, type, payload) VALUES (...) RETURNING id;
--      DELETE FROM public.outbox WHERE id = ...;
--      COMMIT;

-- 2. Drop partitions. A table partitioned by created_at loses a day at once, without bloat. Create
--    partitions ahead of time, keep publish_via_partition_root = true, and before each drop see
--    that the slot is past it, as in the third way.
--
--      CREATE TABLE public.outbox (..., PRIMARY KEY (id, created_at)) PARTITION BY RANGE (created_at);
--      DROP TABLE public.outbox_2031_05_01;

-- 3. Delete in batches what the slot has confirmed.
--    A row does not know the LSN of its commit, so "is it below confirmed_flush_lsn?" cannot be
--    asked of a row. What can be asked: note the end of WAL now, together with the oldest
--    transaction that is still open. Every row whose transaction had ended by then has a commit
--    below that LSN; once the slot has confirmed that LSN, those rows, and only those, may go.
--    So it takes two visits: one notes a mark, a later one finds it confirmed and deletes.
--    The mark holds the LSN and the snapshot's xmin. A row's xmin that is older than it belongs
--    to a transaction that had ended. (A frozen row may keep an xmin that looks young: such a row
--    stays longer than it had to, which is the harmless direction.)
--    After a slot was re-created, do not call the function before the rows that the old one never
--    delivered were published ("A lost slot" in docs/operations.md): the new slot counts them as
--    confirmed.

CREATE TABLE IF NOT EXISTS public.outbox_retention_mark (
    slot          name        PRIMARY KEY,
    lsn           pg_lsn      NOT NULL,
    snapshot_xmin xid8        NOT NULL,
    marked_at     timestamptz NOT NULL DEFAULT pg_catalog.now()
);

-- Deletes at most batch rows that are confirmed and older than keep; returns how many. Call it
-- every minute, each call in a transaction of its own, and again at once while it returns batch.
-- It reads the whole table, unless an index serves it:
-- CREATE INDEX CONCURRENTLY outbox_created_at ON public.outbox (created_at);
-- It does nothing when the slot is missing, lost or behind the mark.
CREATE OR REPLACE FUNCTION public.outbox_trim(slot name, keep interval, batch integer)
RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $walrelay$
DECLARE
    mark      public.outbox_retention_mark;
    confirmed pg_lsn;
    deleted   bigint := 0;
BEGIN
    SELECT s.confirmed_flush_lsn INTO confirmed
    FROM pg_catalog.pg_replication_slots s
    WHERE s.slot_name = outbox_trim.slot AND s.database = pg_catalog.current_database()
      AND s.wal_status <> 'lost';
    IF confirmed IS NULL THEN
        RETURN 0;
    END IF;

    SELECT * INTO mark FROM public.outbox_retention_mark m
    WHERE m.slot = outbox_trim.slot FOR UPDATE;

    -- A mark from another server, as in a table that was restored from a dump, tells nothing here.
    IF mark.lsn > pg_catalog.pg_current_wal_insert_lsn()
       OR mark.snapshot_xmin > pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())
    THEN
        mark := NULL;
    END IF;

    -- A mark a billion transactions old no longer tells new rows from old ones: take another.
    IF mark.lsn <= confirmed
       AND pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::numeric - mark.snapshot_xmin::text::numeric < 1e9
    THEN
        DELETE FROM public.outbox o WHERE o.id = ANY (ARRAY(
            SELECT c.id FROM public.outbox c
            WHERE c.created_at < pg_catalog.now() - keep
              -- A row's xmin has 32 bits: its distance from the mark is taken in that circle.
              AND ((mark.snapshot_xmin::text::numeric - c.xmin::text::numeric) % 4294967296
                   + 4294967296) % 4294967296 BETWEEN 1 AND 2147483647
            LIMIT batch));
        GET DIAGNOSTICS deleted = ROW_COUNT;
        -- The mark stays until it has nothing left to give.
        IF deleted >= batch THEN
            RETURN deleted;
        END IF;
    END IF;

    -- Snapshot first, end of WAL second: what had ended before the snapshot is below that LSN.
    IF mark.lsn IS NULL OR mark.lsn <= confirmed THEN
        INSERT INTO public.outbox_retention_mark AS m (slot, lsn, snapshot_xmin)
        SELECT outbox_trim.slot, pg_catalog.pg_current_wal_insert_lsn(),
               pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())
        ON CONFLICT ON CONSTRAINT outbox_retention_mark_pkey
        DO UPDATE SET lsn = excluded.lsn, snapshot_xmin = excluded.snapshot_xmin,
                      marked_at = pg_catalog.now();
    END IF;
    RETURN deleted;
END
$walrelay$;
