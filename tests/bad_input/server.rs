//! The server, the role and the way there.

use walrelay_harness::{Postgres, PostgresOptions};

use crate::support::faults::CliFixture;

const CANARY: &str = "c4n4ry-p4ssw0rd";

#[test]
fn a_wrong_password_is_told_and_never_printed() {
    let hba = "host all walrelay 127.0.0.1/32 scram-sha-256\nhost all nobody 127.0.0.1/32 reject";
    let options = PostgresOptions { hba: Some(hba.into()), ..Default::default() };
    let postgres = Postgres::start(options).unwrap();
    let mut scene = CliFixture::on(&postgres, "server_password");
    scene.sql("CREATE ROLE walrelay LOGIN REPLICATION PASSWORD 'right'; CREATE ROLE nobody LOGIN");
    let base = scene.url.clone();
    scene.sink.push_str(&format!("properties = {{ \"sasl.password\" = \"{CANARY}\" }}\n"));
    let commands: [&[&str]; 6] = [
        &["run", "--log", "trace"],
        &["check"],
        &["check", "--json"],
        &["init"],
        &["slot", "show"],
        &["config", "show"],
    ];
    scene.url = base.replace("postgres@", &format!("walrelay:{CANARY}@"));
    for words in commands {
        let ended = scene.walrelay(words);
        assert!(!ended.all().contains(CANARY), "{ended}");
        if words[0] != "config" {
            ended.assert_says(&["password authentication failed", "set it in psql: "]);
            let code = if words[0] == "check" { 1 } else { 4 };
            assert_eq!(ended.code, code, "{ended}");
        }
    }
    scene.walrelay(&["run"]).assert_fault(
        4,
        "source.password",
        &["the password came from source.url or PGPASSWORD"],
    );
    // THEN it is the same from the environment, and none at all is another fault
    scene.url = base.replace("postgres@", "walrelay@");
    scene.env = vec![("PGPASSWORD".into(), CANARY.into())];
    let ended = scene.walrelay(&["run"]);
    ended.assert_fault(4, "source.password", &[]);
    assert!(!ended.all().contains(CANARY), "{ended}");
    scene.env = vec![("HOME".into(), "/nonexistent".into())];
    scene.walrelay(&["run"]).assert_fault(4, "source.no-password", &["PGPASSWORD", ".pgpass"]);
    // THEN a passfile that was named and is not there is told, not passed over
    scene.env = vec![("PGPASSFILE".into(), "/nonexistent/pw".into())];
    let words = ["the passfile /nonexistent/pw cannot be read", "ls -l /nonexistent/pw"];
    scene.walrelay(&["run"]).assert_fault(1, "config.missing-secret", &words);
    scene.env.clear();
    // THEN a role that pg_hba.conf turns away gets the line that lets it in
    scene.url = base.replace("postgres@", "nobody@");
    scene.walrelay(&["run"]).assert_fault(
        4,
        "source.pg-hba",
        &["host \"server_password\" \"nobody\" 127.0.0.1/32 scram-sha-256"],
    );
}

#[test]
fn an_unreachable_postgres_ends_the_start() {
    let mut scene = CliFixture::waiting("server_unreachable");
    scene.url = "postgres://postgres@127.0.0.1:1/server_unreachable".into();
    let words = ["127.0.0.1:1", "pg_isready -h 127.0.0.1 -p 1"];
    scene.walrelay(&["check"]).assert_says(&["[source.unreachable]", words[1], "✓ kafka answers"]);
    scene.assert_refused(4, "source.unreachable", &words);
    scene.url = "postgres://postgres@no-such-host.invalid/server_unreachable".into();
    scene.walrelay(&["check"]).assert_says(&["no-such-host.invalid", "source.url"]);
}

#[test]
fn what_the_server_warns_of_at_a_login_is_logged_and_breaks_nothing() {
    let scene = CliFixture::waiting("server_warns");
    scene.sql(
        "CREATE FUNCTION warns() RETURNS event_trigger LANGUAGE plpgsql
             AS $$ BEGIN RAISE WARNING 'ends on Friday'; END $$;
         CREATE EVENT TRIGGER warns ON login EXECUTE FUNCTION warns();
         ALTER EVENT TRIGGER warns ENABLE ALWAYS",
    );
    let mut relay = scene.spawn(&["run"]);
    scene.wait_streaming(&mut relay);
    scene.wait_confirmed(&mut relay);
    let ended = relay.stop();
    // THEN once, though the stream and the SQL sessions beside it each log in
    let warns = |line: &&str| line.contains("ends on Friday") && line.contains("source.notice");
    assert_eq!(ended.err.lines().filter(warns).count(), 1, "{ended}");
    assert_eq!(scene.records().len(), 1);
}
