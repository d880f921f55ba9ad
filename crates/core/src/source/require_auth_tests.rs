use super::*;

const ALL: [AuthMethod; 4] =
    [AuthMethod::None, AuthMethod::Password, AuthMethod::Md5, AuthMethod::Scram];

fn answered(text: &str, exposed: bool) -> Vec<AuthMethod> {
    let rules = match text {
        "" => RequireAuth::default(),
        text => RequireAuth::parse(text).ok().unwrap(),
    };
    ALL.into_iter().filter(|method| rules.judge(*method, exposed).is_ok()).collect()
}

#[test]
fn only_a_name_allows_a_password_where_others_can_read_it() {
    let [none, password, md5, scram] = ALL;
    assert_eq!(answered("", false), ALL);
    assert_eq!(answered("", true), [none, scram]);
    assert_eq!(answered("!none", true), [scram]);
    assert_eq!(answered("!none", false), [password, md5, scram]);
    assert_eq!(answered("!scram-sha-256,!gss", true), [none]);
    assert_eq!(answered("scram-sha-256", false), [scram]);
    assert_eq!(answered("password, scram-sha-256", true), [password, scram]);
    assert_eq!(answered("md5", true), [md5]);
    assert_eq!(answered("gss", false), []);
}

#[test]
fn a_refusal_says_whose_rule_it_is() {
    let default = RequireAuth::default();
    assert!(default.judge(AuthMethod::Md5, true).unwrap_err().in_clear);
    let scram = RequireAuth::parse("scram-sha-256").ok().unwrap();
    assert!(!scram.judge(AuthMethod::Md5, true).unwrap_err().in_clear);
    assert_eq!(ALL.map(AuthMethod::word), ["none", "password", "md5", "scram-sha-256"]);
}

#[test]
fn lists_are_refused_as_libpq_refuses_them() {
    for bad in ["passwort", "password,!md5", "md5,password,md5", "password,", "PASSWORD", "!!md5"] {
        assert!(RequireAuth::parse(bad).is_err(), "{bad}");
    }
}
