//! The default judgement of a handler's error.

use std::error::Error;

use tokio_postgres::error::{DbError, SqlState};

use crate::Failure;

/// Judges an error by the first error of Postgres among its causes. SQLSTATE classes 08, 25, 40, 53, 55,
/// 57 and 58 and lost connections are transient. Classes 0A, 28, 3D, 3F, 42 and XX (a table or a right is
/// missing, and the like) hold the lane. Other SQLSTATEs are permanent. An error without one is
/// transient.
pub fn classify(error: &(dyn Error + 'static)) -> Failure {
    sqlstate(error).map_or(Failure::Transient, |code| of_sqlstate(code.code()))
}

/// Whether the transaction has lost against another one, and would succeed if it were repeated.
pub(crate) fn is_conflict(error: &(dyn Error + 'static)) -> bool {
    let codes = [&SqlState::T_R_SERIALIZATION_FAILURE, &SqlState::T_R_DEADLOCK_DETECTED];
    sqlstate(error).is_some_and(|code| codes.contains(&code))
}

/// Finds the first error of Postgres. A transparent wrapper shows its cause only.
fn sqlstate<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e SqlState> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(postgres) = error.downcast_ref::<tokio_postgres::Error>() {
            return postgres.code();
        }
        if let Some(reported) = error.downcast_ref::<DbError>() {
            return Some(reported.code());
        }
        next = error.source();
    }
    None
}

/// Judges by the class of a SQLSTATE.
fn of_sqlstate(code: &str) -> Failure {
    match code.get(..2) {
        // It tells of the server or of other transactions, not of the message: connection, state of
        // the transaction (it has failed before, is read-only after a failover, or took too long),
        // rollback, resources, object state, operator intervention, system.
        Some("08" | "25" | "40" | "53" | "55" | "57" | "58") => Failure::Transient,
        // Somebody must mend it, and it concerns all messages alike: what the server does not
        // support, the login, database and schema, statements, tables and rights, internal errors.
        Some("0A" | "28" | "3D" | "3F" | "42" | "XX") => Failure::Hold,
        _ => Failure::Permanent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_message_can_help_is_permanent() {
        for code in [
            "08006", "25006", "25P02", "25P03", "25P04", "40001", "40P01", "53300", "55P03",
            "57014", "57P01", "58030",
        ] {
            assert_eq!(of_sqlstate(code), Failure::Transient, "{code}");
        }
        for code in ["0A000", "28P01", "3D000", "3F000", "42P01", "42501", "42703", "XX001"] {
            assert_eq!(of_sqlstate(code), Failure::Hold, "{code}");
        }
        for code in ["22P02", "23505", "23503", "P0001"] {
            assert_eq!(of_sqlstate(code), Failure::Permanent, "{code}");
        }
    }

    #[test]
    fn an_error_that_is_not_of_postgres_is_transient() {
        assert_eq!(classify(&std::io::Error::other("reset")), Failure::Transient);
        assert_eq!(classify(&std::fmt::Error), Failure::Transient);
    }
}
