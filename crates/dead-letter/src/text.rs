//! Texts that are cut between two characters.

/// The beginning of a text, of at most so many bytes.
pub fn truncated(text: &str, bytes_max: usize) -> &str {
    let end = (0..=bytes_max.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let long = "ä".repeat(10);
        assert_eq!((truncated(&long, 7).len(), truncated(&long[2..], 8).len()), (6, 8));
        assert_eq!((truncated("x", 8), truncated("ä", 1)), ("x", ""));
    }
}
