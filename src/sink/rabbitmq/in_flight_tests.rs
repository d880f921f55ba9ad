//! The order of completions, with publishes that the test completes.

use std::sync::{Arc, Mutex};

use super::*;

/// A publish in two stages, as lapin's: written, then answered.
#[derive(Clone, Default)]
struct Scripted(Arc<Mutex<Script>>);

#[derive(Default)]
struct Script {
    written: bool,
    answer: Option<lapin::Result<Confirmation>>,
    waker: Option<Waker>,
    /// It has been looked at since it was written: its answer will be noted.
    armed: bool,
}

impl Scripted {
    fn future(&self) -> Publish<'static> {
        let script = Arc::clone(&self.0);
        Box::pin(std::future::poll_fn(move |context| {
            let mut script = script.lock().unwrap();
            script.waker = Some(context.waker().clone());
            script.armed = script.written;
            match script.written.then(|| script.answer.take()).flatten() {
                Some(answer) => Poll::Ready(answer),
                None => Poll::Pending,
            }
        }))
    }

    fn write(&self) {
        let mut script = self.0.lock().unwrap();
        script.written = true;
        script.waker.clone().unwrap().wake();
    }

    /// Like lapin: a confirm that nobody has polled yet wakes nobody.
    fn answer(&self, answer: lapin::Result<Confirmation>) {
        let mut script = self.0.lock().unwrap();
        script.answer = Some(answer);
        if script.armed {
            script.waker.clone().unwrap().wake();
        }
    }
}

fn lost() -> lapin::Error {
    std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()
}

#[test]
fn a_rejection_hides_no_confirm_that_came_before_it() {
    let mut in_flight = PublishesInFlight::default();
    let [a, x, b] = [Scripted::default(), Scripted::default(), Scripted::default()];
    in_flight.begin(0, "a".to_owned(), a.future()).unwrap();
    a.write();
    assert_eq!(in_flight.collect().0, []);
    // GIVEN A on the wire and looked at, X and B written and not looked at since
    in_flight.begin(1, "x".to_owned(), x.future()).unwrap();
    in_flight.begin(2, "b".to_owned(), b.future()).unwrap();
    x.write();
    b.write();
    // WHEN A and X are answered, in this order, and B is cut off
    a.answer(Ok(Confirmation::Ack(None)));
    x.answer(Ok(Confirmation::Ack(None)));
    b.answer(Err(lost()));
    // THEN X is not told without A, though B's rejection is found between their notes
    let (batch, outcome) = in_flight.collect();
    let mut told: Vec<Sequence> = batch.iter().map(|(sequence, _)| *sequence).collect();
    told.sort_unstable();
    assert_eq!(told, [0, 1]);
    assert!(outcome.is_err());
}

#[test]
fn slots_are_used_again_and_the_oldest_is_known() {
    let mut in_flight = PublishesInFlight::default();
    assert_eq!(in_flight.oldest(), None);
    for sequence in 0..3 {
        let publish = Scripted::default();
        in_flight.begin(sequence, sequence.to_string(), publish.future()).unwrap();
        assert!(in_flight.oldest().is_some());
        publish.write();
        publish.answer(Ok(Confirmation::Nack(None)));
        let (batch, outcome) = in_flight.collect();
        assert!(outcome.is_ok());
        assert_eq!(batch, [(sequence, PublishOutcome::Nacked)]);
    }
    assert_eq!((in_flight.slots.len(), in_flight.oldest()), (1, None));
}
