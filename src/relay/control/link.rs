//! A channel for requests from the data thread to the control runtime, and one for the answers.

use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use tokio::sync::mpsc;

/// The end of the data thread.
#[derive(Debug)]
pub struct Link<Q, A> {
    requests: mpsc::Sender<Q>,
    answers: std_mpsc::Receiver<A>,
}

/// The end of the control runtime.
#[derive(Debug)]
pub(super) struct LinkEnd<Q, A> {
    pub(super) requests: mpsc::Receiver<Q>,
    pub(super) answers: std_mpsc::SyncSender<A>,
}

/// Both ends. A request waits in the channel until the one before it is answered.
pub(super) fn pair<Q, A>() -> (Link<Q, A>, LinkEnd<Q, A>) {
    let (request_sender, requests) = mpsc::channel(1);
    let (answer_sender, answers) = std_mpsc::sync_channel(4);
    (Link { requests: request_sender, answers }, LinkEnd { requests, answers: answer_sender })
}

impl<Q, A> Link<Q, A> {
    /// False when another request waits already, or the process is ending.
    pub fn request(&self, request: Q) -> bool {
        self.requests.try_send(request).is_ok()
    }

    /// The next answer, if there is one.
    #[must_use]
    pub fn answer(&self) -> Option<A> {
        self.answers.try_recv().ok()
    }

    /// Waits for the next answer. For the end of the relay only.
    pub(super) fn answer_within(&self, timeout: Duration) -> Option<A> {
        self.answers.recv_timeout(timeout).ok()
    }

    /// No answer is wanted any more: the other end gives up.
    pub fn close(&mut self) {
        *self = pair().0;
    }
}
