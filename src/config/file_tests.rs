use super::*;

#[test]
fn lines_and_columns_count_from_one() {
    assert_eq!(line_and_column("ab\nçd", 0), (1, 1));
    assert_eq!(line_and_column("ab\nçd", 5), (2, 2));
    assert_eq!(line_and_column("ab\n", 3), (2, 1));
}

#[test]
fn a_syntax_error_does_not_quote_the_line() {
    let mut tree = Tree::default();
    read(&mut tree, "w.toml", "[source]\nurl = \"postgres://u:hunter2@db\n");
    assert!(!tree.problems.is_empty());
    for problem in &tree.problems {
        assert_eq!(problem.fault.code, "config.syntax");
        assert!(problem.fault.place.starts_with("w.toml:2:"), "{}", problem.fault.place);
        assert!(!format!("{problem:?}").contains("hunter2"));
    }
}
