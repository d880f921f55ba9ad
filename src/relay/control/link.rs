//! Tasks of the control runtime, and the channels on which the data thread sends them requests and
//! looks for their answers.

use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use walrelay_core::relay::ports::Link;

/// The data thread's end. Dropping it ends the task.
#[derive(Debug)]
pub(super) struct TaskLink<Q, A> {
    requests: mpsc::Sender<Q>,
    answers: std_mpsc::Receiver<A>,
    task: AbortHandle,
}

/// The task's end.
#[derive(Debug)]
pub(super) struct LinkEnd<Q, A> {
    pub(super) requests: mpsc::Receiver<Q>,
    pub(super) answers: std_mpsc::SyncSender<A>,
}

impl<Q, A> TaskLink<Q, A> {
    /// Starts a task. A request waits in the channel until the one before it is answered.
    pub(super) fn spawn<T>(
        runtime: &Handle,
        task: impl FnOnce(LinkEnd<Q, A>) -> T,
    ) -> TaskLink<Q, A>
    where
        T: Future<Output = ()> + Send + 'static,
    {
        let (request_sender, requests) = mpsc::channel(1);
        let (answer_sender, answers) = std_mpsc::sync_channel(4);
        let task = runtime.spawn(task(LinkEnd { requests, answers: answer_sender })).abort_handle();
        TaskLink { requests: request_sender, answers, task }
    }

    /// Waits for the next answer. For the end of the relay only.
    pub(super) fn answer_within(&self, timeout: Duration) -> Option<A> {
        self.answers.recv_timeout(timeout).ok()
    }
}

impl<Q: Send, A: Send> Link<Q, A> for TaskLink<Q, A> {
    /// False when another request is waiting already, or the process is ending.
    fn request(&self, request: Q) -> bool {
        self.requests.try_send(request).is_ok()
    }

    /// The next answer, if there is one.
    ///
    /// # Panics
    /// If the task has panicked: without its answers the loop would wait for ever.
    fn answer(&self) -> Option<A> {
        match self.answers.try_recv() {
            Err(std_mpsc::TryRecvError::Disconnected) => {
                panic!("a task of the control runtime has ended")
            }
            answer => answer.ok(),
        }
    }
}

impl<Q, A> Drop for TaskLink<Q, A> {
    fn drop(&mut self) {
        self.task.abort();
    }
}
