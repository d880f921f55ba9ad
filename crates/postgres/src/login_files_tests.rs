use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;
use walrelay_base::secret::Secret;
use walrelay_base::testing::TempFolder;

fn login(info: &ConnInfo) -> (String, Vec<String>) {
    let of_host = |at: usize| info.hosts[at].password.as_ref().or(info.password.as_ref());
    let passwords =
        (0..info.hosts.len()).map(|at| of_host(at).map_or("", Secret::expose).to_owned());
    (info.user.clone(), passwords.collect())
}

fn write_private(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
}

#[test]
fn user_and_password_of_a_url_in_a_file_are_those_of_now_and_the_rest_is_that_of_the_start() {
    let folder = TempFolder::new();
    let path = folder.path().join("url");
    std::fs::write(&path, "postgres://old:one@db:5433/app?sslmode=require\n").unwrap();
    let url = Secret::of_file(&path).unwrap();
    let mut info = conninfo::parse(url.expose(), &|_| None).unwrap();
    info.login_files.url = Some(url);
    // WHEN the login is rotated, and somebody writes another server and mode beside it
    std::fs::write(&path, "postgres://new:two@elsewhere/app?sslmode=disable\n").unwrap();
    let now = current(&info).unwrap().into_owned();
    assert_eq!(login(&now), ("new".to_owned(), vec!["two".to_owned()]));
    assert_eq!((&now.hosts[0].name, now.sslmode), (&"db".to_owned(), info.sslmode));
    // WHEN the file holds nonsense, or is gone THEN that is no login, and may pass
    for text in [Some("postgres://new:c4n4ry/x@db/app"), None] {
        match text {
            Some(text) => std::fs::write(&path, text).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
        let error = current(&info).unwrap_err();
        assert!(!error.to_string().contains("c4n4ry"), "{error}");
    }
    assert!(current(&info).unwrap_err().to_string().contains(path.to_str().unwrap()));
    // WHEN it has yet to be written
    std::fs::write(&path, "\n").unwrap();
    let error = current(&info).unwrap_err();
    assert_eq!(error.to_string(), "the file of source.url is empty");
}

#[test]
fn passwords_of_a_passfile_are_those_of_now() {
    let folder = TempFolder::new();
    let path = folder.path().join("pgpass");
    write_private(&path, "a:*:*:u:one\nb:*:*:u:one\n");
    let text = format!("host=a,b user=u passfile={}", path.display());
    let info = conninfo::parse(&text, &|_| None).unwrap();
    assert!(info.login_files.are_used());
    write_private(&path, "b:*:*:u:two\n");
    let now = current(&info).unwrap();
    assert_eq!(login(&now), ("u".to_owned(), vec![String::new(), "two".to_owned()]));
    // GIVEN a password in the string THEN no file is read
    let fixed = conninfo::parse(&format!("{text} password=x"), &|_| None).unwrap();
    assert!(!fixed.login_files.are_used());
}
