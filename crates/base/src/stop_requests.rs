//! Tells a second request to stop from the first one that comes twice: GNU `timeout` sends its signal to the
//! process, and then to the group of the process.

use std::time::{Duration, Instant};

/// How long after the first signal another one belongs to the same request.
const SAME_REQUEST: Duration = Duration::from_millis(500);

/// The meaning of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopRequest {
    First,
    /// A signal that belongs to the first request.
    Repeated,
    /// Another request: the process is to stop at once.
    Second,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct StopRequests {
    first_at: Option<Instant>,
}

impl StopRequests {
    /// The meaning of a signal that has come at `now`.
    pub fn receive(&mut self, now: Instant) -> StopRequest {
        match self.first_at {
            None => {
                self.first_at = Some(now);
                StopRequest::First
            }
            Some(at) if now.duration_since(at) < SAME_REQUEST => StopRequest::Repeated,
            Some(_) => StopRequest::Second,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_follows_at_once_is_no_second_request() {
        let (mut requests, began) = (StopRequests::default(), Instant::now());
        let mut receive = |ms| requests.receive(began + Duration::from_millis(ms));
        assert_eq!(receive(0), StopRequest::First);
        assert_eq!([receive(0), receive(1), receive(499)], [StopRequest::Repeated; 3]);
        assert_eq!([receive(500), receive(9_000)], [StopRequest::Second; 2]);
    }
}
