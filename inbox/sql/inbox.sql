-- The two tables of walrelay-inbox, in the first schema of the search_path of the consumer's own
-- database. They may be shared by several consumers. Safe to run again; `Inbox::init` runs it.

-- Messages that were handled. The row is written in the transaction of the handler.
CREATE TABLE IF NOT EXISTS processed_messages (
    consumer      text        NOT NULL,
    message_id    text        NOT NULL,
    processed_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, message_id)
);

-- For the removal of old rows.
CREATE INDEX IF NOT EXISTS processed_messages_retention
    ON processed_messages (consumer, processed_at);

-- Messages that wait in a retry level. Later messages of their key are not handled before them.
CREATE TABLE IF NOT EXISTS deferred_messages (
    consumer      text        NOT NULL,
    message_id    text        NOT NULL,
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
    deferred_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, message_id)
);

CREATE INDEX IF NOT EXISTS deferred_messages_order
    ON deferred_messages (consumer, message_key, position);
