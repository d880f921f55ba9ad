-- The two tables of walrelay-inbox, in the first schema of the search_path of the consumer's own
-- database. They may be shared by several consumers. Safe to run again; `Inbox::init` runs it.
--
-- `CREATE INDEX IF NOT EXISTS` locks its table before it looks, and would wait for all handlers that
-- run while new ones wait behind it. So each object is looked for first. The advisory lock lets one
-- instance after another look.
DO $$
DECLARE
    own text := quote_ident(current_schema());
BEGIN
    PERFORM pg_advisory_xact_lock(8030605401);

    -- Messages that were handled, or are dead letters. The row of a handled one is written in the
    -- transaction of the handler. Ids are compared byte by byte: an index in the order of a language
    -- breaks when the operating system changes that order, and repetitions would not be recognised.
    IF to_regclass(own || '.processed_messages') IS NULL THEN
        CREATE TABLE processed_messages (
            consumer      text        COLLATE "C" NOT NULL,
            message_id    text        COLLATE "C" NOT NULL,
            processed_at  timestamptz NOT NULL DEFAULT now(),
            -- NULL: it was handled. Otherwise it is a dead letter that had been replayed so often; only
            -- a further replay is handled.
            dead_replays  int,
            PRIMARY KEY (consumer, message_id)
        );
    END IF;

    -- For the removal of old rows.
    IF to_regclass(own || '.processed_messages_retention') IS NULL THEN
        CREATE INDEX processed_messages_retention
            ON processed_messages (consumer, processed_at);
    END IF;

    -- Messages that wait in a retry level. Later messages of their key are not handled before them.
    IF to_regclass(own || '.deferred_messages') IS NULL THEN
        CREATE TABLE deferred_messages (
            consumer      text        COLLATE "C" NOT NULL,
            message_id    text        COLLATE "C" NOT NULL,
            -- The key, or its beginning with a hash. NULL: the message has no key, and no order.
            message_key   bytea,
            -- The order within a key.
            position      bigint      GENERATED ALWAYS AS IDENTITY,
            -- The retry level in which the copy waits, from 1.
            level         int         NOT NULL,
            -- How often the handler has failed.
            attempts      int         NOT NULL DEFAULT 0,
            -- Number of the newest copy that the broker has confirmed; older copies are ignored.
            copy          int         NOT NULL DEFAULT 0,
            -- When the copy leaves its level.
            due_at        timestamptz NOT NULL DEFAULT now(),
            -- How often its dead letter had been replayed when it was deferred.
            replays       int         NOT NULL DEFAULT 0,
            PRIMARY KEY (consumer, message_id)
        );
    END IF;

    IF to_regclass(own || '.deferred_messages_order') IS NULL THEN
        CREATE INDEX deferred_messages_order
            ON deferred_messages (consumer, message_key, position);
    END IF;
END $$;
