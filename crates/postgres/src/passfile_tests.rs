//! The passfile: matching, escapes, permissions.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::super::conninfo::{ConnInfoError, parse};
use super::*;

fn host(name: &str, port: u16) -> PostgresHost {
    PostgresHost { name: name.to_owned(), port, password: None }
}

fn found(text: &str, name: &str, port: u16) -> Option<String> {
    lookup(text, &host(name, port), "db", "me").map(|secret| secret.expose().to_owned())
}

#[test]
fn the_first_matching_line_wins() {
    let text = "# h:*:*:*:comment\nother:1:db:me:no\nh:1:db:me:exact\n*:*:*:*:any\n";
    assert_eq!(found(text, "h", 1).as_deref(), Some("exact"));
    assert_eq!(found(text, "h", 2).as_deref(), Some("any"));
    assert_eq!(found("h:1:db:you:no\n", "h", 1), None);
    assert_eq!(found("h:1:db\n\n:::::\n", "h", 1), None);
}

#[test]
fn colons_and_backslashes_are_escaped_and_a_star_can_be_a_name() {
    assert_eq!(found(r"\:\:1:1:db:me:p\:a\\ss", "::1", 1).as_deref(), Some(r"p:a\ss"));
    assert_eq!(found(r"h:1:db:me:p:q", "h", 1).as_deref(), Some("p:q"));
    assert_eq!(found(r"\*:1:db:me:p", "h", 1), None);
    assert_eq!(found("localhost:1:db:me:p", "/var/run/postgresql", 1).as_deref(), Some("p"));
}

fn file(name: &str, mode: u32) -> PathBuf {
    let path = std::env::temp_dir().join(format!("walrelay-pass-{}-{name}", std::process::id()));
    std::fs::write(&path, "h1:*:*:*:canary1\nh2:*:*:*:canary2\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path
}

#[test]
fn every_host_gets_its_own_password() {
    let path = file("own", 0o600);
    let env = |name: &str| (name == "PGPASSFILE").then(|| path.display().to_string());
    let info = parse("postgres://u@h1,h2,h3/d", &env).unwrap();
    let passwords = info.hosts.iter().map(|h| h.password.as_ref().map(|p| p.expose().to_owned()));
    let wanted = [Some("canary1".to_owned()), Some("canary2".to_owned()), None];
    assert_eq!(passwords.collect::<Vec<_>>(), wanted);
    assert!(!format!("{info:?}").contains("canary"));
    // A password in the URL leaves the file alone.
    assert_eq!(parse("postgres://u:p@h1/d", &env).unwrap().hosts[0].password, None);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_file_that_others_can_read_is_not_used() {
    let path = file("open", 0o644);
    let url = format!("postgres://u@h1/d?passfile={}", path.display());
    let error = parse(&url, &|_| None).unwrap_err();
    assert_eq!(error, ConnInfoError::Passfile(PassfileError::Exposed(path.clone())));
    assert!(error.to_string().contains("chmod 0600"));
    std::fs::remove_file(path).unwrap();
    assert!(matches!(
        parse(&url, &|_| None),
        Err(ConnInfoError::Passfile(PassfileError::Unreadable(..)))
    ));
}

#[test]
fn the_group_may_read_a_file_of_root() {
    // A Secret of Kubernetes that is read through fsGroup.
    for mode in [0o440, 0o640, 0o400, 0o600] {
        assert!(!is_exposed(mode, 0), "{mode:o}");
    }
    // The group may not write it, and others have no rights.
    for mode in [0o460, 0o660, 0o441, 0o444, 0o644, 0o602] {
        assert!(is_exposed(mode, 0), "{mode:o}");
    }
    // A file of another user is for that user alone.
    for mode in [0o440, 0o640, 0o610, 0o604] {
        assert!(is_exposed(mode, 10001), "{mode:o}");
    }
    assert!(!is_exposed(0o600, 10001));
}
