//! How often the interesting things have happened between relays and RabbitMQ.

macro_rules! counts {
    ($($(#[doc = $what:literal])? $name:ident: $state:literal,)*) => {
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct RabbitCounts {
            $($(#[doc = $what])? pub $name: u64,)*
        }

        impl RabbitCounts {
            /// Each count with the name of its state.
            #[must_use]
            pub fn states(&self) -> Vec<(&'static str, u64)> {
                vec![$((concat!("RabbitMQ: ", $state), self.$name),)*]
            }
        }
    };
}

counts! {
    lost: "connections lost",
    half_open: "half-open connections",
    logins_refused: "logins refused",
    further_channels: "further channels opened",
    channels_refused: "further channels refused",
    closed: "channels closed",
    no_exchange: "channels closed over no exchange",
    forbidden: "channels closed over a permission",
    over_queue: "channels closed over a stream that has failed",
    returned: "returned",
    /// The connection was lost after the return and before the confirm.
    returned_only: "returned, confirm lost",
    nacked: "nacked",
    /// Another queue has stored it.
    nacked_and_stored: "nacked, and stored",
    full: "nacked by a full queue",
    held: "nacked behind a silent queue",
    recovered: "stored by a queue that was silent",
    several: "several answered at once",
    late: "answers behind a close",
    blocked: "blocked",
    unblocked: "unblocked",
    /// The relay takes the connection for lost, and sends again what was under way on it.
    socket_full: "messages that a full socket has left",
    left: "stored from a lost connection",
    explained: "stored, confirm lost",
}
