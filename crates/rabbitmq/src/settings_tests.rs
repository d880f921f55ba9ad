use super::*;
use walrelay_base::settings::Settings as _;
use walrelay_base::settings::visit::section_of;

fn read(pairs: &[(&'static str, &'static str)]) -> Result<RabbitSettings, Vec<InvalidSetting>> {
    let mut section = section_of(&[&[("exchange", "x")], pairs].concat());
    let around = Surroundings {
        window_events_max: 1,
        window_bytes_max: 1,
        dead_letters: &DeadLetterAddress::default(),
        state_file: None,
    };
    let mut settings = RabbitSettings::read(&mut section);
    let invalid = settings.complete(&around);
    if invalid.is_empty() { Ok(settings) } else { Err(invalid) }
}

/// Each misfit as `key: what`.
fn misfits(pairs: &[(&'static str, &'static str)]) -> Vec<String> {
    let misfits = read(pairs).unwrap_err();
    misfits.iter().map(|misfit| format!("{}: {}", misfit.key, misfit.what)).collect()
}

#[track_caller]
fn told(pairs: &[(&'static str, &'static str)], wanted: &[&str]) {
    let misfits = misfits(pairs);
    assert_eq!(misfits.len(), wanted.len(), "{misfits:?}");
    for (misfit, wanted) in misfits.iter().zip(wanted) {
        assert!(misfit.contains(wanted), "{wanted}: {misfits:?}");
    }
}

#[test]
fn who_logs_in_depends_on_url_and_auth() {
    let login = |pairs: &[_]| read(pairs).unwrap().login;
    let plain =
        |user: &str, password: &str| RabbitLogin::Plain(user.to_owned(), Secret::new(password));
    assert_eq!(login(&[("url", "amqp://mq")]), plain("guest", "guest"));
    assert_eq!(login(&[("url", "amqp://u:p@mq")]), plain("u", "p"));
    assert_eq!(login(&[("url", "amqp://u@mq")]), plain("u", ""));
    let external = [("auth", "external"), ("cert_file", "c"), ("key_file", "k")];
    let [auth, cert, key] = external;
    assert_eq!(login(&[("url", "amqps://mq"), auth, cert, key]), RabbitLogin::External);
    told(&[("url", "amqps://u:p@mq"), auth, cert, key], &["url: names a user"]);
    told(&[("url", "amqps://mq"), auth], &["auth: \"external\" needs a client certificate"]);
    told(&[("url", "amqp://mq"), auth], &["auth: \"external\" needs TLS"]);
}

#[test]
fn tls_keys_need_tls_and_a_whole_identity() {
    let keys = [("ca_file", "a"), ("cert_file", "c"), ("key_file", "k"), ("server_name", "n")];
    let [ca, cert, key, name] = keys;
    let no_effect =
        ["ca_file: has no", "cert_file: has no", "key_file: has no", "server_name: has no"];
    told(&[("url", "amqp://mq"), ca, cert, key, name], &no_effect);
    let settings = read(&[("url", "amqps://mq"), ca, cert, key, name]).unwrap();
    let tls = settings.tls_files;
    assert!(settings.is_encrypted);
    assert_eq!(tls.ca_file.as_deref(), Some(std::path::Path::new("a")));
    assert_eq!(tls.server_name.as_deref(), Some("n"));
    told(&[("url", "amqps://mq"), cert], &["cert_file: needs key_file"]);
    told(&[("url", "amqps://mq"), key], &["key_file: needs cert_file"]);
    told(&[("url", "amqps://mq"), ("server_name", "no name")], &["server_name: \"no name\""]);
    told(&[("url", "amqps://mq,-bad-")], &["url: has a host that no certificate"]);
    read(&[("url", "amqps://-bad-"), name]).unwrap();
}

#[test]
fn queues_are_bound_to_an_exchange_that_is_known() {
    let url = ("url", "amqp://mq");
    let settings = read(&[url, ("queues.orders", "order.#")]).unwrap();
    assert_eq!(settings.queues["orders"], "order.#");
    let row = ("exchange", "x.${type}");
    assert_eq!(read(&[url, row]).unwrap().exchange.constant(), None);
    told(&[url, row, ("queues.q", "#")], &["queues: cannot be bound"]);
    let default = ("exchange", "");
    read(&[url, default, ("queues.q", ""), ("queues.r", "r")]).unwrap();
    told(&[url, default, ("queues.q", "#")], &["queues: binds queue \"q\" by \"#\""]);
    told(&[url, ("queues.", "#")], &["queues: has a queue whose name"]);
    let long: &'static str = "x".repeat(256).leak();
    told(&[url, ("exchange", long)], &["exchange: has more than 255 bytes"]);
}

#[test]
fn all_misfits_are_told_at_once_and_none_quotes_the_url() {
    let pairs = [("url", "amqp://u:canary/@mq"), ("exchange", ""), ("queues.q", "x")];
    let misfits = read(&pairs).unwrap_err();
    assert_eq!(misfits.len(), 2, "{misfits:?}");
    assert!(!format!("{misfits:?}").contains("canary"), "{misfits:?}");
}

#[test]
fn the_place_shows_no_login() {
    let place = read(&[("url", "amqps://u:canary@mq:1,[::1]/v")]).unwrap().place();
    assert_eq!(place, "amqps://mq:1,[::1]:5671, virtual host v");
    let debug = format!("{:?}", read(&[("url", "amqp://u:canary@mq")]).unwrap());
    assert!(!debug.contains("canary"), "{debug}");
}
