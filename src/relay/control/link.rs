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
    task: Option<AbortHandle>,
}

/// The task's end.
#[derive(Debug)]
pub(in crate::relay) struct LinkEnd<Q, A> {
    pub(in crate::relay) requests: mpsc::Receiver<Q>,
    pub(in crate::relay) answers: std_mpsc::SyncSender<A>,
}

impl<Q, A> TaskLink<Q, A> {
    /// Both ends, without a task. A request waits in
    /// the channel until the one before it is answered.
    pub(in crate::relay) fn pair() -> (TaskLink<Q, A>, LinkEnd<Q, A>) {
        let (request_sender, requests) = mpsc::channel(1);
        let (answer_sender, answers) = std_mpsc::sync_channel(4);
        let link = TaskLink { requests: request_sender, answers, task: None };
        (link, LinkEnd { requests, answers: answer_sender })
    }

    pub(super) fn spawn<T>(
        runtime: &Handle,
        task: impl FnOnce(LinkEnd<Q, A>) -> T,
    ) -> TaskLink<Q, A>
    where
        T: Future<Output = ()> + Send + 'static,
    {
        let (mut link, end) = TaskLink::pair();
        link.task = Some(runtime.spawn(task(end)).abort_handle());
        link
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
            Err(std_mpsc::TryRecvError::Disconnected) if self.task.is_some() => {
                panic!("a task of the control runtime has ended")
            }
            answer => answer.ok(),
        }
    }

    /// Ends the task; there will be no answer.
    fn close(&mut self) {
        *self = TaskLink::pair().0;
    }
}

impl<Q, A> Drop for TaskLink<Q, A> {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}
