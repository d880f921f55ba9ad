use std::sync::Arc;

use walrelay_postgres::testing;

use super::*;
use crate::base::tls::{TlsCause, TlsFailure};
use crate::source::connect::ConnectCause;
use crate::source::settings::ConnInfo;

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

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_login_or_certificate_that_is_refused_now_says_nothing_about_the_stream() {
    let (_client, settings) = testing::logical().database("walsender_login").await;
    let here = sql::connect(&settings.connection).await.unwrap();
    let host = settings.connection.hosts[0].clone();
    let own = Walsender { host, server: here.started.clone(), pid: 1 };
    let connection = ConnInfo { user: "nobody_at_all".into(), ..settings.connection.clone() };
    let settings = Arc::new(SourceSettings { connection, ..settings });
    let mut looks = Looks { settings, open: None, looks: WalsenderObserver::default() };
    let look = looks.look(&own).await;
    assert!(matches!(look, Ok((Activity::Unasked, _))), "{look:?}");
    // AND the same where the certificate is refused, but not where nobody answers
    let expired = TlsFailure { text: "expired".into(), cause: TlsCause::Dates };
    for (cause, says_nothing) in
        [(ConnectCause::Tls(expired), true), (ConnectCause::Io("refused".into()), false)]
    {
        assert_eq!(is_only_for_new(&ConnectError::new("db", cause)), says_nothing);
    }
}
