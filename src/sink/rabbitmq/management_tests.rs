use super::*;

fn parsed(url: &str) -> Management {
    Management::parse(url, None).unwrap_or_else(|error| panic!("{url}: {error}"))
}

#[test]
fn every_part_of_the_url_is_found() {
    let api = parsed("https://us%65r:p%40w@mq.example:443/rabbit/api/");
    assert_eq!(api.to_string(), "https://mq.example:443/rabbit");
    let (user, password) = api.login.unwrap();
    assert_eq!((user.as_str(), password.expose()), ("user", "p@w"));
    assert_eq!(parsed("http://mq").to_string(), "http://mq:15672");
    assert_eq!(parsed("https://mq/").to_string(), "https://mq:15671");
    assert_eq!(parsed("http://[::1]:1/api").to_string(), "http://[::1]:1");
    assert_eq!(parsed("http://[::1]").to_string(), "http://[::1]:15672");
}

#[test]
fn what_is_wrong_is_told_without_quoting_the_url() {
    for url in [
        "canary",
        "amqp://canary@mq",
        "http://u:canary/x@mq",
        "http://u:canary?x@mq",
        "http://u:canary@",
        "http://u:canary@mq:x",
        "http://u:canary%2@mq",
        "http://u:canary@m q",
        "http://mq/canary path",
    ] {
        let error = Management::parse(url, None).unwrap_err();
        assert!(!format!("{error:?}").contains("canary"), "{url}: {error:?}");
    }
}

#[test]
fn a_question_carries_its_login_and_an_encoded_path() {
    let secret = Secret::new("pw");
    let parts = ["exchanges", "/", "a b%/ü"];
    let asked = parsed("http://mq:1/x").request(&parts, Some(("relay", &secret)));
    assert!(
        asked.starts_with("GET /x/api/exchanges/%2F/a%20b%25%2F%C3%BC HTTP/1.1\r\n"),
        "{asked}"
    );
    assert!(asked.contains("\r\nHost: mq:1\r\n"), "{asked}");
    assert!(asked.contains("\r\nAuthorization: Basic cmVsYXk6cHc=\r\n"), "{asked}");
    let own = parsed("http://a:b@mq").request(&[], Some(("relay", &secret)));
    assert!(own.contains("Basic YTpi\r\n"), "{own}");
    assert!(!parsed("http://mq").request(&[], None).contains("Authorization"));
}
