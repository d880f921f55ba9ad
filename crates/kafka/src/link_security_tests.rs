use super::*;

type Properties<'a> = &'a [(&'a str, &'a str)];

fn warned(brokers: &str, properties: Properties<'_>) -> Vec<String> {
    let properties = properties.iter().map(|(name, value)| ((*name).into(), Secret::new(*value)));
    let settings = KafkaSettings {
        brokers: brokers.into(),
        properties: properties.collect(),
        ..KafkaSettings::default()
    };
    warnings(&settings).into_iter().map(|finding| finding.text).collect()
}

#[test]
fn a_link_that_others_can_read_or_pose_as_the_end_of_is_warned_of() {
    const PROTOCOL: &str = "security.protocol";
    let verification = ("enable.ssl.certificate.verification", "False");
    let no_name = ("ssl.endpoint.identification.algorithm", "none");
    let cases: [(&str, Properties<'_>, &str); 5] = [
        ("kafka:9092", &[(PROTOCOL, "SASL_PLAINTEXT")], "SASL_PLAINTEXT to kafka:9092"),
        (
            "127.0.0.1:1,kafka",
            &[(PROTOCOL, "sasl_plaintext"), ("sasl.mechanisms", "scram-sha-256")],
            "proves the password",
        ),
        ("kafka:9093", &[(PROTOCOL, "ssl"), verification], "not verified"),
        ("localhost:9093", &[(PROTOCOL, "SASL_SSL"), verification, no_name], "not verified"),
        ("kafka:9093", &[(PROTOCOL, "SASL_SSL"), no_name], "any certificate"),
    ];
    for (brokers, properties, words) in cases {
        let found = warned(brokers, properties);
        let [text] = found.as_slice() else { panic!("{properties:?}: {found:?}") };
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn a_link_that_is_safe_or_within_this_machine_is_not() {
    for (brokers, properties) in [
        ("kafka:9092", &[][..]),
        ("127.0.0.1:9092,[::1]:9093,localhost", &[("security.protocol", "SASL_PLAINTEXT")]),
        ("kafka:9093", &[("security.protocol", "SASL_SSL")]),
        ("kafka:9092", &[("enable.ssl.certificate.verification", "false")]),
    ] {
        assert_eq!(warned(brokers, properties), Vec::<String>::new(), "{brokers}");
    }
}
