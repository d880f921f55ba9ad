use super::*;

#[test]
fn reads_are_big_endian_and_in_order() {
    let mut cursor = Cursor::new(&[7, 0, 0, 1, 2, b'a', b'b', 0, 0, 3, 9]);
    assert_eq!(cursor.u8("tag"), Ok(7));
    assert_eq!(cursor.u32("number"), Ok(0x0102));
    assert_eq!(cursor.cstr("name"), Ok("ab".into()));
    assert_eq!(cursor.count16("count"), Ok(3));
    assert_eq!(cursor.rest(), [9]);
    assert_eq!(cursor.finish(), Ok(()));
}

#[test]
fn lies_are_refused_where_they_begin() {
    let refused = |what, offset| DecodeError { what, offset };
    assert_eq!(Cursor::new(&[0xFF, 0xFF]).count16("columns"), Err(refused("columns", 0)));
    assert_eq!(Cursor::new(&[0x80, 0, 0, 0]).count32("length"), Err(refused("length", 0)));
    assert_eq!(Cursor::new(b"no end").cstr("name"), Err(refused("name", 0)));
    assert_eq!(Cursor::new(&[0xC3, 0x28, 0]).cstr("name"), Ok("\u{FFFD}(".into()));
    let mut cursor = Cursor::new(&[1, 2, 3]);
    assert_eq!(cursor.u8("tag"), Ok(1));
    assert_eq!(cursor.take(3, "value"), Err(refused("value", 1)));
    assert_eq!(cursor.take(usize::MAX, "value"), Err(refused("value", 1)));
    assert_eq!(cursor.lsn("lsn"), Err(refused("lsn", 1)));
    assert_eq!(cursor.finish(), Err(refused("bytes after the end of the message", 1)));
}
