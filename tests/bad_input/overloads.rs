//! Foreign code: the owner of a database puts functions, aggregates and operators in the way of
//! whoever works there. Nothing of it is called, whatever is run and with whatever rights.

use std::collections::BTreeSet;
use std::path::Path;

use crate::support::faults::{CliFixture, OUTBOX_SQL, POLLING_SQL};
use crate::support::query;

const OVERLOADS_SQL: &str = include_str!("overloads.sql");
const OWNER: &str = "overloads_owner";

/// A type of somebody's own, with operators in its own schema.
const TYPE_SQL: &str = "
CREATE TYPE app.seq;
CREATE FUNCTION app.seq_in(cstring) RETURNS app.seq LANGUAGE internal IMMUTABLE STRICT AS 'int8in';
CREATE FUNCTION app.seq_out(app.seq) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'int8out';
CREATE TYPE app.seq (INPUT = app.seq_in, OUTPUT = app.seq_out, LIKE = int8);
CREATE FUNCTION app.seq_lt(app.seq, app.seq) RETURNS boolean LANGUAGE internal IMMUTABLE STRICT AS 'int8lt';
CREATE FUNCTION app.seq_eq(app.seq, app.seq) RETURNS boolean LANGUAGE internal IMMUTABLE STRICT AS 'int8eq';
CREATE FUNCTION app.seq_cmp(app.seq, app.seq) RETURNS integer LANGUAGE internal IMMUTABLE STRICT AS 'btint8cmp';
CREATE OPERATOR app.< (LEFTARG = app.seq, RIGHTARG = app.seq, FUNCTION = app.seq_lt);
CREATE OPERATOR app.= (LEFTARG = app.seq, RIGHTARG = app.seq, FUNCTION = app.seq_eq, MERGES);
CREATE OPERATOR CLASS app.seq_ops DEFAULT FOR TYPE app.seq USING btree AS
    OPERATOR 1 app.<, OPERATOR 3 app.=, FUNCTION 1 app.seq_cmp(app.seq, app.seq);
";

/// Every function that the relay's SQL calls, as `sql_names_what_it_means_by_schema`
/// has it written.
fn names() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.join("src"), root.join("crates")];
    let mut names = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(path).unwrap();
                let called =
                    text.split("pg_catalog.").skip(1).filter_map(|rest| rest.split_once('('));
                let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
                let called = called.map(|(name, _)| name).filter(|name| name.chars().all(is_name));
                names.extend(called.map(str::to_owned));
            }
        }
    }
    names
}

/// A database whose owner is no friend; the relay logs in as another superuser than the test,
/// because a session of the test would be caught.
fn scene() -> CliFixture<'static> {
    let mut scene = CliFixture::bare("overloads");
    scene.sql(&format!(
        "CREATE ROLE {OWNER} LOGIN; CREATE ROLE overloads_super LOGIN SUPERUSER;
         ALTER DATABASE overloads OWNER TO {OWNER}; CREATE SCHEMA app; GRANT USAGE ON SCHEMA app TO PUBLIC;
         ALTER ROLE postgres IN DATABASE overloads SET search_path = pg_catalog, app"
    ));
    scene.sql(TYPE_SQL);
    scene.sql(&OUTBOX_SQL.replace("public.outbox", "app.outbox"));
    scene.sql(&POLLING_SQL.replace("public.outbox", "app.polled"));
    scene.sql("ALTER TABLE app.polled ADD COLUMN event_id app.seq UNIQUE");
    let owner = scene.url.replace("postgres@", &format!("{OWNER}@"));
    let names: Vec<String> = names().iter().map(|name| format!("'{name}'")).collect();
    assert!(names.len() > 50, "the names were not found: {names:?}");
    let names = format!("ARRAY[{}]::pg_catalog.text[]", names.join(", "));
    query(&owner, &OVERLOADS_SQL.replace("(NAMES)", &format!("({names})"))).unwrap();
    query(&owner, "ALTER DATABASE overloads SET search_path = public, pg_catalog").unwrap();
    scene.url = scene.url.replace("postgres@", "overloads_super@");
    scene.route = format!("topic = \"{}\"\n", scene.topic());
    scene.make_topic(&scene.topic(), 1);
    scene.source = "[[source.outbox]]\ntable = \"app.outbox\"\n".into();
    scene
}

/// Nobody was caught since the last look.
#[track_caller]
fn assert_free(scene: &CliFixture<'_>, after: &str) {
    let calls = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM public.caught";
    let what =
        "SELECT coalesce(string_agg(DISTINCT what, ', '), 'rolled back') FROM public.callers";
    assert_eq!(scene.sql(calls), "0", "{after}: {}", scene.sql(what));
    let made = format!("SELECT rolsuper FROM pg_roles WHERE rolname = '{OWNER}'");
    assert_eq!(scene.sql(&made), "f", "{after}");
}

#[test]
fn no_function_or_operator_of_the_databases_owner_is_ever_called() {
    let mut scene = scene();
    // GIVEN traps that work
    for sql in [
        "SELECT to_jsonb(s) FROM pg_catalog.pg_replication_slots s RIGHT JOIN pg_catalog.pg_class c ON true LIMIT 1",
        "SELECT count(*) FROM pg_catalog.pg_class",
        "SELECT 1 WHERE 'a'::name = 'b'::text",
        "SELECT json_agg(relname) FROM pg_catalog.pg_class",
    ] {
        // Some are of another kind than what they stand before, and end the statement.
        query(&scene.url, sql).ok();
        let caught = scene.sql("SELECT is_called FROM public.caught");
        assert_eq!(caught, "t", "{sql}");
        scene.sql("SELECT setval('public.caught', 1, false)");
    }
    let made = format!("SELECT rolsuper FROM pg_roles WHERE rolname = '{OWNER}'");
    assert_eq!(scene.sql(&made), "t", "the traps are harmless");
    scene.sql(&format!("ALTER ROLE {OWNER} NOSUPERUSER; TRUNCATE public.callers"));
    // WHEN a superuser does whatever there is to do with a slot
    for words in [&["check"][..], &["init", "--sql"], &["init"], &["check"], &["slot", "show"]] {
        scene.walrelay(words);
        assert_free(&scene, &words.join(" "));
    }
    scene.insert("1", "{}");
    assert_eq!(scene.carry(&[&scene.topic()]).len(), 1);
    assert_free(&scene, "run");
    let compare =
        ["compare", "--rates", "100", "--intervals", "none", "--backlog", "0", "--duration", "1s"];
    scene.walrelay(&compare).assert_done();
    assert_free(&scene, "compare");
    scene.walrelay(&["slot", "drop", "--yes"]).assert_done();
    assert_free(&scene, "slot drop");
    // AND with a polled table whose ids are of a type with operators elsewhere
    scene.source = "mode = \"polling\"\n[source.polling]\ninterval = \"50ms\"\n[[source.outbox]]\n\
                    table = \"app.polled\"\ncolumns = { id = \"event_id\", key = \"event_key\" }\n"
        .into();
    scene.sql(
        "INSERT INTO app.polled (event_id, event_key, payload, status)
         VALUES ('1', 'k', '{}', 'pending'), ('2', 'k', '{}', 'failed')",
    );
    for words in [&["check"][..], &["init"], &["outbox", "list"], &["outbox", "retry", "--all"]] {
        scene.walrelay(words).assert_done();
        assert_free(&scene, &words.join(" "));
    }
    let mut relay = scene.spawn(&["run"]);
    let left = "SELECT count(*) FROM app.polled WHERE status <> 'published'";
    relay.wait_until("the rows", || scene.sql(left) == "0");
    relay.stop();
    assert_free(&scene, "polling");
    scene.walrelay(&["outbox", "handover"]).assert_done();
    assert_free(&scene, "outbox handover");
}
