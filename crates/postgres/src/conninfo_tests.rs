//! Connection strings: what libpq does, and that nothing leaks.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn nothing(_: &str) -> Option<String> {
    None
}

fn read(url: &str) -> ConnInfo {
    parse(url, &nothing).unwrap()
}

fn at(info: &ConnInfo) -> Vec<(&str, u16)> {
    info.hosts.iter().map(|host| (host.name.as_str(), host.port)).collect()
}

#[test]
fn a_url_gives_everything_it_says() {
    let info = read(
        "postgres://al%40ice:p%3Aw%2F@h1:1111,h2:2222/my%20db?sslmode=verify-full&sslrootcert=/ca.pem\
         &sslcert=/c.pem&sslkey=/k.pem&target_session_attrs=read-write&connect_timeout=3\
         &application_name=me&options=-c%20geqo%3Doff",
    );
    assert_eq!(at(&info), [("h1", 1111), ("h2", 2222)]);
    assert_eq!((info.user.as_str(), info.dbname.as_str()), ("al@ice", "my db"));
    assert_eq!(info.password.unwrap().expose(), "p:w/");
    assert_eq!(info.sslmode, SslMode::VerifyFull);
    assert_eq!(info.sslrootcert, Some("/ca.pem".into()));
    assert_eq!(info.sslcert, Some("/c.pem".into()));
    assert_eq!(info.sslkey, Some("/k.pem".into()));
    assert_eq!(info.target_session_attrs, TargetSessionAttrs::ReadWrite);
    assert_eq!(info.connect_timeout, Duration::from_secs(3));
    assert_eq!(info.application_name, "me");
    assert_eq!(info.options.as_deref(), Some("-c geqo=off"));
}

#[test]
fn what_a_url_leaves_out_has_libpq_defaults() {
    let info = read("postgresql://u@h");
    assert_eq!(at(&info), [("h", 5432)]);
    assert_eq!(info.dbname, "u");
    assert_eq!(info.sslmode, SslMode::Prefer);
    assert_eq!(info.application_name, "walrelay");
    assert_eq!(info.connect_timeout, Duration::from_secs(10));
    assert_eq!(info.target_session_attrs, TargetSessionAttrs::Any);
    assert_eq!(info.password, None);
    assert_eq!(read("postgres://u@h/d?connect_timeout=0").connect_timeout, Duration::from_secs(10));
}

#[test]
fn of_several_hosts_the_primary_is_wanted_unless_told_otherwise() {
    let wanted = |url| read(url).target_session_attrs;
    assert_eq!(wanted("postgres://u@h1,h2/d"), TargetSessionAttrs::Primary);
    assert_eq!(wanted("postgres://u@h1,h2/d?target_session_attrs=any"), TargetSessionAttrs::Any);
    assert_eq!(wanted("postgres://u@h1/d"), TargetSessionAttrs::Any);
}

#[test]
fn a_variable_that_is_not_read_is_refused_where_libpq_would_obey_it() {
    for variable in ["PGSSLCRL", "PGSERVICE", "PGHOSTADDR"] {
        let env = move |name: &str| (name == variable).then(|| "x".to_owned());
        let refused = parse("postgres://u@h/d", &env).unwrap_err().to_string();
        assert!(refused.contains(&format!("`{variable}` is `x`; supported: not set")), "{refused}");
    }
}

#[test]
fn what_a_variable_demands_of_the_link_is_refused_and_not_ignored() {
    for (variable, demand, harmless) in [
        ("PGCHANNELBINDING", "require", "prefer"),
        ("PGGSSENCMODE", "require", "disable"),
        ("PGSSLNEGOTIATION", "direct", "postgres"),
        ("PGSSLCERTMODE", "require", "allow"),
        ("PGSSLMINPROTOCOLVERSION", "TLSv1.3", "TLSv1.2"),
    ] {
        let with = |value: &'static str| {
            parse("postgres://u@h/d", &move |name: &str| {
                (name == variable).then(|| value.to_owned())
            })
        };
        assert!(with(harmless).is_ok() && with("").is_ok(), "{variable}");
        let refused = with(demand).unwrap_err().to_string();
        assert!(refused.contains(&format!("`{variable}` is `{demand}`")), "{refused}");
    }
    let demand = |name: &str| (name == "PGCHANNELBINDING").then(|| "require".to_owned());
    assert!(parse("postgres://u@h/d?channel_binding=disable", &demand).is_ok());
}

#[test]
fn a_value_that_a_variable_has_is_told_by_the_name_of_the_variable() {
    for (variable, value, supported) in [
        ("PGSSLMODE", "allow", "disable, prefer, require, verify-ca, verify-full"),
        ("PGCONNECT_TIMEOUT", "x", "whole seconds"),
        ("PGPORT", "x", "numbers from 1 to 65535"),
        ("PGSERVICE", "x", "not set, because it is not read"),
        ("PGCHANNELBINDING", "require", "disable, prefer"),
    ] {
        let env = move |name: &str| (name == variable).then(|| value.to_owned());
        let told = ConnInfoError::Variable(variable.into(), value.into(), supported.into());
        assert_eq!(parse("postgres://u@h/d", &env), Err(told));
    }
    // WHEN the string has the parameter itself THEN the error is about the parameter
    let env = |name: &str| (name == "PGSSLMODE").then(|| "allow".to_owned());
    let told = parse("postgres://u@h/d?sslmode=always", &env).unwrap_err().to_string();
    assert!(told.starts_with("connection parameter `sslmode` is `always`"), "{told}");
}

#[test]
fn hosts_come_in_all_their_shapes() {
    assert_eq!(at(&read("postgres://u@[::1]:7/d")), [("::1", 7)]);
    assert_eq!(at(&read("postgres://u@[fe80::1],b:9/d")), [("fe80::1", 5432), ("b", 9)]);
    assert_eq!(at(&read("postgres://u@%2Frun%2Fpg/d")), [("/run/pg", 5432)]);
    assert_eq!(at(&read("postgres://u@/d?host=/run/pg&port=6000")), [("/run/pg", 6000)]);
    assert_eq!(at(&read("postgres://u@x/d?host=a,b&port=7")), [("a", 7), ("b", 7)]);
    assert_eq!(at(&read("host=a,b port=1,2 user=u")), [("a", 1), ("b", 2)]);
    assert_eq!(at(&read("host=a,b port=1, user=u")), [("a", 1), ("b", 5432)]);
    assert_eq!(parse("host=a,b,c port=1,2 user=u", &nothing), Err(ConnInfoError::PortCount(3, 2)));
}

#[test]
fn keyword_strings_know_quotes_and_escapes() {
    let info = read(r"host = h user='o\'brien' password = 'a b\\c' dbname=d\ e sslmode=disable");
    assert_eq!((info.user.as_str(), info.dbname.as_str()), ("o'brien", "d e"));
    assert_eq!(info.password.unwrap().expose(), r"a b\c");
    assert_eq!(info.sslmode, SslMode::Disable);
    assert!(parse("host=h user='x", &nothing).is_err());
    assert!(parse("gibberish", &nothing).is_err());
}

#[test]
fn the_environment_fills_gaps_and_the_url_wins() {
    let env = |name: &str| {
        let value = match name {
            "PGHOST" => "envhost",
            "PGPORT" => "7777",
            "PGUSER" => "envuser",
            "PGPASSWORD" => "envpass",
            "PGDATABASE" => "envdb",
            "PGSSLMODE" => "require",
            "PGTARGETSESSIONATTRS" => "primary",
            "PGCONNECT_TIMEOUT" => "4",
            "PGAPPNAME" => "envapp",
            "PGOPTIONS" => "-c a=b",
            "PGSSLROOTCERT" => "/env/ca",
            _ => return None,
        };
        Some(value.to_owned())
    };
    let info = parse("postgres://", &env).unwrap();
    assert_eq!(at(&info), [("envhost", 7777)]);
    assert_eq!((info.user.as_str(), info.dbname.as_str()), ("envuser", "envdb"));
    assert_eq!(info.password.as_ref().unwrap().expose(), "envpass");
    assert_eq!(info.sslmode, SslMode::Require);
    assert_eq!(info.sslrootcert, Some("/env/ca".into()));
    assert_eq!(info.target_session_attrs, TargetSessionAttrs::Primary);
    assert_eq!(info.connect_timeout, Duration::from_secs(4));
    assert_eq!(info.application_name, "envapp");
    assert_eq!(info.options.as_deref(), Some("-c a=b"));

    let info = parse("postgres://me:mine@here:1/db?sslmode=disable", &env).unwrap();
    assert_eq!(at(&info), [("here", 1)]);
    assert_eq!((info.user.as_str(), info.dbname.as_str()), ("me", "db"));
    assert_eq!(info.password.unwrap().expose(), "mine");
    assert_eq!(info.sslmode, SslMode::Disable);
    assert_eq!(at(&parse("postgres://me@here/db", &env).unwrap()), [("here", 7777)]);
}

#[test]
fn the_user_falls_back_on_the_login_name() {
    let env = |name: &str| (name == "USER").then(|| "os".to_owned());
    assert_eq!(parse("postgres://h", &env).unwrap().user, "os");
    assert_eq!(parse("postgres://h", &nothing), Err(ConnInfoError::NoUser));
}

#[test]
fn what_would_be_ignored_is_refused_with_a_suggestion() {
    let told = |url: &str| parse(url, &nothing).unwrap_err().to_string();
    assert_eq!(
        told("postgres://u@h/d?sslmod=require"),
        "unknown connection parameter `sslmod`; did you mean `sslmode`?"
    );
    assert!(told("host=h zebra=1").contains("its name is not shown"));
    assert_eq!(
        told("postgres://u@h/d?sslmode=allow"),
        "connection parameter `sslmode` is `allow`; supported: disable, prefer, require, verify-ca, verify-full"
    );
    assert!(
        told("postgres://u@h/d?target_session_attrs=rw").contains("supported: any, read-write")
    );
    assert!(
        told("postgres://u@h/d?channel_binding=require").contains("supported: disable, prefer")
    );
    assert!(told("postgres://u@h/d?connect_timeout=soon").contains("whole seconds"));
    read("postgres://u@h/d?channel_binding=prefer&gssencmode=disable");
    assert_eq!(read("postgres://u@h/d?ssl=true").sslmode, SslMode::Require);
}

#[test]
fn the_system_store_demands_name_verification() {
    assert_eq!(read("postgres://u@h/d?sslrootcert=system").sslmode, SslMode::VerifyFull);
    assert!(parse("postgres://u@h/d?sslrootcert=system&sslmode=require", &nothing).is_err());
}

#[test]
fn a_password_cut_in_two_is_neither_used_nor_shown() {
    for url in [
        "postgres://u:12canary/34@h/d",
        "postgres://u:12/canary@h/d",
        "postgres://u:12?canary=34@h/d",
        "postgres://u:12#canary@h/d",
        "postgres://u:canary%zz@h/d",
        "postgres://u:x@h/d?passwort=canary",
        "postgres://u:x@h/d?password=canary&port=canary",
        "postgres://u:canary@h:port/d",
        "postgres://u:x@h/d?password=a&canary",
        "host=h password=a canary",
        "host=h password='canary",
        "user=u password=canary sslmode=no",
        "postgres://u:p@ss?canary=34@h/d",
        "postgres://u:p@ss?sslmode=canary@h/d",
        "host=h user=u dbname=d password=a canary=b",
        "postgres://u:p@ss&canary=b@h/d?x=1",
    ] {
        let error = parse(url, &nothing).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("canary"), "{url}: {error:?}");
    }
    let info = read("postgres://u:canary@h/d");
    assert!(!format!("{info:?}").contains("canary"));
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused_without_panic(text in ".{0,80}", query in ".{0,40}") {
        for url in [text.clone(), format!("postgres://{text}"), format!("postgres://u@h/d?{query}")] {
            drop(parse(&url, &nothing));
        }
    }

    #[test]
    fn a_quoted_value_comes_back_as_it_went_in(value in "[ -~é]{1,30}") {
        let quoted = value.replace('\\', r"\\").replace('\'', r"\'");
        let info = read(&format!("host=h user=u password='{quoted}' port=1"));
        let password = info.password.unwrap();
        prop_assert_eq!(password.expose(), &value);
        prop_assert_eq!(info.hosts[0].port, 1);
    }
}
