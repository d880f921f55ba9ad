use super::*;
use crate::testing::TempFolder;

#[test]
fn a_secret_of_a_file_is_read_again_and_says_so_if_it_cannot() {
    let folder = TempFolder::new();
    let path = folder.path().join("secret");
    std::fs::write(&path, "one\r\n").unwrap();
    let secret = Secret::of_file(&path).unwrap();
    assert_eq!((secret.expose(), secret.is_of_file()), ("one", true));
    std::fs::write(&path, "two").unwrap();
    assert_eq!(secret.current().unwrap().expose(), "two");
    std::fs::remove_file(&path).unwrap();
    let fault = secret.current().unwrap_err().fault("sink.kafka.properties.\"sasl.password\"");
    assert_eq!((fault.code, fault.exit), (SECRET_UNREAD, Exit::Failed));
    assert!(fault.may_pass);
    assert!(fault.to_string().contains(path.to_str().unwrap()), "{fault}");
    assert_eq!(Secret::new("fixed").current().unwrap().expose(), "fixed");
}

#[test]
fn a_relative_path_is_told_with_the_folder_in_which_it_begins() {
    let unread = |path: &str| Secret::of_file(Path::new(path)).unwrap_err().mend();
    let folder = std::env::current_dir().unwrap();
    let begins = format!("the working directory ({}): write the whole path", folder.display());
    assert!(unread("no-such-postgres-url").contains(&begins));
    assert_eq!(unread("/no-such-folder/url"), "ls -l /no-such-folder/url");
}

#[test]
fn a_file_that_is_not_there_and_one_that_is_no_text_are_told_apart() {
    let folder = TempFolder::new();
    let path = folder.path().join("bin");
    let unread = || Secret::of_file(&path).unwrap_err();
    assert_eq!(unread().to_string(), format!("cannot read {}: no such file", path.display()));
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    assert_eq!(unread().to_string(), format!("cannot read {}: it is not UTF-8", path.display()));
    assert_eq!(unread().mend(), format!("save it as UTF-8: file {}", path.display()));
}
