//! Rust text without comments and literals, line for line.

/// Blanks comments, strings and character literals; keeps line breaks, so that line numbers hold.
pub(crate) fn code_only(text: &str) -> String {
    let bytes: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(&bytes, at);
        if end > at {
            out.extend(bytes[at..end].iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
            at = end;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    out
}

/// The text of each string literal, with the line on which it begins. Escapes that matter to no
/// reader of words are blanks.
pub(crate) fn strings(text: &str) -> Vec<(usize, String)> {
    let chars: Vec<char> = text.chars().collect();
    let (mut found, mut at, mut line) = (Vec::new(), 0, 1);
    while at < chars.len() {
        let end = literal_end(&chars, at).max(at + 1);
        let whole = &chars[at..end];
        if end > at + 1 && matches!(whole[0], '"' | 'r') {
            let inner: String = whole.iter().collect();
            let inner = inner.trim_start_matches('r').trim_matches('#');
            let plain = inner.replace("\\\"", "\"").replace("\\n", " ").replace("\\\n", "\n");
            found.push((line, plain[1..plain.len() - 1].to_owned()));
        }
        line += whole.iter().filter(|c| **c == '\n').count();
        at = end;
    }
    found
}

/// Where the comment or literal that begins at `at` ends; `at` itself when none does.
fn literal_end(text: &[char], at: usize) -> usize {
    match (text[at], text.get(at + 1)) {
        ('/', Some('/')) => find(text, at, &['\n']),
        ('/', Some('*')) => block_comment_end(text, at),
        ('"', _) => quoted_end(text, at + 1),
        ('r', Some('"' | '#')) if !follows_word(text, at) => raw_end(text, at),
        // A lifetime is a quote without a closing one.
        ('\'', Some('\\')) => find(text, at + 3, &['\'']) + 1,
        ('\'', Some(_)) if text.get(at + 2) == Some(&'\'') => at + 3,
        _ => at,
    }
}

fn follows_word(text: &[char], at: usize) -> bool {
    // `br"..."` is a raw string as well.
    let before = |back: usize| at.checked_sub(back).map(|index| text[index]);
    let word = |c: char| c.is_alphanumeric() || c == '_';
    match before(1) {
        Some('b') => before(2).is_some_and(word),
        Some(c) => word(c),
        None => false,
    }
}

fn find(text: &[char], from: usize, pattern: &[char]) -> usize {
    (from..text.len()).find(|&at| text[at..].starts_with(pattern)).unwrap_or(text.len())
}

fn block_comment_end(text: &[char], at: usize) -> usize {
    (find(text, at + 2, &['*', '/']) + 2).min(text.len())
}

fn quoted_end(text: &[char], mut at: usize) -> usize {
    while at < text.len() {
        match text[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

fn raw_end(text: &[char], at: usize) -> usize {
    let hashes = text[at + 1..].iter().take_while(|c| **c == '#').count();
    if text.get(at + 1 + hashes) != Some(&'"') {
        return at;
    }
    let mut close = vec!['"'];
    close.resize(1 + hashes, '#');
    (find(text, at + 2 + hashes, &close) + close.len()).min(text.len())
}

/// The text before an inline `#[cfg(test)] mod … {`, which by convention ends a file.
pub(crate) fn without_tests(code: &str) -> &str {
    let mut from = 0;
    while let Some(found) = code[from..].find("#[cfg(test)]") {
        let at = from + found;
        let mut rest = code[at + "#[cfg(test)]".len()..].lines().map(str::trim);
        let item = rest.find(|line| !line.is_empty() && !line.starts_with("#["));
        if item.is_some_and(|item| item.starts_with("mod ") && item.ends_with('{')) {
            return &code[..at];
        }
        from = at + 1;
    }
    code
}

#[test]
fn comments_and_literals_are_blanked_and_lines_kept() {
    let text = "let a = \"un\\\"safe\"; // unsafe\nlet b = r#\"unsafe \" \"#; /* unsafe\n */ let c = '\\'';";
    let code = code_only(text);
    assert!(!code.contains("unsafe"), "{code}");
    assert_eq!(code.lines().count(), 3);
    assert!(code.contains("let c = "));
    assert_eq!(code_only("fn f<'a>(x: &'a str) {}"), "fn f<'a>(x: &'a str) {}");
    assert_eq!(code_only("for r in r#type {}"), "for r in r#type {}");
}

#[test]
fn strings_are_found_with_their_lines() {
    let text = "let a = \"x \\\"y\\\"\"; // \"no\"\nlet b = \"one\\\n two\";\nlet c = r#\"raw\"#;";
    let found = strings(text);
    let expected = [(1, "x \"y\""), (2, "one\n two"), (4, "raw")];
    assert_eq!(found, expected.map(|(line, text)| (line, text.to_owned())));
}

#[test]
fn inline_tests_are_cut_off_and_declared_ones_are_not() {
    assert_eq!(without_tests("use a;\n#[cfg(test)]\nmod tests {\n use b;\n}"), "use a;\n");
    let declared = "use a;\n#[cfg(test)]\n#[path = \"\"]\nmod tests;\nuse b;";
    assert_eq!(without_tests(declared), declared);
}
