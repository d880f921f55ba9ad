//! Every label and every value it can take.

use super::instrument::LabelSet;

macro_rules! label {
    ($(#[$doc:meta])* $label:ident $name:literal {
        $($(#[$value_doc:meta])* $value:ident = $text:literal,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $label {
            $($(#[$value_doc])* $value,)*
        }

        impl LabelSet for $label {
            const NAME: &'static str = $name;
            const TEXTS: &'static [&'static str] = &[$($text),*];
            const ALL: &'static [Self] = &[$($label::$value),*];
            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

label! {
    /// What became of an event.
    Outcome "outcome" {
        /// Confirmed by the broker.
        Published = "published",
        /// Confirmed in the dead-letter topic.
        DeadLettered = "dead_lettered",
    }
}

label! {
    /// Why a change is no event.
    Ignored "operation" {
        /// UPDATE of an outbox row.
        Update = "update",
        /// DELETE of an outbox row.
        Delete = "delete",
        /// TRUNCATE of an outbox table.
        Truncate = "truncate",
        /// A table that is no outbox.
        OtherTable = "other_table",
        /// A logical message with another prefix, or a non-transactional one.
        Message = "message",
    }
}

label! {
    /// A stage of one pass of the data loop.
    Stage "stage" {
        /// Taking bytes from the socket.
        Read = "read",
        /// Decoding, routing, admitting and handing to the broker client.
        Publish = "publish",
        /// Collecting confirmations and settling.
        Confirm = "confirm",
        /// Telling Postgres what it may forget.
        Feedback = "feedback",
    }
}

label! {
    /// Where in the relay a lag is measured.
    Point "point" {
        /// Received from Postgres.
        Received = "received",
        /// Handed to the broker client.
        Sent = "sent",
        /// Confirmed by the broker.
        Confirmed = "confirmed",
    }
}

label! {
    /// `pg_replication_slots.wal_status`.
    WalStatus "status" {
        /// Within `max_wal_size`.
        Reserved = "reserved",
        /// Beyond it, kept by the slot or by `wal_keep_size`.
        Extended = "extended",
        /// About to be removed at the next checkpoint.
        Unreserved = "unreserved",
        /// Removed: the slot is of no use any more.
        Lost = "lost",
        /// A word this version does not know.
        Unknown = "unknown",
    }
}

impl WalStatus {
    /// The status from Postgres' word for it.
    #[must_use]
    pub fn from_postgres(word: &str) -> WalStatus {
        let known = WalStatus::TEXTS.iter().position(|text| *text == word);
        known.map_or(WalStatus::Unknown, |index| WalStatus::ALL[index])
    }
}

/// The version of this build, as a label with one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version;

impl LabelSet for Version {
    const NAME: &'static str = "version";
    const TEXTS: &'static [&'static str] = &[env!("CARGO_PKG_VERSION")];
    const ALL: &'static [Self] = &[Version];
    fn index(self) -> usize {
        0
    }
}
