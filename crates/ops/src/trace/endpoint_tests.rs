use super::*;

fn parse(url: &str) -> Result<OtlpEndpoint, &'static str> {
    OtlpEndpoint::parse(&Secret::new(url))
}

#[test]
fn spans_go_to_a_path_below_the_base_url() {
    let cases = [
        ("http://collector:4318", false, "collector", 4318, "/v1/traces"),
        ("http://collector:4318/", false, "collector", 4318, "/v1/traces"),
        ("https://otlp.example/base/", true, "otlp.example", 443, "/base/v1/traces"),
        ("http://127.0.0.1/v1/traces", false, "127.0.0.1", 80, "/v1/traces"),
        ("https://[::1]:4318", true, "::1", 4318, "/v1/traces"),
    ];
    for (url, tls, host, port, path) in cases {
        let found = parse(url).unwrap();
        assert_eq!((found.tls, found.host.as_str(), found.port), (tls, host, port), "{url}");
        assert_eq!(found.path, path, "{url}");
    }
    // A path of one's own may be a key.
    let shown = |url: &str| parse(url).unwrap().to_string();
    assert_eq!(shown("https://[::1]:4318/c4n4ry"), "https://[::1]:4318/***");
    assert_eq!(shown("http://collector:4318/"), "http://collector:4318/v1/traces");
}

#[test]
fn what_is_no_base_url_is_refused_without_being_quoted() {
    const CANARY: &str = "c4n4ry";
    let urls = [
        format!("collector-{CANARY}:4318"),
        format!("grpc://{CANARY}:4317"),
        format!("http://user:{CANARY}@collector:4318"),
        format!("http://collector:4318/?token={CANARY}"),
        format!("http://{CANARY} b"),
        "http://:4318".to_owned(),
        "http://collector:431800".to_owned(),
        "http://collector:".to_owned(),
        "/v1/traces".to_owned(),
        String::new(),
    ];
    for url in urls {
        let error = parse(&url).unwrap_err();
        assert!(!error.is_empty() && !error.contains(CANARY), "{url}: {error}");
    }
}

#[test]
fn headers_are_read_as_opentelemetry_writes_them() {
    let text = Secret::new("authorization=Bearer%20x=y, X-Tenant = blue ,");
    let headers = parse_headers(&text).unwrap();
    let headers: Vec<(&str, &[u8])> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    assert_eq!(headers, [("authorization", &b"Bearer x=y"[..]), ("x-tenant", b"blue")]);
    assert!(parse_headers(&Secret::default()).unwrap().is_empty());
}

#[test]
fn a_wrong_header_is_told_by_its_place() {
    for wrong in ["c4n4ry", "a b=c4n4ry", "a=c4n4ry%0a", "a=c4n4ry%zz", "=c4n4ry"] {
        let error = parse_headers(&Secret::new(format!("ok=1,{wrong}"))).unwrap_err();
        assert_eq!(error, "entry 2 is no header written as name=value");
    }
}

#[test]
fn the_value_of_a_header_is_not_shown() {
    let headers = parse_headers(&Secret::new("a=c4n4ry")).unwrap();
    assert!(!format!("{headers:?}").contains("c4n4ry"));
}
