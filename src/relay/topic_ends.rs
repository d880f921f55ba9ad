//! The thread that reads the ends of topics for the loop.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Instant;

use walrelay_core::relay::ReadBack;
use walrelay_core::relay::ports::Link;
use walrelay_core::relay::read_back::{FoundRecords, ReadRequest, TopicLink, UNREAD, WITHIN};

use crate::base::{random, runtime};
use crate::sink::Broker;
use crate::sink::topic_reader::TopicReader;

type Answer = Result<FoundRecords, String>;

pub(crate) fn read_back(broker: Arc<dyn Broker>) -> ReadBack {
    ReadBack::new(Box::new(move || open(&*broker)), random::seed())
}

/// The data thread's end. Dropping it ends the thread.
struct ReaderLink {
    requests: Sender<ReadRequest>,
    answers: Receiver<Answer>,
}

impl Link<ReadRequest, Answer> for ReaderLink {
    fn request(&self, request: ReadRequest) -> bool {
        self.requests.send(request).is_ok()
    }

    fn answer(&self) -> Option<Answer> {
        match self.answers.try_recv() {
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err("its thread has ended".to_owned())),
            Ok(found) => Some(found),
        }
    }
}

/// Starts the thread, unless this kind of broker cannot be read.
fn open(broker: &dyn Broker) -> Option<TopicLink> {
    let (requests, inbox) = channel();
    let (outbox, answers) = channel();
    let opened = broker.topic_reader().and_then(|reader| {
        let Some(reader) = reader else { return Ok(None) };
        runtime::spawn("topic-reader", move || serve(reader, &inbox, &outbox))?;
        Ok(Some(Box::new(ReaderLink { requests, answers }) as TopicLink))
    });
    opened.unwrap_or_else(|fault| {
        tracing::warn!(code = "sink.topic-unread", reason = fault.what, "{UNREAD}");
        None
    })
}

fn serve(
    mut reader: Box<dyn TopicReader>,
    requests: &Receiver<ReadRequest>,
    answers: &Sender<Answer>,
) {
    let mut left = WITHIN;
    while let Ok(mut request) = requests.recv() {
        let (topic, from_unix_us) = (request.topic.clone(), request.from_unix_us);
        let began = Instant::now();
        let read = reader.read(&topic, from_unix_us, left, &mut |record| request.take(record));
        left = left.saturating_sub(began.elapsed());
        let answer = read.map(|whole| FoundRecords { records: request.stored, whole });
        if answers.send(answer).is_err() {
            return;
        }
    }
}
