//! Refusals of keys, variables and flags that contradict each other, were removed or are unknown.

use super::*;

#[test]
fn a_key_that_was_removed_is_refused_with_what_to_do_instead() {
    let text = format!("{MINIMAL}[sink.rabbitmq]\nmanagement_url = \"http://u:canary@mq\"\n");
    let line = text.lines().count();
    let variables = [("WALRELAY_SINK__RABBITMQ__MANAGEMENT_URL", "http://u:canary@mq")];
    let faults =
        load_with(&text, &variables, &["sink.rabbitmq.management_url=canary"]).unwrap_err();
    let told = rendered(&faults);
    assert_eq!(faults.len(), 3, "{told}");
    for (fault, named) in faults.iter().zip([
        "sink.rabbitmq.management_url",
        "WALRELAY_SINK__RABBITMQ__MANAGEMENT_URL",
        "sink.rabbitmq.management_url",
    ]) {
        assert_eq!(fault.code, "config.removed-key", "{told}");
        assert!(fault.what.starts_with(&format!("{named} was removed: ")), "{told}");
        assert!(fault.mend.starts_with("remove the key; an event for which no queue"), "{told}");
    }
    assert!(faults[0].place.ends_with(&format!(".toml:{line}:1")), "{told}");
    assert!(!told.contains("canary"), "{told}");
}

#[test]
fn the_section_of_another_sink_without_its_kind_is_told_instead_of_missing_brokers() {
    const SOURCE: &str = "[source]\nurl = \"postgres://u@db/app\"\n";
    const RABBIT: &str = "[sink.rabbitmq]\nurl = \"amqp://mq\"\n";
    let faults = load_with(&format!("{SOURCE}{RABBIT}"), &[], &[]).unwrap_err();
    let [fault] = faults.as_slice() else { panic!("{}", rendered(&faults)) };
    assert_eq!(fault.code, "config.conflict");
    let what = "sink.kind: is kafka by default, and the configuration has [sink.rabbitmq] and no [sink.kafka]";
    assert_eq!(fault.what, what);
    assert!(fault.mend.contains("under [sink]:\nkind = \"rabbitmq\"\n"), "{fault}");
    // WHEN the kind is given, or several sections are THEN what is missing is told
    for sinks in [
        format!("[sink]\nkind = \"kafka\"\n{RABBIT}"),
        format!("{RABBIT}[sink.file]\npath = \"/data/events.jsonl\"\n"),
    ] {
        let told = complaints(&format!("{SOURCE}{sinks}"));
        assert!(told.contains("sink.kafka.brokers: is missing"), "{told}");
    }
}

#[test]
fn a_url_of_more_than_one_line_is_refused_and_not_shown() {
    let url = |url: &str| load_with(MINIMAL, &[("WALRELAY_SOURCE__URL", url)], &[]);
    for end in ["\n", "\r\n", "\n\n"] {
        let told = rendered(&url(&format!("postgres://u:c4n4ry@db/app{end}")).unwrap_err());
        assert!(told.contains("source.url: the URL has a line end in it or after it"), "{told}");
        assert!(!told.contains("c4n4ry"), "{told}");
    }
    // GIVEN keywords THEN a line end is a blank
    assert!(url("host=db user=u\ndbname=app\n").is_ok());
}

#[test]
fn two_variables_of_one_key_are_refused() {
    let variables = [("WALRELAY_SOURCE__SLOT", "e"), ("WALRELAY_source__slot", "f")];
    let told = rendered(&load_with(MINIMAL, &variables, &[]).unwrap_err());
    assert_eq!(
        told,
        "\
error[config.conflict]: source.slot: WALRELAY_SOURCE__SLOT sets this key as well
  where: environment variable WALRELAY_source__slot
  help:  unset WALRELAY_SOURCE__SLOT, or: unset WALRELAY_source__slot"
    );
}

#[test]
fn an_unknown_flag_is_compared_with_the_keys_of_its_section() {
    let mend = |flag: &str| load_with(MINIMAL, &[], &[flag]).unwrap_err()[0].mend.clone();
    let told = mend("source.polling.nonsense=1");
    assert!(told.starts_with("[source.polling] knows: "), "{told}");
    assert_eq!(mend("source.polling.workrs=1"), "did you mean `source.polling.workers`?");
    assert_eq!(mend("sorce.slot=x"), "did you mean `source.slot`?");
}

#[test]
fn a_reference_without_a_name_is_none() {
    for reference in ["{ env = \"\" }", "{ file = \"\" }"] {
        let told = complaints(&format!("{MINIMAL}[admin]\ntoken = {reference}\n"));
        assert!(told.contains("found a table that is no reference to a secret"), "{told}");
    }
}

#[test]
fn a_secret_in_the_place_of_the_name_or_path_of_one_is_not_shown() {
    for (reference, words) in [
        ("{ env = \"postgres://u:c4n4ry@h/app\" }", "token: env is not the name of a variable"),
        ("{ env = \"1c4n4ry\" }", "token: env is not the name of a variable"),
        ("{ file = \"postgres://u:c4n4ry@h/app\" }", "token: file is not the path of a file"),
        ("{ file = \"host=db password=c4n4ry\" }", "token: file is not the path of a file"),
    ] {
        let told = complaints(&format!("{MINIMAL}[admin]\ntoken = {reference}\n"));
        assert!(told.contains("config.missing-secret") && told.contains(words), "{told}");
        assert!(!told.contains("c4n4ry"), "{told}");
        let flag = format!("admin.token={reference}");
        let told = rendered(&load_with(MINIMAL, &[], &[&flag]).unwrap_err());
        assert!(told.contains(words) && !told.contains("c4n4ry"), "{told}");
    }
}

#[test]
fn a_passfile_that_is_not_there_yet_may_be_there_at_a_later_start() {
    let variables = [("PGPASSFILE", "/nonexistent/pw")];
    let faults = load_with(MINIMAL, &variables, &[]).unwrap_err();
    let [fault] = faults.as_slice() else { panic!("{}", rendered(&faults)) };
    assert_eq!((fault.code, fault.exit), ("config.missing-secret", Exit::Failed));
    assert_eq!(fault.mend, "ls -l /nonexistent/pw");
    // WHEN it is there and cannot be used THEN a later start does not mend that
    let faults = load_with(MINIMAL, &[("PGPASSFILE", "/")], &[]).unwrap_err();
    let [fault] = faults.as_slice() else { panic!("{}", rendered(&faults)) };
    assert_eq!((fault.code, fault.exit), ("config.bad-value", Exit::Usage));
}

#[test]
fn a_required_key_whose_reference_cannot_be_used_is_told_once() {
    const REST: &str = "[sink.kafka]\nbrokers = \"kafka:9092\"\n";
    const NOT_ONE: (&str, &str) = ("config.bad-value", "no reference to a secret");
    #[track_caller]
    fn assert_told(outcome: Result<Loaded, Vec<Fault>>, (code, what): (&str, &str)) {
        let faults = outcome.unwrap_err();
        let [fault] = faults.as_slice() else { panic!("{}", rendered(&faults)) };
        assert_eq!(fault.code, code, "{fault}");
        assert!(fault.what.contains(what), "{fault}");
    }
    let of_variable = |url: &str| load_with(REST, &[("WALRELAY_SOURCE__URL", url)], &[]);
    for (reference, told) in [
        ("{ env = \"NOPE\" }", ("config.missing-secret", "NOPE is not set")),
        ("{ file = \"/nonexistent/url\" }", ("config.missing-secret", "no such file")),
        ("{ env = \"\" }", NOT_ONE),
        ("{ vault = \"x\" }", NOT_ONE),
    ] {
        let text = format!("[source]\nurl = {reference}\n{REST}");
        assert_told(load_with(&text, &[], &[]), told);
        assert_told(of_variable(reference), told);
        // WHEN a variable replaces it THEN it is no problem
        let url = [("WALRELAY_SOURCE__URL", "postgres://u@db/app")];
        assert!(load_with(&text, &url, &[]).is_ok(), "{reference}");
    }
    // GIVEN a reference whose quotes a shell has removed
    assert_told(of_variable("{ env = NOPE }"), NOT_ONE);
}
