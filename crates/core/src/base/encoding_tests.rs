use super::*;

#[test]
fn percent_encoded_text_is_decoded_and_broken_text_is_an_error() {
    assert_eq!(percent_decode("p%40ss%2Fw%C3%B6rd").as_deref(), Ok("p@ss/wörd"));
    assert_eq!(percent_decode("plain").as_deref(), Ok("plain"));
    for broken in ["%", "%4", "%zz", "a%4%", "%ü"] {
        assert_eq!(percent_decode(broken), Err(PercentError::Digits), "{broken}");
    }
    assert_eq!(percent_decode("a%00b"), Err(PercentError::Nul));
    assert_eq!(percent_decode("%ff"), Err(PercentError::NotUtf8));
}

#[test]
fn a_name_in_a_path_is_encoded_only_where_it_must_be() {
    for plain in ["public.outbox", "app/events:v1", "Orders_2-~!$&'()*+,;=@"] {
        assert_eq!(path_encoded(plain), plain);
    }
    assert_eq!(path_encoded("public.ev ents"), "public.ev%20ents");
    assert_eq!(path_encoded("a%b?c#\u{fc}"), "a%25b%3Fc%23%C3%BC");
}

#[test]
fn hexadecimal_comes_back_and_other_text_is_refused() {
    let mut bytes = Vec::new();
    assert_eq!(hex(&[0, 0x1f, 0xff]), "001fff");
    assert_eq!(push_unhexed(b"001fFF", &mut bytes), Some(()));
    assert_eq!(bytes, [0, 0x1f, 0xff]);
    assert_eq!(push_unhexed(b"0", &mut bytes), None);
    assert_eq!(push_unhexed(b"0g", &mut bytes), None);
}
