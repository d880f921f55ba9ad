use super::*;

fn printed(format: OutputFormat, items: &[&str]) -> String {
    let mut printer = ListPrinter::new(format, "NAME".to_owned());
    let mut text = String::new();
    for item in items {
        text += &printer.item(|| json_line(item), || (*item).to_owned()).unwrap();
    }
    assert_eq!(printer.count, items.len());
    text + printer.end()
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
