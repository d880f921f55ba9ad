//! Names and texts inside SQL, and the name that a mistyped one was most likely meant to be.
//!
//! Slot functions and `ALTER … ` take no parameters for names, so names are quoted here and nowhere
//! else.

/// `name` as an SQL identifier, always in double quotes: what is quoted cannot be a keyword.
pub(crate) fn quote_ident(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `text` as an SQL string literal, in a form that means the same whatever
/// `standard_conforming_strings` says.
pub(crate) fn quote_literal(text: &str) -> String {
    if text.contains('\\') {
        // The leading blank keeps the E apart from a keyword before it.
        return format!(" E{}", quote_replication_literal(&text.replace('\\', "\\\\")));
    }
    quote_replication_literal(text)
}

/// `text` as a string of a replication command, where a backslash is no escape and `E''` is unknown.
pub(crate) fn quote_replication_literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// `schema.table`, both quoted.
pub(crate) fn quote_table(schema: &str, table: &str) -> String {
    format!("{}.{}", quote_ident(schema), quote_ident(table))
}

#[cfg(test)]
#[path = "quote_tests.rs"]
mod tests;
