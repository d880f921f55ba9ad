use super::*;

#[test]
fn what_is_encoded_comes_back_and_what_is_broken_is_told() {
    assert_eq!(decode("p%40ss%2Fw%C3%B6rd").as_deref(), Ok("p@ss/wörd"));
    assert_eq!(decode("plain").as_deref(), Ok("plain"));
    for broken in ["%", "%4", "%zz", "a%4%"] {
        assert_eq!(decode(broken), Err(Malformed::Digits), "{broken}");
    }
    assert_eq!(decode("a%00b"), Err(Malformed::Nul));
    assert_eq!(decode("%ff"), Err(Malformed::Text));
}
