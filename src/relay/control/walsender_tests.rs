use std::sync::Arc;

use walrelay_postgres::testing;

use super::*;

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn another_server_of_the_same_name_does_not_say_that_the_walsender_has_ended() {
    let (_client, settings) = testing::logical().database("walsender_name").await;
    let host = settings.connection.hosts[0].clone();
    let here = sql::connect(&settings.connection).await.unwrap();
    let settings = Arc::new(settings);
    let mut looks = Looks { settings, open: None, looks: WalsenderObserver::default() };
    let server = here.started.clone();
    let own = Walsender { host: host.clone(), server, pid: 1 };
    let elsewhere = Walsender { host, server: "another".into(), pid: 1 };
    // A connection that is kept is asked as little as a new one.
    for _ in 0..2 {
        let told = looks.look(&elsewhere).await.unwrap_err();
        assert!(told.contains("another server"), "{told}");
        assert!(matches!(looks.look(&own).await, Ok((Activity::Gone, _))));
    }
}
