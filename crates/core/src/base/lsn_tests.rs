use super::*;

#[test]
fn text_form_is_the_one_of_postgres() {
    let lsn: Lsn = "16/B374D848".parse().unwrap();
    assert_eq!(lsn.to_wire(), 0x16_B374_D848);
    assert_eq!(lsn.to_string(), "16/B374D848");
    assert_eq!(Lsn::ZERO.to_string(), "0/0");
    assert!("16B374D848".parse::<Lsn>().is_err());
    assert!("1/1/1".parse::<Lsn>().is_err());
}

#[test]
fn distance_never_underflows() {
    let (early, late) = (Lsn::from_wire(10), Lsn::from_wire(25));
    assert_eq!(late.bytes_since(early), 15);
    assert_eq!(early.bytes_since(late), 0);
}
