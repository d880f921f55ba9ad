use super::*;

fn printed(format: OutputFormat, items: &[&str]) -> String {
    let mut printer = ListPrinter::new(Vec::new(), format, "NAME".to_owned());
    for item in items {
        assert!(printer.item(|| json_line(item), || (*item).to_owned()).unwrap());
    }
    assert_eq!(printer.count, items.len());
    assert!(printer.end().unwrap());
    String::from_utf8(printer.out).unwrap()
}

#[test]
fn a_list_ends_when_nobody_reads_it_any_more() {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut printer = ListPrinter::new(writer, OutputFormat::Text, "NAME".to_owned());
    let mut item = || printer.item(|| json_line("a"), || "a".to_owned()).unwrap();
    assert!(item());
    drop(reader);
    assert!(!item());
}

#[test]
fn a_list_has_three_forms() {
    assert_eq!(printed(OutputFormat::Text, &["a", "b"]), "NAME\na\nb\n");
    assert_eq!(printed(OutputFormat::Jsonl, &["a", "b"]), "\"a\"\n\"b\"\n");
    let array: Vec<String> =
        serde_json::from_str(&printed(OutputFormat::Json, &["a", "b"])).unwrap();
    assert_eq!(array, ["a", "b"]);
}

#[test]
fn a_list_of_nothing_is_an_empty_array_and_no_line() {
    assert_eq!(printed(OutputFormat::Text, &[]), "");
    assert_eq!(printed(OutputFormat::Jsonl, &[]), "");
    assert_eq!(printed(OutputFormat::Json, &[]), "[]\n");
}
