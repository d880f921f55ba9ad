use tokio::time::timeout;

use super::*;
use crate::{connect, sql, testing};

const LIMIT: Duration = Duration::from_secs(20);
const SOON: Duration = Duration::from_millis(50);

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_session_learns_that_a_smart_shutdown_waits_for_it_and_its_like() {
    let server = testing::alone();
    let (other, settings) = server.database("smart_shutdown").await;
    other.batch_execute("CREATE ROLE plain LOGIN").await.unwrap();
    let info = settings.connection;
    let (user, application_name) = ("plain".to_owned(), "stream".to_owned());
    // GIVEN two sessions of relays, of which one sees nothing of others, and the stream of a third program
    let sql = sql::connect(&info).await.unwrap();
    let relay = sql::connect(&ConnInfo { user, ..info.clone() }).await.unwrap();
    let stream = connect::open(&ConnInfo { application_name, ..info.clone() }).await.unwrap();
    // WHEN the server takes connections THEN no session is in its way
    let own = info.clone();
    let looking = async move {
        wait_for_smart_shutdown(&own, &sql, SOON, LIMIT).await.sqlstate().map(str::to_owned)
    };
    let mut looking = tokio::spawn(looking);
    assert!(timeout(SOON * 10, &mut looking).await.is_err());
    // WHEN it is told to stop THEN it waits for a session of another program
    server.signal("TERM");
    timeout(LIMIT, refusal(&info, &relay, SOON)).await.expect("a refusal");
    assert!(has_other_sessions(&relay).await.unwrap());
    assert!(timeout(SOON * 10, &mut looking).await.is_err());
    let impatient = wait_for_smart_shutdown(&info, &relay, SOON, Duration::ZERO);
    timeout(LIMIT, impatient).await.expect("it does not wait for the other session");
    // WHEN that ends THEN it waits for those of relays only
    drop(other);
    let refused = timeout(LIMIT, looking).await.expect("the end of the other session");
    assert_eq!(refused.unwrap().as_deref(), Some("57P03"));
    assert!(server.is_running() && !has_other_sessions(&relay).await.unwrap());
    // AND it stops once they have ended
    drop(relay);
    let stopped = async {
        while server.is_running() {
            sleep(SOON).await;
        }
    };
    timeout(LIMIT, stopped).await.expect("the end of the server");
    drop(stream);
}
