use super::*;

#[test]
fn without_a_terminal_the_option_confirms() {
    let fault = askable("Drop slot s?", false).unwrap_err();
    assert_eq!((fault.code, fault.exit), ("command.unconfirmed", Exit::Usage));
    assert!(fault.what.contains("Drop slot s?") && fault.mend.contains("--yes"), "{fault}");
    assert_eq!(askable("Drop slot s?", true), Ok(()));
    assert_eq!(confirm("Drop slot s?", true), Ok(()));
}

#[test]
fn only_yes_confirms() {
    let confirms = ["yes", "Y", " yes\n", "", "no", "yess"].map(is_yes);
    assert_eq!(confirms, [true, true, true, false, false, false]);
}
