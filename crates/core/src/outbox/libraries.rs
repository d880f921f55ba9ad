//! The tables of outbox libraries, as data: a file for each says how its columns are mapped and
//! routed, and by which columns the table is recognised. No code depends on a library.

/// A library whose table can be relayed.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    /// The value of `library` in `[[source.outbox]]`.
    pub name: &'static str,
    /// TOML: the keys of `[[source.outbox]]` under `outbox`, and the columns of its table under
    /// `recognised_by`.
    pub text: &'static str,
}

macro_rules! libraries {
    ($($name:literal),* $(,)?) => {
        &[$(Library { name: $name, text: include_str!(concat!("libraries/", $name, ".toml")) }),*]
    };
}

pub const LIBRARIES: &[Library] = libraries![
    "brighter",
    "dafda",
    "django-outbox-pattern",
    "emmett",
    "eventuate",
    "faststream-outbox",
    "marten",
    "message-db",
    "open-outbox",
    "pg-transactional-outbox",
    "pgx-outbox",
    "tomorrow-one",
    "watermill",
];

pub fn library_names() -> Vec<&'static str> {
    LIBRARIES.iter().map(|library| library.name).collect()
}

/// A table that cannot be relayed.
#[derive(Clone, Copy, Debug)]
pub struct UnfitTable {
    pub library: &'static str,
    pub recognised_by: &'static [&'static str],
    pub why: &'static str,
}

pub const UNFIT_TABLES: &[UnfitTable] = &[
    UnfitTable {
        library: "Wolverine",
        recognised_by: &["id", "owner_id", "destination", "deliver_by", "body", "message_type"],
        why: "the body of a row is an envelope in Wolverine's own binary form",
    },
    UnfitTable {
        library: "NServiceBus",
        recognised_by: &[
            "MessageId",
            "Dispatched",
            "DispatchedAt",
            "PersistenceVersion",
            "Operations",
        ],
        why: "a row holds several messages, which are addressed to endpoints of NServiceBus",
    },
    UnfitTable {
        library: "gruelbox transaction-outbox",
        recognised_by: &["id", "invocation", "nextattempttime", "blocked", "uniquerequestid"],
        why: "a row is a method call, not an event",
    },
    UnfitTable {
        library: "River",
        recognised_by: &["id", "state", "attempt", "max_attempts", "kind", "args", "scheduled_at"],
        why: "a row is a job for a worker, not an event",
    },
    UnfitTable {
        library: "Spring Modulith",
        recognised_by: &["id", "listener_id", "event_type", "serialized_event", "publication_date"],
        why: "there is a row for each listener, and no row names a destination; docs/existing-outbox.md describes a listener that inserts into an outbox",
    },
];
