use super::*;

#[test]
fn the_lsn_is_printed_as_everywhere_else() {
    let mut transaction = CommitStamp::default();
    for number in [0, 1, 0x16_B374_D848, 0xFFFF_FFFF, 0x1_0000_0000, u64::MAX] {
        let lsn = Lsn::from_wire(number);
        transaction.begin(lsn, 0);
        assert_eq!(transaction.lsn_text(), lsn.to_string().as_bytes());
    }
}
