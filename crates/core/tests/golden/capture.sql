-- What the *.hex files beside this script hold, and how they were made:
--
--   psql -X -v ON_ERROR_STOP=1 -f tests/golden/capture.sql DATABASE
--
-- on a fresh database of a server with wal_level = logical and TimeZone UTC, as a superuser, run in
-- this folder. Each line of a .hex file is one pgoutput message. The .txt twin is the decode of it,
-- printed by `Debug`; it is checked by src/pgoutput/message_tests.rs. Oids, LSNs, xids and times
-- differ from run to run, so a new capture needs its twin written anew (WALRELAY_BLESS=1) and read.
-- events.txt holds the events that the outbox stage makes of them; src/outbox/tests.rs checks it.
\set QUIET on
\pset format unaligned
\pset tuples_only on

CREATE TYPE mood AS ENUM ('calm', 'angry');
CREATE TABLE outbox (
    id            uuid PRIMARY KEY,
    aggregatetype varchar(255) NOT NULL,
    aggregateid   varchar(255) NOT NULL,
    type          text,
    payload       jsonb,
    headers       jsonb,
    traceparent   text,
    created_at    timestamptz NOT NULL
);
ALTER TABLE outbox REPLICA IDENTITY FULL;
CREATE TABLE kinds (
    id     bigint PRIMARY KEY,
    small  smallint, medium integer, yes boolean,
    raw    bytea, js json, fixed char(4), short name, feeling mood
);
CREATE PUBLICATION walrelay FOR TABLE outbox, kinds;
SELECT FROM pg_create_logical_replication_slot('golden', 'pgoutput');

-- One event of about 330 bytes, as the benchmarks use it.
INSERT INTO outbox VALUES ('6f1d9a52-3c0e-4c57-9d0b-2a6f0c9b7e11', 'order', 'order-42', 'OrderPlaced',
    ('{"order": 42, "note": "' || repeat('x', 180) || '"}')::jsonb, '{"tenant": "acme", "attempt": 1}',
    '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01', '2026-01-02 03:04:05+00');
-- Nulls; insert and delete in one transaction.
BEGIN;
INSERT INTO outbox VALUES ('00000000-0000-0000-0000-000000000001', 'Ünï', 'k', NULL, NULL, NULL, NULL, '2026-01-02 03:04:05+00');
DELETE FROM outbox WHERE id = '00000000-0000-0000-0000-000000000001';
COMMIT;
UPDATE outbox SET type = 'OrderChanged';
INSERT INTO kinds VALUES (-9223372036854775808, -1, 2147483647, true, '\x00ff5c', '{"a" : 1}', 'ab', 'nam', 'calm');
INSERT INTO kinds VALUES (7, NULL, 0, false, '', '[]', '', '', 'angry');
UPDATE kinds SET id = 8 WHERE id = 7;
ALTER TABLE kinds ADD COLUMN extra text DEFAULT 'e';
INSERT INTO kinds (id) VALUES (9);
SELECT FROM pg_logical_emit_message(true, 'outbox', '{"id": "m-1", "payload": {"a": 1}}');
SELECT FROM pg_logical_emit_message(false, 'other', 'outside');
TRUNCATE outbox, kinds;

\o binary.hex
SELECT encode(data, 'hex') FROM pg_logical_slot_peek_binary_changes('golden', NULL, NULL,
    'proto_version', '1', 'publication_names', 'walrelay', 'messages', 'true', 'binary', 'true');
\o text.hex
SELECT encode(data, 'hex') FROM pg_logical_slot_peek_binary_changes('golden', NULL, NULL,
    'proto_version', '1', 'publication_names', 'walrelay', 'messages', 'true', 'binary', 'false');
\o
SELECT FROM pg_drop_replication_slot('golden');
