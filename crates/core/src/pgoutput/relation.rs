//! The description of a table.
//!
//! Postgres sends it before the table's first row of a session, and again before the first row
//! after an ALTER. Plans are kept by object id; columns are found by name, never by a remembered
//! position.

use super::cursor::{Cursor, DecodeError};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    pub oid: u32,
    pub namespace: String,
    pub name: String,
    /// In the order of the values in a row.
    pub columns: Vec<Column>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub type_oid: u32,
}

impl Relation {
    pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Relation, DecodeError> {
        let oid = cursor.u32("relation oid")?;
        // Postgres sends an empty text for `pg_catalog`.
        let mut namespace = cursor.cstr("relation namespace")?.into_owned();
        if namespace.is_empty() {
            "pg_catalog".clone_into(&mut namespace);
        }
        let name = cursor.cstr("relation name")?.into_owned();
        cursor.u8("relation replica identity")?;
        let count = cursor.count16("relation column count")?;
        let columns = (0..count).map(|_| {
            cursor.u8("column flags")?;
            let name = cursor.cstr("column name")?.into_owned();
            let type_oid = cursor.u32("column type")?;
            cursor.u32("column type modifier")?;
            Ok(Column { name, type_oid })
        });
        let columns = columns.collect::<Result<_, _>>()?;
        Ok(Relation { oid, namespace, name, columns })
    }

    pub fn qualified_name(&self) -> String {
        format!("{}.{}", self.namespace, self.name)
    }
}
