use super::super::observer::Observer;
use super::super::tests::view;
use super::*;

/// The texts between two marks.
fn between<'t>(text: &'t str, start: &str, end: char) -> Vec<&'t str> {
    text.split(start).skip(1).filter_map(|rest| rest.split(end).next()).collect()
}

fn scripts() -> impl Iterator<Item = &'static (&'static str, &'static str, &'static str)> {
    FILES.iter().filter(|(_, content_type, _)| *content_type == SCRIPT)
}

#[test]
fn every_file_that_is_loaded_is_there() {
    let names: Vec<&str> = FILES.iter().map(|(name, ..)| *name).collect();
    let mut loaded = between(PAGE, "\"/console/", '"');
    assert!(loaded.contains(&"app.js") && loaded.contains(&"console.css"), "{loaded:?}");
    for (_, _, text) in scripts() {
        loaded.extend(between(text, "from \"./", '"'));
    }
    assert!(loaded.iter().all(|name| names.contains(name)), "{loaded:?}");
    assert!(names.iter().all(|name| loaded.contains(name)), "{names:?}");
}

#[test]
fn the_page_has_nothing_inline_and_nothing_from_elsewhere() {
    for inline in [" style=", "<style", " onclick=", "<script>", "javascript:", "http:", "//"] {
        assert!(!PAGE.contains(inline), "{inline}");
    }
    let addresses = [between(PAGE, "href=\"", '"'), between(PAGE, "src=\"", '"')].concat();
    assert!(addresses.iter().all(|it| it.starts_with(['/', '#'])), "{addresses:?}");
}

#[test]
fn scripts_show_what_they_were_given_as_text_only() {
    let namespace = "http://www.w3.org/2000/svg";
    for (name, _, text) in scripts() {
        for word in
            ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "cookie"]
        {
            assert!(!text.contains(word), "{name}: {word}");
        }
        assert!(!text.contains("localStorage"), "{name} keeps what a closed tab must forget");
        assert!(!text.replace(namespace, "").contains("://"), "{name} names another site");
    }
}

#[test]
fn the_script_writes_each_kind_of_figure() {
    let format = scripts().find(|(name, ..)| *name == "format.js").unwrap().2;
    for kind in between(PAGE, "data-kind=\"", '"') {
        let known = [format!("\n  {kind},"), format!("\n  {kind}:"), format!("\n  \"{kind}\":")];
        let either = kind.contains('/');
        assert!(either || known.iter().any(|it| format.contains(it)), "{kind}");
    }
}

#[test]
fn every_figure_of_the_page_is_in_status_and_unknown_before_it() {
    let status = |slot| Observer::new(view(slot).1, true).status();
    let statuses = [status(Some("s")), status(None)];
    let paths = between(PAGE, "data-path=\"/", '"');
    assert!(paths.len() > 30 && paths.len() == between(PAGE, ">–</span", '>').len(), "{paths:?}");
    for path in paths {
        // A group of values is `null` where it does not apply, or nothing is known of it.
        for status in &statuses {
            let found = path.split('/').try_fold(status, |value, name| match value {
                serde_json::Value::Null => Some(value),
                _ => value.get(name),
            });
            assert!(found.is_some(), "{path}: {status:#}");
        }
    }
}

#[test]
fn the_page_tells_of_its_conditions_only_what_the_script_knows() {
    let script = scripts().find(|(name, ..)| *name == "app.js").unwrap().2;
    for condition in between(PAGE, "data-when=\"", '"') {
        let is_mode = ["cdc", "polling"].contains(&condition);
        assert!(is_mode || script.contains(&format!("\"{condition}\"")), "{condition}");
    }
}

#[test]
fn without_javascript_the_page_says_where_the_values_are() {
    let told = PAGE.split_once("<noscript>").unwrap().1.split_once("</noscript>").unwrap().0;
    for part in ["needs JavaScript", "href=\"/status\"", "href=\"/metrics\""] {
        assert!(told.contains(part), "{part}");
    }
}
