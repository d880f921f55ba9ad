//! The default judgement of a handler's error.

use std::error::Error;

use crate::Failure;

/// Classes of SQLSTATE that tell of the server or of other transactions, not of the message:
/// connection, rollback, resources, object state, operator intervention, system.
const TRANSIENT_CLASSES: [&str; 6] = ["08", "40", "53", "55", "57", "58"];

/// Judges an error by the first error of Postgres among its causes: SQLSTATE classes 08, 40, 53,
/// 55, 57 and 58 and lost connections are transient, other SQLSTATEs are permanent. An error
/// without one is transient.
pub fn classify(error: &(dyn Error + 'static)) -> Failure {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(postgres) = error.downcast_ref::<tokio_postgres::Error>() {
            return postgres.code().map_or(Failure::Transient, |code| of_sqlstate(code.code()));
        }
        next = error.source();
    }
    Failure::Transient
}

fn of_sqlstate(code: &str) -> Failure {
    if TRANSIENT_CLASSES.iter().any(|class| code.starts_with(class)) {
        Failure::Transient
    } else {
        Failure::Permanent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_message_cannot_help_is_transient() {
        for code in ["08006", "40001", "40P01", "53300", "55P03", "57014", "57P01", "58030"] {
            assert_eq!(of_sqlstate(code), Failure::Transient, "{code}");
        }
        for code in ["22P02", "23505", "23503", "42P01", "42501", "P0001"] {
            assert_eq!(of_sqlstate(code), Failure::Permanent, "{code}");
        }
    }

    #[test]
    fn an_error_that_is_not_of_postgres_is_transient() {
        assert_eq!(classify(&std::io::Error::other("reset")), Failure::Transient);
        assert_eq!(classify(&std::fmt::Error), Failure::Transient);
    }
}
