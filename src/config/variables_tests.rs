//! The variables of OpenTelemetry, and the section that they stand in for; and those of libpq.

use super::*;
use crate::trace::TracingSettings;

const VARIABLES: [(&str, &str); 4] = [
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://agent:4318"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "token=c4n4ry"),
    ("OTEL_SERVICE_NAME", "shop"),
    ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
];

#[track_caller]
fn tracing(section: &str, more: &[(&str, &str)]) -> TracingSettings {
    let text = format!("{MINIMAL}[tracing]\n{section}\n");
    let variables = [&VARIABLES[..], more].concat();
    load_with(&text, &variables, &[])
        .unwrap_or_else(|it| panic!("{}", rendered(&it)))
        .config
        .tracing
}

fn endpoint(tracing: &TracingSettings) -> Option<&str> {
    tracing.endpoint.as_ref().map(|url| url.expose())
}

#[test]
fn they_fill_in_what_the_section_does_not_say() {
    let found = tracing("", &[]);
    assert_eq!(endpoint(&found), Some("http://agent:4318"));
    assert_eq!(found.headers.as_ref().map(|it| it.expose()), Some("token=c4n4ry"));
    assert_eq!((found.service_name.as_str(), found.sample_ratio), ("shop", 0.25));
    let found = tracing("headers = \"token=own\"\nsample_ratio = 1", &[]);
    assert_eq!((endpoint(&found), found.sample_ratio), (Some("http://agent:4318"), 1.0));
    assert_eq!(found.headers.as_ref().map(|it| it.expose()), Some("token=own"));
    assert_eq!(found.service_name, "shop");
    let found = tracing("", &[("WALRELAY_TRACING__SERVICE_NAME", "own")]);
    assert_eq!(found.service_name, "own");
    // (An empty variable counts as one that is not set.)
    let found = tracing("", &[("OTEL_EXPORTER_OTLP_PROTOCOL", "")]);
    assert_eq!(endpoint(&found), Some("http://agent:4318"));
}

#[test]
fn their_headers_go_to_no_endpoint_but_theirs() {
    let headers = |section: &str, more: &[(&str, &str)]| {
        let found = tracing(section, more);
        let shown = found.headers.as_ref().map(|it| it.expose().to_owned());
        (endpoint(&found).map(str::to_owned), shown)
    };
    let own = || Some("http://own:4318".to_owned());
    let section = "endpoint = \"http://own:4318\"";
    assert_eq!(headers(section, &[]), (own(), None));
    let variable = ("WALRELAY_TRACING__ENDPOINT", "http://own:4318");
    assert_eq!(headers("", &[variable]), (own(), None));
    let same = "endpoint = \"http://agent:4318\"";
    assert_eq!(headers(same, &[]).1, Some("token=c4n4ry".to_owned()));
    // WHEN no variable names an endpoint THEN they are those of the section
    let alone = headers(section, &[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]);
    assert_eq!(alone, (own(), Some("token=c4n4ry".to_owned())));
    // WHEN the section names them THEN they are those of its endpoint
    let named = format!("{section}\nheaders = {{ env = \"OTEL_EXPORTER_OTLP_HEADERS\" }}");
    assert_eq!(headers(&named, &[]), (own(), Some("token=c4n4ry".to_owned())));
}

#[test]
fn they_do_nothing_when_traces_are_off_or_of_another_protocol() {
    for off in [
        ("OTEL_SDK_DISABLED", "true"),
        ("OTEL_TRACES_EXPORTER", "none"),
        ("OTEL_TRACES_SAMPLER", "parentbased_always_off"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
    ] {
        assert_eq!(endpoint(&tracing("", &[off])), None, "{off:?}");
        let own = tracing("endpoint = \"http://own:4318\"", &[off]);
        assert_eq!(endpoint(&own), Some("http://own:4318"), "{off:?}");
    }
    let same = tracing("", &[("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")]);
    assert_eq!(endpoint(&same), Some("http://agent:4318"));
    let empty = tracing("", &[("OTEL_SERVICE_NAME", "")]);
    assert_eq!(empty.service_name, "walrelay");
}

#[test]
fn a_wrong_one_is_told_by_its_name_and_secrets_are_hidden() {
    let variables = [VARIABLES[1], ("OTEL_TRACES_SAMPLER_ARG", "often")];
    let told = rendered(&load_with(MINIMAL, &variables, &[]).unwrap_err());
    assert!(told.contains("environment variable OTEL_TRACES_SAMPLER_ARG"), "{told}");
    let text = "headers = \"a=c4n4ry\"\nendpoint = \"https://user:c4n4ry@host\"";
    let told =
        rendered(&load_with(&format!("{MINIMAL}[tracing]\n{text}\n"), &[], &[]).unwrap_err());
    assert!(told.contains("a login in the URL") && !told.contains("c4n4ry"), "{told}");
    let shown = show(&load_with(MINIMAL, &VARIABLES, &[]).unwrap().effective);
    assert!(shown.contains("headers = \"***\"  # OTEL_EXPORTER_OTLP_HEADERS"), "{shown}");
    assert!(shown.contains("sample_ratio = 0.25  # OTEL_TRACES_SAMPLER_ARG"), "{shown}");
    assert!(!shown.contains("c4n4ry"), "{shown}");
}

#[test]
fn a_wrong_variable_of_libpq_is_told_by_its_name() {
    for (name, value) in [("PGSSLMODE", "allow"), ("PGCONNECT_TIMEOUT", "x"), ("PGSERVICE", "x")] {
        let told = rendered(&load_with(MINIMAL, &[(name, value)], &[]).unwrap_err());
        assert!(told.contains(&format!("where: environment variable {name}")), "{told}");
        assert!(told.contains(&format!("unset {name}")), "{told}");
    }
}
