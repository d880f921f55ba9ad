//! Old rows are removed.

use std::time::Duration;

use super::fixture::Fixture;
use crate::support::{Calls, until};

#[test]
fn old_rows_are_removed_in_batches() {
    // GIVEN old rows of this consumer and of another one, and a new row; each statement that
    // deletes notes how much
    let fixture = Fixture::new("retention");
    fixture.database.execute(
        "INSERT INTO processed_messages
            SELECT 'retention', 'old-' || number, now() - interval '2 hours'
            FROM generate_series(1, 1050) AS number;
        INSERT INTO processed_messages VALUES
            ('retention', 'new', now()), ('other', 'old', now() - interval '2 hours');
        CREATE TABLE batches (count bigint);
        CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN INSERT INTO batches SELECT count(*) FROM gone; RETURN NULL; END $$;
        CREATE TRIGGER note AFTER DELETE ON processed_messages
            REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION note();",
    );
    // WHEN an inbox runs that remembers an hour
    let settings = fixture.settings().retention(Duration::from_secs(3600));
    let settings = settings.retention_batches(Duration::from_millis(50), 100);
    let inbox = fixture.start_with(settings, &Calls::new());
    let left = "SELECT message_id FROM processed_messages ORDER BY 1";
    // THEN the old rows go, a hundred at a time
    until("old rows are gone", || (fixture.database.texts(left).len() == 2).then_some(()));
    assert_eq!(fixture.database.texts(left), ["new", "old"]);
    inbox.stop();
    assert_eq!(fixture.database.number("SELECT max(count) FROM batches"), 100);
    assert_eq!(fixture.database.number("SELECT sum(count)::bigint FROM batches"), 1050);
}
