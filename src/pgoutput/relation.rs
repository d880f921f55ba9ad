//! A table's shape, owned.
//!
//! Postgres sends it before the table's first row of a session, and again before the first row
//! after an ALTER. It is kept by oid; columns are found by name, never by a remembered position.

use super::message::RelationRef;

/// A table's shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    /// Table oid.
    pub oid: u32,
    /// Schema; `pg_catalog` is spelled out.
    pub namespace: String,
    /// Table.
    pub name: String,
    /// Columns in the order of its rows.
    pub columns: Vec<Column>,
}

/// A column of a [`Relation`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Column.
    pub name: String,
    /// Type oid.
    pub type_oid: u32,
}

impl From<RelationRef<'_>> for Relation {
    fn from(from: RelationRef<'_>) -> Relation {
        let namespace = if from.namespace.is_empty() { "pg_catalog" } else { from.namespace };
        Relation {
            oid: from.oid,
            namespace: namespace.to_owned(),
            name: from.name.to_owned(),
            columns: from
                .columns()
                .map(|column| Column { name: column.name.to_owned(), type_oid: column.type_oid })
                .collect(),
        }
    }
}

impl Relation {
    /// `schema.table`.
    #[must_use]
    pub fn qualified_name(&self) -> String {
        format!("{}.{}", self.namespace, self.name)
    }
}
