//! The limit of a user's channels, which RabbitMQ 4.3.6 does not apply unless it is 0.

use super::rabbitmq_setup::set_up;
use crate::support::rabbitmq::{ALL, shared, waiting};

#[test]
fn a_user_with_fewer_channels_than_run_needs_is_told_by_check() {
    let scene = waiting("rabbit_channels", ALL);
    let (name, broker) = (scene.name.clone(), shared());
    set_up(&name);
    let limit = format!("user-limits/{name}/max-channels");
    broker.api("PUT", &limit, r#"{"value": 2}"#);
    let check = scene.walrelay(&["check"]);
    assert_eq!(check.code, 1, "{check}");
    check.assert_says(&[
        "✗ rabbit_channels cannot open 3 channels at once",
        "rabbitmqctl clear_user_limits 'rabbit_channels' max-channels",
    ]);
    broker.api("PUT", &limit, r#"{"value": 3}"#);
    scene.walrelay(&["check"]).assert_done();
}
