use super::*;

#[test]
fn headers_are_read_whatever_they_are_called() {
    let wild = b"w\xFF\xFEn";
    // SAFETY: names and values are given with their lengths; the list is ours to the end.
    let headers = unsafe {
        let list = c::rd_kafka_headers_new(2);
        for (name, value) in [(&wild[..], &b"1"[..]), (b"id", b"\x00\xFF")] {
            let (length, size) = (name.len() as isize, value.len() as isize);
            let (name, value) = (name.as_ptr().cast(), value.as_ptr().cast());
            c::rd_kafka_header_add(list, name, length, value, size);
        }
        let headers = headers_in(list);
        c::rd_kafka_headers_destroy(list);
        headers
    };
    let expected = [("w\u{FFFD}\u{FFFD}n", &b"1"[..]), ("id", b"\x00\xFF")];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_vec()));
    assert_eq!(headers, expected);
}
