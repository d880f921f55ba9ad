//! Every label and every value it can take.

/// The values of a label.
pub trait LabelSet: Copy + PartialEq + 'static {
    const NAME: &'static str;
    /// In the order of `ALL`.
    const TEXTS: &'static [&'static str];
    const ALL: &'static [Self];
    /// Position in `ALL`.
    fn index(self) -> usize;
}

macro_rules! label {
    ($(#[$doc:meta])* $label:ident $name:literal { $($(#[$of:meta])* $value:ident = $text:expr),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $label {
            $($(#[$of])* $value,)*
        }

        impl LabelSet for $label {
            const NAME: &'static str = $name;
            const TEXTS: &'static [&'static str] = &[$($text),*];
            const ALL: &'static [Self] = &[$($label::$value),*];
            fn index(self) -> usize {
                self as usize
            }
        }

        impl $label {
            /// As in metrics, for scripts.
            pub const fn text(self) -> &'static str {
                <$label as LabelSet>::TEXTS[self as usize]
            }
        }
    };
}

label! {
    /// The outcome of an event: the broker or the dead-letter topic has confirmed it.
    Outcome "outcome" { Published = "published", DeadLettered = "dead_lettered" }
}

label! {
    /// How it is known that an earlier process has published an event.
    KnownFrom "source" { StateFile = "state_file", Topic = "topic" }
}

label! {
    /// Why a change is no event. A message is ignored for its prefix, or as non-transactional.
    Ignored "operation" {
        Update = "update",
        Delete = "delete",
        Truncate = "truncate",
        OtherTable = "other_table",
        Message = "message",
    }
}

label! {
    /// A stage of one pass of the data loop: taking bytes from the socket; decoding, routing,
    /// admitting and handing to the broker client; collecting confirmations and settling; reporting
    /// to Postgres.
    Stage "stage" {
        Read = "read",
        Publish = "publish",
        Confirm = "confirm",
        Feedback = "feedback",
    }
}

label! {
    /// Where in the relay a lag is measured: received from Postgres, handed to the broker client,
    /// confirmed by the broker.
    Point "point" { Received = "received", Sent = "sent", Confirmed = "confirmed" }
}

label! {
    /// The state of the relay, as [`crate::health`] judges it.
    HealthState "state" {
        Starting = "starting",
        Connecting = "connecting",
        Standby = "standby",
        Streaming = "streaming",
        Polling = "polling",
        Blocked = "blocked",
        Held = "held",
        Stalled = "stalled",
        Draining = "draining",
        Halted = "halted",
    }
}

label! {
    /// Why no event is taken in, although there may be some.
    IntakeHold "reason" {
        /// As many events are unsettled as may be.
        WindowFull = "window_full",
        /// The broker client takes no further event until others are confirmed.
        SinkFull = "sink_full",
        /// The dead-letter topic must be read first.
        DeadLettersUnread = "dead_letters_unread",
        /// The end of an event's topic must be read first.
        TopicUnread = "topic_unread",
        /// The catalog of Postgres must be read first.
        CatalogUnread = "catalog_unread",
        /// Postgres must show the position that this relay has left in the slot.
        TraceAwaited = "trace_awaited",
    }
}

impl IntakeHold {
    /// Whether it ends when events are confirmed.
    pub const fn awaits_confirms(self) -> bool {
        matches!(self, IntakeHold::WindowFull | IntakeHold::SinkFull)
    }
}

label! {
    /// `pg_replication_slots.wal_status`, or a word this version does not know.
    WalStatus "status" {
        Reserved = "reserved",
        Extended = "extended",
        Unreserved = "unreserved",
        Lost = "lost",
        Unknown = "unknown",
    }
}

impl WalStatus {
    pub fn from_postgres(word: &str) -> WalStatus {
        let known = WalStatus::TEXTS.iter().position(|text| *text == word);
        known.map_or(WalStatus::Unknown, |index| WalStatus::ALL[index])
    }
}

label! {
    /// The version of this build.
    Version "version" { This = env!("CARGO_PKG_VERSION") }
}
