use std::net::TcpListener;

use walrelay_core::relay::control::SystemTimeline;
use walrelay_core::source::progress::OwnPositions;
use walrelay_core::source::server::ServerRun;
use walrelay_postgres::testing;

use super::*;
use crate::base::lsn::Lsn;
use crate::source::settings::PostgresHost;

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn the_server_of_the_stream_is_asked_although_the_first_host_does_not_answer() {
    let (client, mut settings) = testing::logical().database("control_hosts").await;
    testing::prepare(&client, &settings).await;
    let host = settings.connection.hosts[0].clone();
    let server = sql::connect(&settings.connection).await.unwrap().started;
    let walsender = Walsender { host, server, pid: 1 };
    // GIVEN a first host that accepts connections and says nothing
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let silent_host = PostgresHost { name: "127.0.0.1".to_owned(), port, password: None };
    settings.connection.hosts.insert(0, silent_host);
    settings.connection.connect_timeout = CATALOG_WITHIN;
    // THEN the catalog is read
    let read = timeout(CONFIRM_WITHIN, read_catalog(&settings, Some(&walsender))).await;
    assert!(read.is_ok(), "{read:?}");
    // AND so is the slot, which here refuses the position of another system
    let position = ConfirmedPosition {
        lsn: Lsn::ZERO,
        place: SystemTimeline { system_id: "7".to_owned(), timeline: 1 },
        run: ServerRun::new("another".into(), None),
        own_pid: 1,
        own: OwnPositions::default(),
        peer_seen: false,
    };
    let why = confirm_in_time(&settings, Some(&walsender), &position).await.unwrap_err();
    assert!(why.starts_with("this is system"), "{why}");
}

#[test]
fn each_address_has_half_of_the_limit_at_most() {
    let (limit, ms) = (Duration::from_secs(10), Duration::from_millis);
    for (own, wanted) in [(60_000, 5_000), (300, 300)] {
        let own = ConnInfo { connect_timeout: ms(own), ..ConnInfo::default() };
        assert_eq!(connection(&own, None, limit).connect_timeout, ms(wanted));
    }
}
