//! Where the file is looked for when none is named.

use super::*;

/// A name at which nothing is.
const NOTHING: &str = "/nonexistent/walrelay.toml";

fn read(defaults: &[&str]) -> (Tree, String) {
    let mut tree = Tree::default();
    let place = read_file(&mut tree, None, defaults);
    (tree, place)
}

#[test]
fn the_first_file_that_exists_is_read() {
    let (one, other) = (TempFile::new("[admin]\n"), TempFile::new("[admin]\n"));
    let [one, other] = [&one, &other].map(|file| file.0.to_str().unwrap().to_owned());
    assert_eq!(read(&[&one, &other]).1, one);
    assert_eq!(read(&[NOTHING, &other]).1, other);
    // GIVEN none THEN all are named
    let (tree, place) = read(&[NOTHING, "/nonexistent/other.toml"]);
    assert!(tree.problems.is_empty());
    let expected =
        "/nonexistent/walrelay.toml, /nonexistent/other.toml (no such file) and the environment";
    assert_eq!(place, expected);
}

#[test]
fn a_file_that_cannot_be_read_is_not_passed_over() {
    let folder = std::env::temp_dir();
    let (tree, place) = read(&[folder.to_str().unwrap(), NOTHING]);
    assert_eq!(place, folder.to_str().unwrap());
    assert_eq!(tree.problems[0].fault.code, "config.unreadable");
}

#[test]
fn a_working_folder_that_may_not_be_searched_has_no_file() {
    let denied = |file: &str| may_be_there(FilePath::new(file), ErrorKind::PermissionDenied);
    assert!(!denied("walrelay.toml"));
    assert!(denied("/etc/walrelay/walrelay.toml"));
    assert!(!may_be_there(FilePath::new("/etc/walrelay.toml"), ErrorKind::NotFound));
}

#[test]
fn a_file_that_is_no_toml_is_not_needed_for_an_admin_address_given_elsewhere() {
    let file = TempFile::new("[admin");
    let listen = |variables: &[(&str, &str)], settings: &[&str]| {
        admin_listen(&request(&file, variables, settings)).map_err(|faults| rendered(&faults))
    };
    let address = Ok(([127, 0, 0, 1], 9000).into());
    assert_eq!(listen(&[("WALRELAY_ADMIN__LISTEN", "127.0.0.1:9000")], &[]), address);
    assert_eq!(listen(&[], &["admin.listen=127.0.0.1:9000"]), address);
    for (settings, code) in
        [(&[][..], "config.syntax"), (&["admin.listen=here"][..], "config.bad-value")]
    {
        assert!(listen(&[], settings).is_err_and(|text| text.contains(code)), "{code}");
    }
}

#[test]
fn a_secret_that_may_come_later_is_no_fault_of_usage_unless_there_is_another() {
    let exits = |more: &str| {
        let text = format!(
            "[source]\nurl = {{ file = \"/nonexistent/url\" }}\n[sink]\nkind = \"memory\"\n{more}"
        );
        let faults = load_with(&text, &[], &[]).err().unwrap();
        assert!(faults.iter().any(|fault| fault.code == "config.missing-secret"), "{faults:?}");
        faults.iter().map(|fault| fault.exit).collect::<Vec<_>>()
    };
    assert_eq!(exits(""), [Exit::Failed]);
    assert_eq!(exits("nothing = 1\n"), [Exit::Usage; 2]);
}

#[test]
fn the_admin_address_is_known_whatever_is_wrong_elsewhere() {
    let listen = |text: &str| {
        let file = TempFile::new(text);
        admin_listen(&request(&file, &[], &[])).map_err(|faults| rendered(&faults))
    };
    let faulty =
        "[delivery]\nattempts_max = \"many\"\nnothing = 1\n[admin]\nlisten = \"0.0.0.0:9000\"";
    assert_eq!(listen(faulty), Ok(([0, 0, 0, 0], 9000).into()));
    assert_eq!(listen("[delivery]\nattempts_max = 0"), Ok(([127, 0, 0, 1], 9464).into()));
    for wrong in ["[admin]\nlisten = \"here\"", "[admin"] {
        assert!(listen(wrong).is_err_and(|text| text.contains("error[config.")), "{wrong}");
    }
}
