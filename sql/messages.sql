-- An outbox without a table: transactional logical messages.
-- Run by: a superuser, once in the application's database, with the role that writes events:
--
--   psql app -v role=NAME -f sql/messages.sql
--
-- Every role may call pg_logical_emit_message, and so every role could emit events. From now on only NAME
-- (and superusers) can. Run it again for each further role. The right belongs to the database: another
-- database, or one that was made anew, needs it again. Before an upgrade from 16 or older to 17 or newer it
-- must be put back (docs/outbox.md), because the function has other arguments there.
--
-- In walrelay.toml:  [source.messages]  prefix = "outbox"
-- The publication must exist; it may be empty: CREATE PUBLICATION walrelay WITH (publish = 'insert');

-- Nobody's functions and operators but those of Postgres, whatever the database sets.
SET search_path = '';

-- Where the role does not exist, PUBLIC keeps the right.
\set ON_ERROR_STOP on

\if :{?role}
SELECT pg_catalog.format('GRANT EXECUTE ON FUNCTION pg_catalog.pg_logical_emit_message(%s) TO %I',
                         pg_catalog.oidvectortypes(f.proargtypes), :'role')
FROM pg_catalog.pg_proc f JOIN pg_catalog.pg_namespace n ON n.oid = f.pronamespace
WHERE n.nspname = 'pg_catalog' AND f.proname = 'pg_logical_emit_message' \gexec
SELECT pg_catalog.format('REVOKE EXECUTE ON FUNCTION pg_catalog.pg_logical_emit_message(%s) FROM PUBLIC',
                         pg_catalog.oidvectortypes(f.proargtypes))
FROM pg_catalog.pg_proc f JOIN pg_catalog.pg_namespace n ON n.oid = f.pronamespace
WHERE n.nspname = 'pg_catalog' AND f.proname = 'pg_logical_emit_message' \gexec
\else
\warn 'nothing was changed: name the role that writes events: psql -v role=NAME -f sql/messages.sql'
\endif

-- An event is a JSON object whose fields take the place of columns. The first argument must be true: only then does
-- the message belong to the transaction. With false it would be sent at once, even when the transaction
-- rolls back, so the relay ignores those.
--
--   SELECT pg_logical_emit_message(true, 'outbox', json_build_object(
--       'id', gen_random_uuid(),
--       'aggregatetype', 'order',
--       'aggregateid', '4711',
--       'type', 'OrderPlaced',
--       'payload', json_build_object('order', 4711, 'total', '12.50')
--   )::text);
--
-- Nothing is kept in the database: when the slot is lost, so is what it had not delivered.
