use super::*;

fn told(text: &str) -> Answer {
    // Every beginning is incomplete, and none is misread.
    for end in 0..text.len() {
        assert_eq!(complete(&text.as_bytes()[..end]).unwrap(), None, "{end}");
    }
    complete(text.as_bytes()).unwrap().unwrap()
}

#[test]
fn a_body_with_a_length_is_read() {
    let answer = told("HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx: y\r\n\r\n[]");
    assert_eq!(answer, (200, b"[]".to_vec()));
    assert_eq!(told("HTTP/1.1 401 No\r\nContent-Length:0\r\n\r\n"), (401, Vec::new()));
}

#[test]
fn a_body_in_chunks_is_put_together() {
    let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n[1,\r\nA;x=y\r\n2222222222\r\n1\r\n]\r\n0\r\n";
    assert_eq!(told(text), (200, b"[1,2222222222]".to_vec()));
}

#[test]
fn a_body_may_last_until_the_end() {
    let text = b"HTTP/1.0 200 OK\r\n\r\n{}";
    assert_eq!(complete(text).unwrap(), None);
    assert_eq!(at_end(text).unwrap(), (200, b"{}".to_vec()));
    assert!(at_end(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}").is_err());
    assert!(at_end(b"HTTP/1.1 200 OK\r\n").is_err());
}

#[test]
fn what_is_no_http_is_refused() {
    for text in [
        "AMQP\0\0\x09\x01\r\n\r\n",
        "HTTP/1.1 x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nab\r\n",
    ] {
        assert!(complete(text.as_bytes()).is_err(), "{text:?}");
    }
    assert!(complete(&[b'x'; HEAD_BYTES_MAX + 1]).is_err());
}
