use super::*;

fn read(kind: FieldType, value: Value<'_>) -> Result<Option<Vec<u8>>, &'static str> {
    let mut arena = b"earlier".to_vec();
    let cell = kind.read(value, &mut arena)?;
    Ok(cell.bytes(&arena).map(<[u8]>::to_vec))
}

#[test]
fn both_forms_give_the_same_bytes() {
    let uuid: Vec<u8> = (0..16).map(|n| n * 17).collect();
    for (oid, binary, text, expected) in [
        (25, &b"abc"[..], &b"abc"[..], &b"abc"[..]),
        (
            2950,
            &uuid,
            b"00112233-4455-6677-8899-aabbccddeeff",
            b"00112233-4455-6677-8899-aabbccddeeff",
        ),
        (3802, b"\x01{}", b"{}", b"{}"),
        (17, b"\x00\xffz", b"\\x00ff7a", b"\x00\xffz"),
        (17, b"\x00\\z", b"\\000\\\\z", b"\x00\\z"),
        (17, b"", b"\\x", b""),
        (21, &[0xFF, 0xFF], b"-1", b"-1"),
        (23, &[0x7F, 0xFF, 0xFF, 0xFF], b"2147483647", b"2147483647"),
        (20, &[0x80, 0, 0, 0, 0, 0, 0, 0], b"-9223372036854775808", b"-9223372036854775808"),
        (23, &[0; 4], b"0", b"0"),
        (16, &[1], b"t", b"true"),
        (16, &[0], b"f", b"false"),
    ] {
        let (kind, _) = forms_of(oid);
        assert_eq!(read(kind, Value::Binary(binary)), Ok(Some(expected.to_vec())), "{oid}");
        assert_eq!(read(kind, Value::Text(text)), Ok(Some(expected.to_vec())), "{oid}");
        assert_eq!(read(kind, Value::Null), Ok(None));
    }
}

#[test]
fn what_is_not_of_its_type_is_refused() {
    for (oid, value) in [
        (2950, Value::Binary(b"short")),
        (3802, Value::Binary(b"")),
        (3802, Value::Binary(b"\x02{}")),
        (17, Value::Text(b"\\x0")),
        (17, Value::Text(b"\\xzz")),
        (17, Value::Text(b"\\9")),
        (21, Value::Binary(b"1234")),
        (23, Value::Binary(b"")),
        (16, Value::Binary(&[2])),
        (16, Value::Text(b"yes")),
        (1184, Value::Binary(&[0; 8])),
        (25, Value::Unchanged),
    ] {
        assert!(read(forms_of(oid).0, value).is_err(), "{oid} {value:?}");
    }
    assert_eq!(read(forms_of(1184).0, Value::Text(b"2026")), Ok(Some(b"2026".to_vec())));
}
