use super::*;

fn parsed(url: &str) -> AmqpUri {
    AmqpUri::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"))
}

fn places(url: &str) -> Vec<String> {
    let hosts = parsed(url).hosts;
    hosts.iter().map(|host| format!("{} {}", host.name, host.port)).collect()
}

#[test]
fn every_part_is_found_and_decoded() {
    let url = parsed("amqps://us%65r:p%40%2F%3a%25w@mq.example:1234/v%2Fh%20ost");
    assert!(url.tls);
    assert_eq!(url.user.as_deref(), Some("user"));
    assert_eq!(url.password.unwrap().expose(), "p@/:%w");
    assert_eq!(url.hosts, [RabbitHost { name: "mq.example".into(), port: 1234 }]);
    assert_eq!(url.vhost, "v/h ost");
    let bare = parsed("amqp://mq");
    assert_eq!((bare.tls, bare.user, bare.password), (false, None, None));
    let empty = parsed("amqp://u:@mq").password.unwrap();
    assert_eq!(empty.expose(), "");
    assert_eq!(parsed("AMQP://u:a:b@mq").password.unwrap().expose(), "a:b");
    assert_eq!(parsed("amqp://u:p@ss@mq").password.unwrap().expose(), "p@ss");
}

#[test]
fn the_virtual_host_may_be_left_out() {
    for (url, vhost) in [
        ("amqp://mq", "/"),
        ("amqp://mq/", "/"),
        ("amqp://mq/%2f", "/"),
        ("amqp://mq/%2F", "/"),
        ("amqp://mq/name", "name"),
        ("amqp://mq/%2fname", "/name"),
    ] {
        assert_eq!(parsed(url).vhost, vhost, "{url}");
    }
}

#[test]
fn several_hosts_each_have_a_port() {
    assert_eq!(
        places("amqp://u:p@a:1,b,[::1]:2,[fe80::1%25eth0]/v"),
        ["a 1", "b 5672", "::1 2", "fe80::1%eth0 5672"]
    );
    assert_eq!(places("amqps://a,b:7"), ["a 5671", "b 7"]);
}

#[test]
fn what_is_wrong_is_told_without_quoting_the_url() {
    for (url, what) in [
        ("canary", "does not begin with amqp://"),
        ("http://canary@mq", "scheme"),
        ("amqp://u:canary/x@mq/v", "falls apart"),
        ("amqp://u:canary#x@mq/v", "falls apart"),
        ("amqp://u:canary?x@mq/v", "falls apart"),
        ("amqp://u:canary@mq/a/b", "falls apart"),
        ("amqp://u:canary%zz@mq", "hexadecimal"),
        ("amqp://u:canary%2", "port"),
        ("amqp://u:canary%2@mq", "hexadecimal"),
        ("amqp://u:canary%00@mq", "NUL"),
        ("amqp://u:canary%ff@mq", "UTF-8"),
        ("amqp://u:canary@", "names no host"),
        ("amqp:///canary", "names no host"),
        ("amqp://a,,b/canary", "names no host"),
        ("amqp://a b/canary", "space"),
        ("amqp://mq:0/canary", "port"),
        ("amqp://mq:70000/canary", "port"),
        ("amqp://mq:/canary", "port"),
        ("amqp://::1/canary", "names no host"),
        ("amqp://[::1/canary", "without its ]"),
        ("amqp://[::1]x/canary", "after the ]"),
        ("amqp://mq/v?canary=1", "parameters"),
    ] {
        let error = AmqpUri::parse(url).unwrap_err();
        assert!(error.what.contains(what), "{url}: {error:?}");
        assert!(!format!("{error:?}").contains("canary"), "{url}: {error:?}");
    }
    let long = format!("amqp://mq/{}", "v".repeat(256));
    assert!(AmqpUri::parse(&long).unwrap_err().what.contains("255"));
    let many = format!("amqp://{}", ["mq"; 33].join(","));
    assert!(AmqpUri::parse(&many).unwrap_err().what.contains("32 hosts"));
}

#[test]
fn a_parameter_is_answered_with_the_key_that_says_it_here() {
    let error = AmqpUri::parse("amqps://mq/v?heartbeat=5&cacertfile=/x").unwrap_err();
    assert!(error.mend.contains("instead of heartbeat write heartbeat ="), "{error:?}");
    assert!(error.mend.contains("instead of cacertfile write ca_file ="), "{error:?}");
    let error = AmqpUri::parse("amqps://mq/v?auth_mechanism=external").unwrap_err();
    assert!(error.mend.contains("instead of auth_mechanism write auth = "), "{error:?}");
}
