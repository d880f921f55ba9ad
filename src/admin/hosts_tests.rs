use axum::body::Body;

use super::*;

fn verdict(first: &str, headers: &[(&str, &str)]) -> Option<u16> {
    let hosts = AllowedHosts(vec!["relay.example.org".to_owned()]);
    let (method, path) = first.split_once(' ').unwrap();
    let mut request = axum::http::Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::empty()).unwrap();
    hosts.check(&request).err().map(|(status, _)| status.as_u16())
}

#[test]
fn addresses_localhost_and_configured_names_are_answered() {
    for host in [
        "127.0.0.1:9464",
        "10.1.2.3",
        "[::1]:9464",
        "[fe80::1]",
        "localhost:9464",
        "LOCALHOST",
        "relay.example.org",
        "Relay.Example.org:443",
    ] {
        assert_eq!(verdict("GET /", &[("Host", host)]), None, "{host}");
    }
}

#[test]
fn other_names_are_refused_but_for_monitoring() {
    for host in [
        "evil.example",
        "relay",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "relay.example.org.evil.example",
        "evil.example:9464",
        "[evil]",
        "[127.0.0.1]",
        "a:b",
        "",
    ] {
        for path in ["/", "/status", "/events", "/api/dlq", "/nothing", "/metrics/x"] {
            let first = format!("GET {path}");
            assert_eq!(verdict(&first, &[("Host", host)]), Some(421), "{host} {path}");
        }
        for path in UNDER_ANY_NAME {
            assert_eq!(verdict(&format!("GET {path}"), &[("Host", host)]), None, "{host} {path}");
        }
    }
    assert_eq!(verdict("GET /", &[]), Some(421));
    assert_eq!(verdict("GET /", &[("Host", "127.0.0.1"), ("Host", "127.0.0.1")]), Some(421));
}

#[test]
fn what_changes_something_comes_from_this_site_or_from_no_browser() {
    let asked = |method: &str, host, origin| {
        verdict(&format!("{method} /api/dlq/job"), &[("Host", host), ("Origin", origin)])
    };
    for (host, origin, expected) in [
        ("127.0.0.1:9464", "http://127.0.0.1:9464", None),
        ("relay.example.org", "https://relay.example.org", None),
        // A proxy that does not pass the name on.
        ("127.0.0.1:9464", "https://relay.example.org", None),
        ("127.0.0.1:9464", "http://127.0.0.1:9465", Some(403)),
        ("127.0.0.1:9464", "http://10.0.0.9", Some(403)),
        ("127.0.0.1:9464", "https://evil.example", Some(403)),
        ("127.0.0.1:9464", "null", Some(403)),
        ("127.0.0.1:9464", "", Some(403)),
    ] {
        for method in ["POST", "DELETE", "PUT"] {
            assert_eq!(asked(method, host, origin), expected, "{method} {host} {origin}");
        }
        assert_eq!(asked("GET", host, origin), None);
    }
    assert_eq!(verdict("POST /api/dlq/replay", &[("Host", "127.0.0.1:9464")]), None);
}

#[test]
fn a_refusal_says_which_line_allows_the_name() {
    let fault = unknown_host("relay.svc:9464");
    assert!(fault.mend.contains("[admin] hosts = [\"relay.svc\"]"), "{}", fault.mend);
    let fault = unknown_host(&"x".repeat(9_000));
    assert!(fault.what.len() < 400 && fault.mend.len() < 400);
}
