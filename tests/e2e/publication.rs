//! Tests with changes of a publication while no relay runs: rows that Postgres leaves out are
//! reported, and tables that are no outbox cost nothing.

use walrelay_harness::{Postgres, PostgresOptions};

use crate::support::faults::{CliFixture, OUTBOX_SQL, keys};

#[test]
fn a_gap_that_opened_and_closed_without_a_connection_ends_the_relay() {
    // GIVEN a relay that streams
    let scene = CliFixture::ready("pub_gap");
    let mut relay = scene.spawn(&["run"]);
    scene.wait_streaming(&mut relay);
    scene.insert("1", "{}");
    scene.wait_confirmed(&mut relay);
    // WHEN all of its connections end, and the table is out of the publication for one row, with no
    // moment at which anybody could have seen it
    scene.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid();
         ALTER PUBLICATION walrelay DROP TABLE outbox;
         INSERT INTO outbox (aggregatetype, aggregateid, type, payload)
             VALUES ('pub_gap', '2', 'T', '{}');
         ALTER PUBLICATION walrelay ADD TABLE outbox",
    );
    // THEN it says so, and how to publish what is missing
    let ended = relay.wait();
    ended.assert_fault(
        4,
        "publication.recreated",
        &[
            "public.outbox was taken out of publication walrelay and put back",
            "WITH moved AS (DELETE FROM \"public\".\"outbox\" WHERE created_at >= 'TIME' RETURNING *)",
        ],
    );
    // AND what it says helps, once it is acknowledged
    scene.walrelay(&["run"]).assert_fault(4, "publication.recreated", &["stopped since"]);
    scene.walrelay(&["resume", "--yes"]).assert_done();
    scene.sql(
        "WITH moved AS (DELETE FROM public.outbox WHERE aggregateid >= '2' RETURNING *)
             INSERT INTO public.outbox SELECT * FROM moved ORDER BY created_at",
    );
    assert_eq!(keys(&scene.carry(&[&scene.topic()])), ["1", "2"]);
}

#[test]
fn tables_that_are_no_outbox_cost_no_connection_and_no_warning() {
    // GIVEN a publication of all tables, and more of them than anybody would list
    let scene = CliFixture::bare("pub_all");
    scene.sql(OUTBOX_SQL);
    scene.sql(
        "DO $$ BEGIN FOR n IN 1..1500 LOOP
             EXECUTE format('CREATE TABLE other_%s (LIKE outbox INCLUDING DEFAULTS INCLUDING IDENTITY)', n); END LOOP; END $$",
    );
    scene.prepare("ALL TABLES", &scene.topic());
    let each = |range: &str| {
        scene.sql(&format!(
            "DO $$ BEGIN FOR n IN {range} LOOP EXECUTE format('INSERT INTO other_%s
                 (aggregatetype, aggregateid, type) VALUES (''none'', ''k'', ''T'')', n);
             END LOOP; END $$"
        ))
    };
    each("1..1499");
    scene.insert("1", "{}");
    let mut relay = scene.spawn(&["run"]);
    scene.wait_streaming(&mut relay);
    scene.wait_confirmed(&mut relay);
    // WHEN a row comes of a table that was known at the start, of one that is made now, of one that
    // is gone, and of the outbox while it had another name
    each("1500..1500");
    scene.sql("CREATE TABLE other_1501 (LIKE outbox INCLUDING DEFAULTS INCLUDING IDENTITY)");
    each("1501..1501");
    scene.sql("CREATE TABLE other_1502 (LIKE outbox INCLUDING DEFAULTS INCLUDING IDENTITY)");
    each("1502..1502");
    scene.sql("DROP TABLE other_1502");
    scene.sql(
        "ALTER TABLE outbox RENAME TO away;
         INSERT INTO away (aggregatetype, aggregateid, type, payload)
             VALUES ('pub_all', '2', 'T', '{}');
         ALTER TABLE away RENAME TO outbox",
    );
    scene.insert("3", "{}");
    scene.wait_confirmed(&mut relay);
    // THEN the same stream has brought all of it
    let said = relay.said();
    relay.stop();
    assert_eq!(keys(&scene.records()), ["1", "2", "3"], "{said}");
    assert_eq!(said.matches("\"message\":\"streaming\"").count(), 1, "{said}");
    // What the preflight says of the server is no matter here.
    let warnings = |line: &&str| line.contains("WARN") && !line.contains("walrelay::findings");
    assert_eq!(said.lines().filter(warnings).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn a_wal_behind_a_publication_gap_is_told_by_check_and_repeats_nothing_on_17() {
    read_into_a_gap(17);
}

#[test]
#[ignore = "soak"]
fn a_wal_behind_a_publication_gap_is_told_by_check_and_repeats_nothing_on_18() {
    read_into_a_gap(18);
}

fn read_into_a_gap(major: u32) {
    const ROWS: usize = 100;
    let options = PostgresOptions { version: Some(major), ..PostgresOptions::default() };
    let postgres = Postgres::start(options).unwrap();
    let name = format!("pub_gap_{major}");
    let scene = CliFixture::on(&postgres, &name).with_outbox();
    // GIVEN rows, then one that was written without a publication, then more
    let rows = |from: usize, to: usize| {
        scene.sql(&format!(
            "INSERT INTO outbox (aggregatetype, aggregateid, type, payload)
             SELECT '{name}', n, 'T', '{{}}' FROM generate_series({from}, {to}) n"
        ))
    };
    rows(1, ROWS);
    scene.walrelay(&["check"]).assert_done();
    scene.sql("DROP PUBLICATION walrelay");
    rows(ROWS + 1, ROWS + 1);
    scene.publish("TABLE public.outbox");
    rows(ROWS + 2, ROWS + 2);
    // WHEN the relay is started again and again THEN it gets as far as it can, and nothing comes
    // twice
    let told = [
        "did not exist when the next part of the WAL was written",
        &format!("walrelay slot drop {name} && walrelay slot create"),
        "WITH moved AS (DELETE FROM \"public\".\"outbox\" WHERE created_at >= 'TIME' RETURNING *)",
    ];
    for start in 1..=3 {
        // THEN check says the same, and moves nothing
        let before = scene.slot_state();
        let check = scene.walrelay(&["check"]);
        assert_eq!(check.code, 1, "{check}");
        for words in told {
            assert!(check.out.contains(words), "{words:?} is not in\n{check}");
        }
        assert_eq!(scene.slot_state(), before);
        let ended = scene.walrelay(&["run"]);
        ended.assert_fault(4, "publication.missing", &told);
        assert_eq!(scene.records().len(), ROWS, "start {start}\n{ended}");
    }
    // WHEN that is done which they say
    scene.walrelay(&["slot", "drop", &name, "--yes"]).assert_done();
    scene.walrelay(&["slot", "create"]).assert_done();
    scene.sql(&format!(
        "WITH moved AS (DELETE FROM outbox WHERE aggregateid::int > {ROWS} RETURNING *)
             INSERT INTO outbox SELECT * FROM moved ORDER BY created_at"
    ));
    // THEN everything is there, once
    scene.walrelay(&["check"]).assert_done();
    assert_eq!(scene.carry(&[&scene.topic()]).len(), ROWS + 2);
}
