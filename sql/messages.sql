-- An outbox without a table: transactional logical messages.
-- Run by: anyone who may write; each run emits one event and stores nothing. The publication must
-- exist (it may be empty: CREATE PUBLICATION walrelay WITH (publish = 'insert');).
--
-- In walrelay.toml:  [source.messages]  prefix = "outbox"
--
-- The content is a JSON object whose fields play the columns. The first argument must be true:
-- only then does the message belong to the transaction. With false it would be sent at once, even
-- when the transaction rolls back, so the relay ignores those.

SELECT pg_catalog.pg_logical_emit_message(true, 'outbox', pg_catalog.json_build_object(
    'id', pg_catalog.gen_random_uuid(),
    'aggregatetype', 'order',
    'aggregateid', '4711',
    'type', 'OrderPlaced',
    'payload', pg_catalog.json_build_object('order', 4711, 'total', '12.50')
)::text);

-- Nothing is kept in the database: when the slot is lost, so is what it had not delivered.
