//! Where the file is looked for when none is named.

use super::*;

/// A name at which nothing is.
const NOTHING: &str = "/nonexistent/walrelay.toml";

fn read(defaults: &[&str]) -> (Layers, String) {
    let mut layers = Layers::default();
    let place = read_file(&mut layers, None, defaults);
    (layers, place)
}

#[test]
fn the_first_file_that_exists_is_read() {
    let (one, other) = (TempFile::new("[admin]\n"), TempFile::new("[admin]\n"));
    let [one, other] = [&one, &other].map(|file| file.0.to_str().unwrap().to_owned());
    assert_eq!(read(&[&one, &other]).1, one);
    assert_eq!(read(&[NOTHING, &other]).1, other);
    // GIVEN none THEN all are named
    let (layers, place) = read(&[NOTHING, "/nonexistent/other.toml"]);
    assert!(layers.problems.is_empty());
    let expected =
        "/nonexistent/walrelay.toml, /nonexistent/other.toml (no such file) and the environment";
    assert_eq!(place, expected);
}

#[test]
fn a_file_that_cannot_be_read_is_not_passed_over() {
    let folder = std::env::temp_dir();
    let (layers, place) = read(&[folder.to_str().unwrap(), NOTHING]);
    assert_eq!(place, folder.to_str().unwrap());
    assert_eq!(layers.problems[0].fault.code, "config.unreadable");
}

#[test]
fn the_admin_address_is_known_whatever_is_wrong_elsewhere() {
    let listen = |text: &str| {
        let file = TempFile::new(text);
        let request = Request { file: Some(file.0.clone()), ..Request::default() };
        admin_listen(&request).map_err(|faults| rendered(&faults))
    };
    let faulty =
        "[delivery]\nattempts_max = \"many\"\nnothing = 1\n[admin]\nlisten = \"0.0.0.0:9000\"";
    assert_eq!(listen(faulty), Ok(([0, 0, 0, 0], 9000).into()));
    assert_eq!(listen("[delivery]\nattempts_max = 0"), Ok(([127, 0, 0, 1], 9464).into()));
    for wrong in ["[admin]\nlisten = \"here\"", "[admin"] {
        assert!(listen(wrong).is_err_and(|text| text.contains("error[config.")), "{wrong}");
    }
}
