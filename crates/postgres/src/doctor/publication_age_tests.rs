use super::*;

fn row(kind: RowKind, xmin: u32) -> CatalogRow {
    CatalogRow { kind, about: 1, name: "t".to_owned(), oid: 1, xmin }
}

#[test]
fn a_row_that_is_younger_than_the_publication_and_the_horizon_is_in_doubt() {
    use RowKind::{Location, Publication, Table};
    // (xmin of the publication, of the table, the horizon): in doubt?
    for (publication, table, horizon, doubted) in [
        (100, 100, 90, None),
        (100, 200, 150, Some(Table)),
        (100, 200, 201, None),
        (200, 100, 150, Some(Publication)),
        (200, 100, 201, None),
        // Transaction ids wrap around.
        (u32::MAX - 5, 10, u32::MAX, Some(Table)),
        (u32::MAX - 5, 10, 11, None),
    ] {
        let rows = [row(Publication, publication), row(Table, table), row(Location, 9_000)];
        let found = changed_since(horizon, &rows).map(|row| row.kind);
        assert_eq!(found, doubted, "{publication} {table} {horizon}");
    }
    assert_eq!(changed_since(0, &[]), None);
}
