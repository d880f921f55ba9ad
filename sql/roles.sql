-- Two roles: one that owns things, one that only reads the slot.
-- Run by: a superuser, once, in the application's database. Safe to repeat.
-- Set the passwords afterwards with \password, so that they reach no log and no history.
--
-- What REPLICATION means: the relay's role can read every publication of this database, whatever
-- row-level security says, and can drop any slot of the server. It needs no SELECT on any table.
-- If that is too much, give the outbox a database cluster of its own.

-- Nobody's functions and operators but those of Postgres, whatever the database sets.
SET search_path = '';

DO $walrelay$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'walrelay_migrator') THEN
        CREATE ROLE walrelay_migrator LOGIN NOSUPERUSER NOREPLICATION;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'walrelay') THEN
        CREATE ROLE walrelay LOGIN REPLICATION NOSUPERUSER NOINHERIT;
    END IF;
    -- CREATE PUBLICATION needs CREATE on the database and ownership of the tables.
    EXECUTE pg_catalog.format('GRANT CREATE, CONNECT ON DATABASE %I TO walrelay_migrator', pg_catalog.current_database());
    EXECUTE pg_catalog.format('GRANT CONNECT ON DATABASE %I TO walrelay', pg_catalog.current_database());
    GRANT USAGE, CREATE ON SCHEMA public TO walrelay_migrator;
END
$walrelay$;

-- pg_hba.conf: one line for the relay, TLS only, no "replication" keyword (that line would allow a
-- physical copy of the whole server; logical replication uses the database's own line):
--   hostssl  app  walrelay  10.0.0.0/8  scram-sha-256
