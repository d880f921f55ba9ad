//! Quotes names and texts for SQL. Many statements (`ALTER …`, replication commands) take no
//! parameters for them.

/// An SQL identifier, always in double quotes: a quoted name cannot be a keyword.
pub fn quote_ident(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// An SQL string literal that means the same whatever `standard_conforming_strings` says.
pub fn quote_literal(text: &str) -> String {
    if text.contains('\\') {
        // The blank separates the E from a keyword before it.
        return format!(" E{}", quote_replication_literal(&text.replace('\\', "\\\\")));
    }
    quote_replication_literal(text)
}

/// A string of a replication command, where a backslash is no escape and `E''` is unknown.
pub fn quote_replication_literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

pub fn quote_table(schema: &str, table: &str) -> String {
    format!("{}.{}", quote_ident(schema), quote_ident(table))
}

#[cfg(test)]
#[path = "quote_tests.rs"]
mod tests;
