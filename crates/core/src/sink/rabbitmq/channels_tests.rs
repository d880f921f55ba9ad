use std::collections::HashMap;

use super::*;
use crate::sink::rabbitmq::testing::empty_message;

const SECOND: Duration = Duration::from_secs(1);

fn message(routing_key: &str, id: Sequence) -> Arc<AmqpMessage> {
    Arc::new(empty_message("e", routing_key, &id.to_string()))
}

/// A relay with messages for a few destinations, and a broker that answers for some of them.
struct Fixture {
    channels: PublishChannels,
    now: Instant,
    next: Sequence,
    /// The destination of each message, and where it was published.
    sent: HashMap<Sequence, (&'static str, u16, u64)>,
    /// How many messages were published on each channel.
    tags: HashMap<u16, u64>,
    routing_keys: HashMap<Sequence, &'static str>,
}

impl Fixture {
    fn with_channels(count: u16) -> Fixture {
        let mut channels = PublishChannels::default();
        (1..=count).for_each(|number| channels.add(number));
        let (now, next) = (Instant::now(), 0);
        let (sent, tags, routing_keys) = Default::default();
        Fixture { channels, now, next, sent, tags, routing_keys }
    }

    /// Publishes one more message, or lets it wait. Returns its channel.
    fn publish(&mut self, routing_key: &'static str) -> Option<u16> {
        self.next += 1;
        self.routing_keys.insert(self.next, routing_key);
        self.try_again(self.next)
    }

    fn try_again(&mut self, sequence: Sequence) -> Option<u16> {
        let routing_key = self.routing_keys[&sequence];
        let message = message(routing_key, sequence);
        let channel = self.channels.publish(sequence, &message, self.now)?;
        self.channels.note_written(1, self.now);
        let tag = self.tags.entry(channel).or_default();
        *tag += 1;
        self.sent.insert(sequence, (routing_key, channel, *tag));
        Some(channel)
    }

    /// As many as find room.
    fn fill(&mut self, routing_key: &'static str) -> usize {
        std::iter::from_fn(|| self.publish(routing_key)).count()
    }

    /// The broker confirms everything for this destination; what waits is published. Returns how
    /// many were confirmed.
    fn confirm(&mut self, routing_key: &str) -> usize {
        self.confirm_some(routing_key, usize::MAX)
    }

    /// The same with the oldest of them.
    fn confirm_some(&mut self, routing_key: &str, count: usize) -> usize {
        self.answer(routing_key, count, true)
    }

    fn answer(&mut self, routing_key: &str, count: usize, acked: bool) -> usize {
        let is_meant = |(_, (key, ..)): &(&Sequence, &(&str, u16, u64))| *key == routing_key;
        let meant: BTreeMap<_, _> = self.sent.iter().filter(is_meant).collect();
        let answers: Vec<(u16, Answer)> = (meant.into_values().take(count))
            .map(|(_, channel, tag)| {
                (*channel, Answer::Confirm { tag: *tag, multiple: false, acked })
            })
            .collect();
        let (answered, loss) = self.channels.take_answers(answers, self.now);
        assert_eq!(loss, None);
        for publish in &answered {
            self.sent.remove(&publish.sequence);
        }
        for sequence in self.channels.release(self.now) {
            self.try_again(sequence);
        }
        answered.len()
    }

    fn in_flight(&self, routing_key: &str) -> usize {
        self.sent.values().filter(|(key, ..)| *key == routing_key).count()
    }
}

#[test]
fn a_destination_that_answers_gets_one_channel_after_the_other() {
    let mut fixture = Fixture::with_channels(10);
    let (unproven, whole) = (UNPROVEN_SPAN_MAX as usize, SPAN_MAX as usize);
    // GIVEN more messages for one destination than all channels have room for
    assert_eq!(fixture.fill("hot"), unproven);
    (0..10_000).for_each(|_| assert_eq!(fixture.publish("hot"), None));
    // WHEN all of them are answered, again and again
    let rounds: Vec<usize> = (0..10).map(|_| fixture.confirm("hot")).collect();
    // THEN ever more are in flight
    assert_eq!(
        rounds[..4],
        [unproven, whole + unproven, 2 * whole + unproven, 3 * whole + unproven]
    );
    assert_eq!(rounds[9], 9 * whole + unproven);
    // AND all are published in the end
    while fixture.confirm("hot") > 0 {}
    assert!(fixture.sent.is_empty() && fixture.channels.waiting.is_empty());
}

#[test]
fn a_silent_destination_keeps_few_channels_and_others_go_on() {
    let mut fixture = Fixture::with_channels(5);
    // GIVEN a destination that has answered, and then does not any more
    fixture.publish("silent");
    assert_eq!(fixture.confirm("silent"), 1);
    let in_flight = fixture.fill("silent");
    assert_eq!(in_flight, (SPAN_MAX + UNPROVEN_SPAN_MAX) as usize);
    (0..5_000).for_each(|_| assert_eq!(fixture.publish("silent"), None));
    // WHEN others are published for long THEN each is answered, and no channel comes to carry more
    // messages behind its oldest one than the broker reads
    for _ in 0..500 {
        for _ in 0..100 {
            fixture.publish("good");
            fixture.publish("other");
        }
        assert!(fixture.confirm("good") > 0 && fixture.confirm("other") > 0);
        assert_eq!(fixture.in_flight("silent"), in_flight);
        let spans = fixture.channels.channels.iter().map(|it| it.in_flight.span());
        assert!(spans.max() <= Some(SPAN_MAX));
    }
    // AND its messages are on channels without any other
    let mut own = fixture.sent.values().filter(|(key, ..)| *key == "silent");
    assert!(own.all(|(_, channel, _)| {
        fixture.sent.values().all(|(key, other, _)| other != channel || *key == "silent")
    }));
    // WHEN it answers THEN all that waited are published
    while fixture.confirm("silent") + fixture.confirm("good") + fixture.confirm("other") > 0 {}
    assert!(fixture.sent.is_empty() && fixture.channels.waiting.is_empty());
}

#[test]
fn destinations_without_a_channel_share_one_that_answers() {
    let mut fixture = Fixture::with_channels(2);
    assert_eq!((fixture.publish("a"), fixture.publish("silent")), (Some(1), Some(2)));
    // GIVEN that neither channel has answered THEN a third destination waits
    assert_eq!(fixture.publish("c"), None);
    // WHEN one answers THEN it goes there
    assert_eq!((fixture.confirm("a"), fixture.in_flight("c")), (1, 1));
    assert_eq!((fixture.publish("d"), fixture.publish("a")), (Some(1), Some(1)));
    // WHEN that channel has not answered for a while THEN it is given to no other
    fixture.now += SECOND;
    assert_eq!(fixture.publish("e"), None);
    // WHEN a new channel is there THEN what waits gets it
    fixture.channels.add(3);
    let released = fixture.channels.release(fixture.now);
    assert_eq!(released.into_iter().map(|it| fixture.try_again(it)).collect::<Vec<_>>(), [Some(3)]);
    // WHEN the connection is lost THEN what waits is handed back
    assert_eq!(fixture.publish("f"), None);
    assert_eq!(fixture.channels.release_all(), [fixture.next]);
}

#[test]
fn a_destination_with_messages_in_flight_goes_to_no_channel_of_another() {
    let mut fixture = Fixture::with_channels(2);
    // GIVEN a silent destination that has filled its channel, and another that has the last one
    fixture.publish("silent");
    assert_eq!(fixture.confirm("silent"), 1);
    assert_eq!(fixture.publish("good"), Some(2));
    assert_eq!(fixture.fill("silent"), SPAN_MAX as usize);
    (0..1_000).for_each(|_| assert_eq!(fixture.publish("silent"), None));
    // WHEN that channel answers, and is never idle
    for _ in 0..1_000 {
        assert_eq!(fixture.publish("good"), Some(2));
        assert_eq!(fixture.confirm_some("good", 1), 1);
        // THEN none of the silent destination is published there
        assert_eq!(fixture.publish("silent"), None);
        assert_eq!(
            (fixture.in_flight("silent"), fixture.in_flight("good")),
            (SPAN_MAX as usize, 1)
        );
    }
    // WHEN it answers THEN all that waited are published
    while fixture.confirm("silent") + fixture.confirm("good") > 0 {}
    assert!(fixture.sent.is_empty() && fixture.channels.waiting.is_empty());
}

#[test]
fn a_destination_whose_message_is_behind_a_silent_one_gets_the_next_idle_channel() {
    let mut fixture = Fixture::with_channels(2);
    // GIVEN a destination that shares the channel of one that has just become silent
    fixture.publish("silent");
    fixture.confirm("silent");
    assert_eq!((fixture.publish("silent"), fixture.publish("other")), (Some(1), Some(2)));
    assert_eq!((fixture.publish("good"), fixture.publish("good")), (Some(1), None));
    // WHEN another channel is idle THEN its next messages go there
    fixture.confirm("other");
    assert_eq!(fixture.in_flight("good"), 2);
    assert_eq!(fixture.publish("good"), Some(2));
}

#[test]
fn a_channel_that_is_full_because_of_another_destination_is_waited_for() {
    let mut fixture = Fixture::with_channels(1);
    fixture.publish("own");
    fixture.confirm("own");
    // GIVEN a channel whose span is full behind the message of a destination that shares it
    assert_eq!((fixture.publish("own"), fixture.publish("silent")), (Some(1), Some(1)));
    fixture.confirm("own");
    while fixture.publish("own").is_some() {
        fixture.confirm("own");
    }
    assert_eq!(fixture.in_flight("own"), 0);
    // WHEN that one is answered THEN what waits is published
    fixture.confirm("silent");
    assert_eq!(fixture.in_flight("own"), 1);
}

#[test]
fn a_destination_whose_messages_were_refused_does_not_wait_for_a_silent_one_on_its_channel() {
    let mut fixture = Fixture::with_channels(2);
    assert_eq!((fixture.publish("before"), fixture.publish("other")), (Some(1), Some(2)));
    fixture.confirm("before");
    // GIVEN a destination that has confirmed nothing on its channel, which a silent one shares and fills
    assert_eq!((fixture.publish("refusing"), fixture.publish("silent")), (Some(1), Some(1)));
    while fixture.answer("refusing", usize::MAX, false) > 0 {
        fixture.publish("refusing");
    }
    assert_eq!(fixture.in_flight("refusing"), 0);
    // WHEN another channel is idle THEN its next message is published there
    fixture.confirm("other");
    assert_eq!(fixture.in_flight("refusing"), 1);
}

#[test]
fn no_destination_publishes_behind_a_silent_one_on_its_own_channel_while_another_is_idle() {
    for acked in [true, false] {
        let mut fixture = Fixture::with_channels(3);
        let before = ["before", "x", "y"].map(|routing_key| fixture.publish(routing_key));
        assert_eq!(before, [Some(1), Some(2), Some(3)]);
        fixture.confirm("before");
        // GIVEN a destination whose channel a silent one shares, and an answer for what was in front of that
        assert_eq!((fixture.publish("own"), fixture.publish("silent")), (Some(1), Some(1)));
        fixture.answer("own", 1, acked);
        // WHEN the other channels are idle THEN one of them has all that follows
        fixture.confirm("x");
        fixture.confirm("y");
        assert_eq!(fixture.publish("own"), Some(2), "{acked}");
        fixture.confirm("own");
        assert_eq!(fixture.fill("own"), SPAN_MAX as usize + UNPROVEN_SPAN_MAX as usize);
        assert_eq!(fixture.in_flight("silent"), 1);
    }
}

#[test]
fn a_destination_that_is_behind_silent_ones_on_two_channels_gets_the_next_idle_channel() {
    let mut fixture = Fixture::with_channels(3);
    let before = ["before", "owner", "third"].map(|routing_key| fixture.publish(routing_key));
    assert_eq!(before, [Some(1), Some(2), Some(3)]);
    fixture.confirm("before");
    // GIVEN one that confirms nothing, and whose channel is full behind a silent one
    assert_eq!((fixture.publish("refusing"), fixture.publish("silent")), (Some(1), Some(1)));
    fixture.confirm_some("owner", 1);
    fixture.publish("owner");
    fixture.publish("owner");
    fixture.confirm_some("owner", 1);
    while fixture.answer("refusing", usize::MAX, false) > 0 {
        if fixture.publish("refusing") == Some(2) {
            break;
        }
    }
    // AND a message of it in flight on a channel whose owner is silent now
    assert_eq!(fixture.in_flight("refusing"), 1);
    assert_eq!(fixture.publish("refusing"), None);
    // WHEN another channel is idle THEN the next message goes there
    fixture.confirm("third");
    assert_eq!(fixture.in_flight("refusing"), 2);
}

#[test]
fn a_destination_that_needs_no_idle_channel_leaves_it_to_the_next() {
    let mut fixture = Fixture::with_channels(3);
    let first = ["full", "silent", "third"].map(|routing_key| fixture.publish(routing_key));
    assert_eq!(first, [Some(1), Some(2), Some(3)]);
    fixture.confirm("full");
    // GIVEN a channel that is full, with a message of another in front, and one of a third behind that
    assert_eq!((fixture.publish("full"), fixture.publish("front")), (Some(1), Some(1)));
    fixture.confirm_some("full", 1);
    assert_eq!((fixture.publish("full"), fixture.publish("other")), (Some(1), Some(1)));
    fixture.fill("full");
    assert_eq!(fixture.publish("other"), None);
    // WHEN there is room again, and another channel is idle
    fixture.confirm("front");
    fixture.confirm("third");
    // THEN the owner uses the room, and the other gets the idle channel
    assert_eq!(fixture.in_flight("other"), 2);
}

#[test]
fn destinations_that_wait_no_more_take_no_memory() {
    let mut fixture = Fixture::with_channels(1);
    let names: Vec<&'static str> =
        (0..500).map(|at| &*Box::leak(format!("k{at}").into_boxed_str())).collect();
    assert_eq!(fixture.publish("owner"), Some(1));
    fixture.confirm("owner");
    // GIVEN a channel that is never idle, and destinations with two messages each
    fixture.publish("owner");
    for name in names {
        fixture.publish(name);
        fixture.publish(name);
        assert_eq!(fixture.channels.queue.len(), 1);
        while fixture.confirm(name) > 0 {}
        fixture.publish("owner");
        fixture.confirm_some("owner", 1);
        // THEN none of the destinations that have published both is remembered
        assert!(fixture.channels.queue.is_empty() && fixture.channels.waiting.is_empty());
    }
}

#[test]
fn a_destination_has_one_message_in_flight_on_channels_of_others() {
    let mut fixture = Fixture::with_channels(1);
    assert_eq!(fixture.publish("owner"), Some(1));
    assert_eq!(fixture.confirm("owner"), 1);
    fixture.publish("owner");
    // GIVEN a channel that answers, and many destinations with many messages
    for _ in 0..20 {
        for routing_key in ["a", "b", "c"] {
            fixture.publish(routing_key);
        }
    }
    // THEN one of each is published, whichever is answered
    for _ in 0..19 {
        assert_eq!(["a", "b", "c"].map(|routing_key| fixture.in_flight(routing_key)), [1; 3]);
        assert_eq!(["a", "b", "c"].map(|routing_key| fixture.confirm(routing_key)), [1; 3]);
    }
    // AND all are, in the end
    while ["a", "b", "c", "owner"].map(|it| fixture.confirm(it)).iter().sum::<usize>() > 0 {}
    assert!(fixture.sent.is_empty() && fixture.channels.waiting.is_empty());
}

#[test]
fn a_channel_that_is_full_is_given_to_no_other_destination() {
    let mut fixture = Fixture::with_channels(1);
    fixture.publish("a");
    assert_eq!(fixture.confirm("a"), 1);
    assert_eq!(fixture.fill("a"), SPAN_MAX as usize);
    // GIVEN that it has answered just now
    assert_eq!(fixture.publish("b"), None);
}
