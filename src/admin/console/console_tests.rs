use serde_json::json;

use super::figure::{Figure, FigureKind as Kind};
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
    let page = page::render(&json!({ "state": "streaming" }), true);
    let names: Vec<&str> = FILES.iter().map(|(name, ..)| *name).collect();
    let mut loaded = between(&page, "\"/console/", '"');
    assert!(loaded.contains(&"app.js") && loaded.contains(&"console.css"), "{loaded:?}");
    for (_, _, text) in scripts() {
        loaded.extend(between(text, "from \"./", '"'));
    }
    assert!(loaded.iter().all(|name| names.contains(name)), "{loaded:?}");
    assert!(names.iter().all(|name| loaded.contains(name)), "{names:?}");
}

#[test]
fn the_page_has_nothing_inline_and_nothing_from_elsewhere() {
    for has_token in [true, false] {
        let page = page::render(&json!({ "state": "sink_down" }), has_token);
        for inline in [" style=", "<style", " onclick=", "<script>", "javascript:", "http:", "//"] {
            assert!(!page.contains(inline), "{inline}");
        }
        let addresses = [between(&page, "href=\"", '"'), between(&page, "src=\"", '"')].concat();
        assert!(addresses.iter().all(|it| it.starts_with(['/', '#'])), "{addresses:?}");
    }
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
    let page = page::render(&json!({ "state": "streaming", "slot": { "name": "s" } }), true);
    let format = scripts().find(|(name, ..)| *name == "format.js").unwrap().2;
    for kind in between(&page, "data-kind=\"", '"') {
        let known = [format!("\n  {kind},"), format!("\n  {kind}:"), format!("\n  \"{kind}\":")];
        let either = kind.contains('/');
        assert!(either || known.iter().any(|it| format.contains(it)), "{kind}");
    }
}

#[test]
fn figures_are_written_for_people() {
    let text = |kind, value| {
        let figure = Figure::new("/it", kind).markup(&json!({ "it": value })).into_string();
        between(&figure, ">", '<').swap_remove(0).to_owned()
    };
    assert_eq!(text(Kind::Count, json!(1_234_567)), "1\u{202f}234\u{202f}567");
    assert_eq!(text(Kind::Count, json!(-1)), "0");
    assert_eq!(text(Kind::Bytes, json!(1536)), "1.5 KiB");
    assert_eq!(text(Kind::Seconds, json!(0.26)), "0.3 s");
    assert_eq!(text(Kind::Duration, json!(3_700.5)), "1 h 1 min");
    assert_eq!(text(Kind::Milliseconds, json!(1.256)), "1.26 ms");
    assert_eq!(text(Kind::Milliseconds, json!(61_000)), "61.0 s");
    assert_eq!(text(Kind::PerSecond, json!(12_345.6)), "12\u{202f}346/s");
    assert_eq!(text(Kind::PerSecond, json!(0)), "0/s");
    assert_eq!(text(Kind::Text, json!("<16/3>")), "&lt;16/3&gt;");
    assert_eq!(text(Kind::Either("open", "closed"), json!(true)), "open");
    assert_eq!(text(Kind::Bytes, json!(null)), "not known");
    let absent = Figure::new("/else", Kind::Bytes).or("no limit").markup(&json!({}));
    assert!(absent.into_string().contains("class=\"absent\">no limit<"));
}

#[test]
fn the_page_says_how_to_open_what_is_closed() {
    let status = json!({ "state": "streaming", "ready": true });
    let closed = page::render(&status, false);
    assert!(closed.contains("WALRELAY_ADMIN__TOKEN") && !closed.contains("id=\"login\""));
    let open = page::render(&status, true);
    assert!(open.contains("id=\"login\"") && !open.contains("WALRELAY_ADMIN__TOKEN"));
}

#[test]
fn the_page_tells_state_and_all_reasons() {
    let status = json!({
        "state": "sink_down", "ready": false, "since": "2026-11-25T01:02:03Z",
        "reasons": [{ "code": "sink_down", "text": "broker unreachable for 4 s" }],
        "note": "a <note>",
        "slot": { "name": "s", "pinned_by": { "text": "SELECT 1" } },
    });
    let page = page::render(&status, true);
    for part in [
        "class=\"state bad\"",
        ">sink down<",
        "since 2026-11-25 01:02:03 UTC",
        "<li>broker unreachable for 4 s</li>",
        "<li>SELECT 1</li>",
        "<li>a &lt;note&gt;</li>",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    let early = json!({ "state": "blocked", "ready": true, "reasons": [],
        "reason": { "code": "sink_down", "text": "broker unreachable for 1 s" } });
    assert!(page::render(&early, true).contains("<li>broker unreachable for 1 s</li>"));
}
