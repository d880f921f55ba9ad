use super::*;

#[test]
fn the_pid_is_read_from_the_message() {
    let message = "replication slot \"walrelay2\" is active for PID 4711";
    assert_eq!(pid_in(message), Some(4711));
    assert_eq!(pid_in("no number"), None);
}
