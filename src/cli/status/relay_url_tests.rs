use super::*;

#[test]
fn a_relay_is_named_by_host_port_and_prefix() {
    for (text, wanted) in [
        ("relay-1", "http://relay-1:9464"),
        ("relay-1:9000", "http://relay-1:9000"),
        (" 10.0.0.1:9464 ", "http://10.0.0.1:9464"),
        ("[::1]:9464", "http://[::1]:9464"),
        ("[::1]", "http://[::1]:9464"),
        ("http://relay-1:9464", "http://relay-1:9464"),
        ("http://relay-1:9464/", "http://relay-1:9464"),
        ("http://relay-1:9464/status", "http://relay-1:9464"),
        ("HTTP://proxy/relays/1/", "http://proxy:80/relays/1"),
    ] {
        assert_eq!(RelayUrl::parse(text).unwrap().to_string(), wanted, "{text}");
    }
    let url = RelayUrl::parse("[::1]:9464").unwrap();
    assert_eq!(url.host, "::1");
}

#[test]
fn what_names_no_relay_is_told_without_quoting_a_password() {
    for (text, told) in [
        ("", "is no URL"),
        ("a b", "is no URL"),
        ("https://relay-1:9464", "without TLS"),
        ("relay-1:", "no port"),
        ("relay-1:0", "no port"),
        ("relay-1:99999", "no port"),
        ("relay-1:9464/?x=y", "has a query"),
        ("http://user:c4n4ry@relay-1:9464", "a login"),
    ] {
        let fault = RelayUrl::parse(text).unwrap_err();
        assert_eq!((fault.code, fault.exit), ("status.bad-url", Exit::Usage), "{text}");
        assert!(fault.what.contains(told), "{text}: {fault}");
        assert!(!fault.to_string().contains("c4n4ry"), "{fault}");
    }
}

#[test]
fn a_relay_that_listens_on_all_addresses_is_asked_on_the_loopback() {
    for (listen, wanted) in [
        ("0.0.0.0:9464", "http://127.0.0.1:9464"),
        ("[::]:9464", "http://[::1]:9464"),
        ("10.0.0.1:9000", "http://10.0.0.1:9000"),
    ] {
        let listen: SocketAddr = listen.parse().unwrap();
        assert_eq!(RelayUrl::from(listen).to_string(), wanted);
    }
}
