-- The publication: which rows leave the database.
-- Run by: the migrator, as owner of the outbox table with CREATE on the database
-- (sql/roles.sql), BEFORE the slot is created. Safe to repeat.
--
-- insert only: an UPDATE or DELETE on the outbox then costs nothing downstream, and a table
-- without primary key keeps accepting them. Via the partition root: a partitioned outbox arrives
-- under its own name.

-- Nobody's functions and operators but those of Postgres, whatever the database sets.
SET search_path = '';

DO $walrelay$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_publication WHERE pubname = 'walrelay') THEN
        CREATE PUBLICATION walrelay FOR TABLE public.outbox
            WITH (publish = 'insert', publish_via_partition_root = true);
    ELSIF NOT EXISTS (SELECT FROM pg_catalog.pg_publication_tables
                      WHERE pubname = 'walrelay'
                        AND schemaname = 'public' AND tablename = 'outbox') THEN
        -- Waits for open transactions that have written to the table: rows of theirs would be missing.
        SET LOCAL lock_timeout = '10s';
        LOCK TABLE public.outbox IN SHARE ROW EXCLUSIVE MODE;
        ALTER PUBLICATION walrelay ADD TABLE public.outbox;
    END IF;
END
$walrelay$;

-- Then, as the relay's role or a superuser:  walrelay slot create
-- Never drop and re-create a publication that a slot is reading: rows written in between are lost.
