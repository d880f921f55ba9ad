use super::*;

#[test]
fn a_slot_is_dropped_only_when_meant() {
    let code = |yes, typed| confirm("walrelay", yes, typed).map_err(|fault| fault.code);
    assert_eq!(code(false, None), Err("slot.drop-unconfirmed"));
    assert_eq!(code(true, Some("other")), Err("slot.drop-name"));
    assert_eq!(code(true, None), Ok(()));
    assert_eq!(code(false, Some("walrelay")), Ok(()));
}
