use super::*;
use walrelay_base::secret::SECRET_UNREAD;
use walrelay_base::testing::TempFolder;

fn settings(properties: Vec<(&str, Secret)>) -> KafkaSettings {
    let properties = properties.into_iter().map(|(name, value)| (name.to_owned(), value));
    KafkaSettings { properties: properties.collect(), ..KafkaSettings::default() }
}

#[test]
fn a_text_of_librdkafka_shows_no_value_that_may_be_secret_not_even_where_it_is_cut() {
    let settings = settings(vec![
        ("sasl.password", Secret::new("hunter2-of-the-relay")),
        ("compression.type", Secret::new("snappish")),
        ("ssl.key.password", Secret::default()),
    ]);
    let shown = settings.without_secrets("\"hunter2-of-the-relay\" and \"snappish\" are no values");
    assert_eq!(shown, "\"***\" and \"snappish\" are no values");
    assert_eq!(settings.without_secrets("no value: hunter2-of"), "no value: ***");
    assert_eq!(settings.without_secrets("all is well"), "all is well");
}

#[test]
fn what_belongs_to_the_login_is_read_again_for_a_new_client_and_nothing_else_is() {
    let folder = TempFolder::new();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (password, linger) = (file("password", "one"), file("linger", "5"));
    let secret = |path| Secret::of_file(path).unwrap();
    let settings =
        settings(vec![("sasl.password", secret(&password)), ("linger.ms", secret(&linger))]);
    file("password", "two");
    file("linger", "900000");
    let properties = settings.effective_properties().unwrap();
    let in_force = |wanted: &str| {
        let values = properties.iter().rev().filter(|(name, _)| name == wanted);
        values.map(|(_, value)| value.as_str()).next().map(str::to_owned)
    };
    assert_eq!(
        [in_force("sasl.password"), in_force("linger.ms")].map(Option::unwrap),
        ["two", "5"]
    );
    std::fs::remove_file(&password).unwrap();
    assert_eq!(settings.effective_properties().unwrap_err().code, SECRET_UNREAD);
}

#[test]
fn a_broker_has_no_protocol_but_one_of_librdkafka() {
    let is_taken = |brokers: &str| (BROKERS.holds)(brokers);
    for good in ["h", "h:9092", "[::1]:9092", "SASL_SSL://h:1", "ssl://h:1, plaintext://[::1]:2"] {
        assert!(is_taken(good), "{good}");
    }
    for wrong in ["", "http://h:9092", "h:1,kafka://h:2", "://h:1", "ssl://", "h:0"] {
        assert!(!is_taken(wrong), "{wrong}");
    }
}
