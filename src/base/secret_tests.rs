use super::*;

#[test]
fn a_secret_prints_as_stars() {
    let secret = Secret::new("hunter2");
    assert_eq!(format!("{secret} {secret:?}"), "*** ***");
    assert_eq!(secret.expose(), "hunter2");
}
