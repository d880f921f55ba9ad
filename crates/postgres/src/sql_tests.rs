use super::*;
use crate::connect::{self, ConnectErrorKind};
use crate::settings::SourceSettings;
use crate::testing;

const LIMIT: Duration = Duration::from_secs(20);

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_connection_that_is_dropped_unanswered_is_closed() {
    let (admin, settings) = testing::logical().database("sql_dropped").await;
    let mut info = settings.connection;
    info.application_name = "sql_dropped".to_owned();
    // GIVEN a server that notices when the other end of a connection is closed
    info.options = Some("-c client_connection_check_interval=50ms".to_owned());
    let sql = connect(&info).await.unwrap();
    // WHEN a query is not answered in time, and the connection is dropped
    let query = sql.client.batch_execute("SELECT pg_catalog.pg_sleep(600)");
    assert!(sql.within(Duration::from_millis(200), query).await.is_err());
    drop(sql);
    // THEN its server process ends
    let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'sql_dropped'";
    let gone = async {
        while admin.query_one(count, &[]).await.unwrap().get::<_, i64>(0) > 0 {
            sleep_a_little().await;
        }
    };
    timeout(LIMIT, gone).await.expect("the server process ends");
    // WHEN only the client is kept THEN the connection is, too
    let client = connect(&info).await.unwrap().into_client();
    sleep(CLOSE_WITHIN * 2).await;
    client.batch_execute("SELECT 1").await.unwrap();
}

async fn sleep_a_little() {
    sleep(Duration::from_millis(20)).await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn no_time_limit_of_the_role_applies_to_a_stream() {
    let (admin, settings) = testing::logical().database("sql_limits").await;
    let version = admin.query_one("SELECT current_setting('server_version_num')::int", &[]);
    let version: i32 = version.await.unwrap().get(0);
    let mut limits = vec!["statement_timeout", "idle_in_transaction_session_timeout"];
    limits.extend((version >= 170_000).then_some("transaction_timeout"));
    for limit in &limits {
        let sql = format!("ALTER DATABASE sql_limits SET {limit} = '7s'");
        admin.batch_execute(&sql).await.unwrap();
    }
    let mut stream = connect::open(&settings.connection).await.unwrap();
    for limit in limits {
        let rows = stream.query(&format!("SHOW {limit}")).await.unwrap();
        assert_eq!(rows[0][0].as_deref(), Some("0"), "{limit}");
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_stream_keeps_the_wal_sender_timeout_with_which_it_began() {
    let server = testing::alone();
    let (admin, settings) = server.database("sql_timeout").await;
    let mut stream = connect::open(&settings.connection).await.unwrap();
    // WHEN an administrator lowers it, and a session without a value of its own has it
    admin.batch_execute("ALTER SYSTEM SET wal_sender_timeout = '7s'").await.unwrap();
    admin.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    let lowered = async {
        let shown = || admin.query_one("SELECT current_setting('wal_sender_timeout')", &[]);
        while shown().await.unwrap().get::<_, String>(0) != "7s" {
            sleep_a_little().await;
        }
    };
    timeout(LIMIT, lowered).await.expect("the configuration is read again");
    // THEN the lease of the stream is as long as before
    let rows = stream.query("SHOW wal_sender_timeout").await.unwrap();
    assert_eq!(rows[0][0].as_deref(), Some("1min"));
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_partition_that_is_locked_holds_up_no_look_at_the_catalog() {
    let (client, settings) = testing::logical().database("sql_locked").await;
    let made = "CREATE TABLE outbox (id int) PARTITION BY RANGE (id);
        CREATE TABLE leaf PARTITION OF outbox DEFAULT;
        CREATE PUBLICATION sql_locked FOR TABLE outbox";
    client.batch_execute(made).await.unwrap();
    client.batch_execute("BEGIN; LOCK TABLE leaf IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let other = connect(&settings.connection).await.unwrap();
    let looks = async {
        let catalog = crate::catalog::read(&other.client, &settings).await.unwrap();
        assert_eq!(catalog.outboxes.len(), 2, "{catalog:?}");
        let published = crate::publication::published(&other.client, &settings).await.unwrap();
        let tables = published.publication.unwrap().tables;
        assert!(tables.iter().any(|table| table.name == "leaf"), "{tables:?}");
    };
    timeout(LIMIT, looks).await.expect("neither waits for the lock");
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn the_error_of_a_statement_does_not_show_the_row() {
    let (_, settings) = testing::logical().database("sql_values").await;
    let sql = connect(&settings.connection).await.unwrap();
    let made = "SET search_path = public;
        CREATE TABLE outbox (id int PRIMARY KEY, payload text NOT NULL, status text NOT NULL,
            CHECK (status <> 'published'));
        CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN PERFORM NEW.payload::json; RETURN NEW; END $$;
        CREATE FUNCTION compose() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN EXECUTE format('INSERT INTO outbox VALUES (1, %L, '''')', NEW.payload); RETURN NEW; END $$;
        INSERT INTO outbox VALUES (1, '{\"a\": canary}', 'pending')";
    sql.client.batch_execute(made).await.unwrap();
    let refused = async |statement: &str| {
        let error = sql.client.batch_execute(statement).await.unwrap_err();
        let error = sql.error(&error);
        assert!(!format!("{error:?}").contains("canary"), "{error:?}");
        let ConnectCause::Server(error) = error.cause else { panic!("{error}") };
        (error.sqlstate, error.context)
    };
    let update = "UPDATE outbox SET status = 'published'";
    assert_eq!(refused(update).await, ("23514".to_owned(), String::new()));
    assert_eq!(refused("UPDATE outbox SET status = NULL").await.0, "23502");
    assert_eq!(refused("INSERT INTO outbox VALUES (1, 'canary', '')").await.0, "23505");
    let duplicate = "ALTER TABLE outbox ADD EXCLUDE (payload WITH =);
        INSERT INTO outbox SELECT 2, payload, status FROM outbox";
    assert_eq!(refused(duplicate).await.0, "23P01");
    // GIVEN a server that shows the parameters of a statement
    sql.client.batch_execute("SET log_parameter_max_length_on_error = -1").await.unwrap();
    let insert = "INSERT INTO outbox VALUES (9, $1, 'published')";
    let error = sql.client.execute(insert, &[&"canary"]).await.unwrap_err();
    let shown = error.as_db_error().and_then(|it| it.where_()).unwrap_or_default();
    assert!(shown.contains("$1 = 'canary'"), "{shown}");
    let ConnectCause::Server(error) = sql.error(&error).cause else { panic!("{error}") };
    assert_eq!((error.sqlstate.as_str(), error.context.as_str()), ("23514", ""));
    // GIVEN a CHECK, and functions that quote the value where they say what they were doing
    let check = "ALTER TABLE outbox ADD CHECK (payload::json IS NOT NULL) NOT VALID; UPDATE outbox SET id = 2";
    assert_eq!(refused(check).await, ("22P02".to_owned(), String::new()));
    for (function, state) in [("look", "22P02"), ("compose", "23505")] {
        let trigger = format!(
            "CREATE TRIGGER tried BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION {function}(); UPDATE outbox SET id = 2"
        );
        let (sqlstate, context) = refused(&trigger).await;
        assert_eq!(sqlstate, state);
        let begin = format!("PL/pgSQL function {function}() line 1 at ");
        assert!(context.starts_with(&begin), "{context}");
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_value_that_cannot_be_read_is_not_a_refused_login() {
    let (_, settings) = testing::logical().database("sql_unreadable").await;
    let sql = connect(&settings.connection).await.unwrap();
    let row = sql.client.query_one("SELECT 'canary'::pg_catalog.text", &[]).await.unwrap();
    let error = sql.error(&row.try_get::<_, i64>(0).unwrap_err());
    let SourceSettings { connection, slot, publication, .. } = &settings;
    let fault = error.fault(connection, slot, publication);
    assert_eq!((fault.code, error.kind()), ("source.protocol", ConnectErrorKind::Fatal));
    assert!(fault.what.contains("column 0") && !fault.mend.contains("pg_hba"), "{fault}");
}
