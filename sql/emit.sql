-- The function outbox.emit: an event in the transaction of its caller.
-- Run by: the owner of the outbox table, in the application's database, after sql/outbox.sql. Safe to repeat.
--
--   SELECT outbox.emit('order', '4711', 'OrderPlaced', '{"total": "12.50"}');
--
-- It is for the shipped table. For a table of other names `walrelay init --emit` makes it, or prints it with --sql.

DO $walrelay$
BEGIN
    -- A schema that exists keeps its rights. The function has those of its caller: whoever may call it
    -- still needs INSERT on the table.
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = 'outbox') THEN
        CREATE SCHEMA outbox;
        GRANT USAGE ON SCHEMA outbox TO PUBLIC;
    END IF;
END
$walrelay$;

-- Inserts one row and returns the id of the event. Refuses missing names, headers that are no object, and a
-- malformed traceparent. INSERT without RETURNING, which would need the right to SELECT.
CREATE OR REPLACE FUNCTION outbox.emit(
    aggregate_type text,
    aggregate_id   text,
    event_type     text,
    payload        jsonb,
    headers        jsonb DEFAULT NULL,
    traceparent    text  DEFAULT NULL, -- when NULL, the setting outbox.traceparent of the session or transaction
    id             uuid  DEFAULT NULL  -- when NULL, a new one
) RETURNS uuid LANGUAGE plpgsql VOLATILE SECURITY INVOKER
    -- A temporary schema that is not named is searched first for types.
    SET search_path = pg_catalog, pg_temp AS $walrelay$
DECLARE
    event_id uuid := coalesce(emit.id, pg_catalog.gen_random_uuid());
    -- A setting that was local to an earlier transaction is empty from then on.
    trace    text := coalesce(emit.traceparent, nullif(pg_catalog.current_setting('outbox.traceparent', true), ''));
BEGIN
    IF coalesce(emit.aggregate_type, '') = '' THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = 'outbox.emit: aggregate_type is NULL or empty',
            HINT = 'Pass the kind of what has changed, such as ''order''; the topic is named after it.';
    ELSIF coalesce(emit.aggregate_id, '') = '' THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = 'outbox.emit: aggregate_id is NULL or empty',
            HINT = 'Pass the id of what has changed, such as order_id::text: events of one id keep their order.';
    ELSIF coalesce(emit.event_type, '') = '' THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = 'outbox.emit: event_type is NULL or empty',
            HINT = 'Pass what has happened, such as ''OrderPlaced''; consumers choose by it.';
    ELSIF pg_catalog.jsonb_typeof(emit.headers) <> 'object' THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = 'outbox.emit: headers are no JSON object but of type ' || pg_catalog.jsonb_typeof(emit.headers),
            HINT = 'Pass names and values, such as ''{"tenant": "blue"}'', or NULL (SQL''s, not that of JSON).';
    ELSIF trace !~ '^(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}|(?!00|ff)[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?)$'
          OR trace ~ '^.{3}0{32}' OR trace ~ '^.{36}0{16}'
    THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = pg_catalog.format('outbox.emit: traceparent is no W3C trace context: %L', pg_catalog.left(trace, 80)),
            HINT = 'Pass VERSION-TRACEID-SPANID-FLAGS in lowercase hex digits, such as '
                || '''00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'', or NULL'
                || CASE WHEN emit.traceparent IS NULL
                   THEN '; this one is the setting outbox.traceparent: SET LOCAL outbox.traceparent = '''' leaves it out.'
                   ELSE '.' END;
    END IF;

    INSERT INTO public.outbox (id, aggregatetype, aggregateid, type, payload, headers, traceparent)
    VALUES (event_id, emit.aggregate_type, emit.aggregate_id, emit.event_type, emit.payload, emit.headers, trace);
    RETURN event_id;
END
$walrelay$;

COMMENT ON FUNCTION outbox.emit(text, text, text, jsonb, jsonb, text, uuid)
    IS 'Writes an event into public.outbox, in the transaction of its caller (walrelay)';
