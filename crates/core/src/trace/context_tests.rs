use super::*;

const TEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn parse(text: &str) -> Option<TraceContext> {
    TraceContext::parse(text.as_bytes())
}

#[test]
fn a_context_is_read_and_written_back() {
    let context = parse(TEXT).unwrap();
    assert_eq!(context.trace_id[..2], [0x4b, 0xf9]);
    assert_eq!(context.span_id, [0, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]);
    assert!(context.is_sampled());
    assert_eq!(std::str::from_utf8(&context.header()), Ok(TEXT));
    // The random flag of level 2 is not the sampled flag.
    assert!(!parse(&TEXT.replace("-01", "-02")).unwrap().is_sampled());
    assert!(parse(&TEXT.replace("-01", "-03")).unwrap().is_sampled());
}

#[test]
fn a_later_version_may_have_more_fields() {
    let later = TEXT.replacen("00", "cc", 1);
    assert_eq!(parse(&later), parse(TEXT));
    assert_eq!(parse(&format!("{later}-what-follows")), parse(TEXT));
    assert_eq!(parse(&format!("{later}.")), None);
}

#[test]
fn what_is_no_context_is_none() {
    let cases = [
        String::new(),
        "tp".to_owned(),
        TEXT[..54].to_owned(),
        format!("{TEXT}-00"),
        format!("{TEXT} "),
        TEXT.replacen("00", "ff", 1),
        TEXT.replacen("00", "0x", 1),
        TEXT.to_uppercase(),
        TEXT.replace("4bf9", "4Bf9"),
        TEXT.replace("4bf9", "4bg9"),
        TEXT.replace("-01", "-0g"),
        TEXT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
        TEXT.replace("00f067aa0ba902b7", &"0".repeat(16)),
        // The same length with a dash at another place.
        "00-4bf92f3577b34da6a3ce929d0e0e47-3600f067aa0ba902b7-01".to_owned(),
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7001".to_owned(),
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902-7-01".to_owned(),
        "é".repeat(30),
    ];
    for text in cases {
        assert_eq!(parse(&text), None, "{text:?}");
    }
}
