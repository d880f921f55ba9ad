//! The rights that `init` and `run` need.

use super::fixture::{Fixture, shared_rabbitmq, source};
use crate::support::{Calls, Running, runtime, shared_postgres};

#[test]
fn the_documented_rights_are_enough() {
    let broker = shared_rabbitmq();
    let fixture = Fixture::bare("r_rights", shared_postgres(), &broker.amqp_url());
    let user = |name: &str, configure: &str, write: &str, read: &str| {
        let add =
            format!("rabbit_auth_backend_internal:add_user(<<\"{name}\">>, <<\"pw\">>, <<\"t\">>)");
        let rights = format!("<<\"{configure}\">>, <<\"{write}\">>, <<\"{read}\">>");
        let set = format!("set_permissions(<<\"{name}\">>, <<\"/\">>, {rights}, <<\"t\">>)");
        broker.eval(&format!("{add}, rabbit_auth_backend_internal:{set}")).unwrap();
        source(&fixture.url.replace("guest:guest", &format!("{name}:pw")), &fixture.name)
    };
    // GIVEN users with the rights of docs/consumers.md, and one that may configure only
    let own = "^r_rights([.](retry[.].*|dlx|dlq))?$";
    let own_and_source = "^r_rights([.](events|retry[.].*|dlx|dlq))?$";
    let configuring = user("r_configures", own, "^$", own_and_source);
    let making = user("r_makes", own, own, own_and_source);
    let reading = user("r_reads", "^$", "^r_rights[.](retry[.].*|dlx)$", "^r_rights$");
    // WHEN they make and read THEN the rights are enough, and the right to configure is not
    let init =
        |source| runtime(1).block_on(walrelay_inbox::Inbox::new(fixture.settings(), source).init());
    let error = init(configuring).unwrap_err().to_string();
    assert!(error.contains("ACCESS_REFUSED"), "{error}");
    init(making).unwrap();
    fixture.send("a", "e-1", "fail 1");
    fixture.send("b", "e-2", "permanent");
    let inbox = Running::start(fixture.settings(), reading, &Calls::new());
    fixture.database.wait_handled(1);
    assert_eq!(fixture.wait_dead_letters(1).len(), 1);
    inbox.stop();
    fixture.assert_all_acknowledged();
}
