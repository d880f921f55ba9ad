//! The printed filters are those of PostgreSQL 15; the test with a server is in the program.

use super::*;

#[test]
fn a_filter_is_recognised_as_postgres_prints_it() {
    for (declared, printed) in [
        ("processed IS NULL", "(processed IS NULL)"),
        ("\"InboxMessageId\" is not null", "(\"InboxMessageId\" IS NOT NULL)"),
        ("broker = 'kafka'", "(broker = 'kafka'::text)"),
        ("kind = 'E'", "((kind)::text = 'E'::text)"),
        ("status <> -1", "(status <> '-1'::integer)"),
        ("status != 2", "(status <> 2)"),
        ("NOT is_archived", "(NOT is_archived)"),
        ("a = 1 AND b = 2 AND c", "((a = 1) AND (b = 2) AND c)"),
        ("a = 1 OR b = 2 AND c", "((a = 1) OR ((b = 2) AND c))"),
        ("(a OR b) AND c", "((a OR b) AND c)"),
        ("type IN ('a', 'b')", "(type = ANY (ARRAY['a'::text, 'b'::text]))"),
        (
            "kind IN ('a', 'b')",
            "((kind)::text = ANY ((ARRAY['a'::character varying, 'b'::character varying])::text[]))",
        ),
        ("type NOT IN ('a','b')", "(type <> ALL (ARRAY['a'::text, 'b'::text]))"),
        ("type IN ('a')", "(type = 'a'::text)"),
        ("stream LIKE 'order-%'", "(stream ~~ 'order-%'::text)"),
        ("meta ->> 'tenant' = 'x'", "((meta ->> 'tenant'::text) = 'x'::text)"),
        ("at < '2026-01-01'", "(at < '2026-01-01'::timestamp with time zone)"),
        ("a + b > 1", "a + b > 1"),
        ("it = 'it''s'", "(it = 'it''s'::text)"),
        ("true", "true"),
    ] {
        assert!(is_same(declared, printed, &["kind"]), "{declared} and {printed}");
    }
}

#[test]
fn another_filter_is_another_one() {
    for (declared, printed) in [
        ("processed IS NULL", "(processed IS NOT NULL)"),
        ("a = 1", "(a = 2)"),
        ("a = 1", "(b = 1)"),
        ("\"A\" = 1", "(a = 1)"),
        ("a = 'X'", "(a = 'x'::text)"),
        ("(a OR b) AND c", "(a OR (b AND c))"),
        ("a = 1 AND b = 2", "((a = 1) OR (b = 2))"),
        ("a < '10'", "((a)::text < '10'::text)"),
        ("a IN ('a', 'b')", "(a = ANY (ARRAY['a'::text, 'c'::text]))"),
        ("a IN ('a', 'b')", "(a <> ALL (ARRAY['a'::text, 'b'::text]))"),
        ("a * b + c = 1", "(((a * b) + c) = 1)"),
        ("a BETWEEN 1 AND 2", "((a >= 1) AND (a <= 3))"),
        ("true", "(a IS NULL)"),
        ("a = 1 --", "(a = 1)"),
        // The text of a value of another type is another one.
        ("active = 't'", "((active)::text = 't'::text)"),
        ("c::text LIKE 'A'", "(c ~~ 'A'::text)"),
        ("ip = '10.0.0.1'", "((ip)::text = '10.0.0.1'::text)"),
    ] {
        assert!(!is_same(declared, printed, &["kind"]), "{declared} and {printed}");
    }
}
