use super::*;
use crate::base::lsn::Lsn;
use crate::relay::testing::{LinkEnd, link, walsender};

const LIMIT: Duration = Duration::from_secs(4);
const LOOK: Duration = Duration::from_secs(1);

/// The control runtime's end of the link.
struct AnsweringEnd(LinkEnd<Walsender, WalsenderAnswer>);

impl AnsweringEnd {
    /// Answers the open request; returns its process id, if there is one.
    fn answer(&mut self, activity: Result<Activity, String>) -> Option<i32> {
        let pid = self.0.requests.try_recv().ok()?.pid;
        self.0.answers.send(WalsenderAnswer { pid, activity, confirmed: Lsn::ZERO }).ok()?;
        Some(pid)
    }
}

struct Stage {
    stall: StallDetector,
    walsender_worker: AnsweringEnd,
    state: StreamState,
}

fn busy() -> Result<Activity, String> {
    Ok(Activity::Busy("CPU".to_owned()))
}

/// A stream that has just been heard, and has received all that there is.
fn stage() -> Stage {
    let (link, end) = link();
    let walsender_worker = AnsweringEnd(end);
    let mut stall = StallDetector::new(link, LIMIT);
    stall.connected(walsender(7));
    let (now, at) = (Instant::now(), Lsn::from_wire(100));
    let mut stage = Stage {
        stall,
        walsender_worker,
        state: StreamState { now, heard: now, seen: at, server: at },
    };
    assert_eq!(stage.after(Duration::ZERO), None);
    stage
}

impl Stage {
    fn after(&mut self, passed: Duration) -> Option<String> {
        self.state.now += passed;
        self.stall.judge(self.state)
    }

    /// The question that is out is answered, and the loop comes round when the next look is due.
    #[track_caller]
    fn told(&mut self, activity: Result<Activity, String>) -> Option<String> {
        assert!(self.walsender_worker.answer(activity).is_some(), "nothing was asked");
        let dead = self.after(Duration::ZERO);
        if dead.is_none() { self.after(LOOK) } else { dead }
    }

    fn decodes(&self) -> bool {
        self.stall.decoding_since().is_some()
    }
}

#[test]
fn as_long_as_postgres_is_busy_the_stream_is_kept() {
    let mut stage = stage();
    assert_eq!(stage.after(LIMIT), None);
    assert_eq!(stage.walsender_worker.answer(busy()), None, "asked within the limit");
    // WHEN the silence lasts and the walsender is busy
    let heard = stage.state.now - LIMIT;
    stage.after(LOOK);
    for _ in 0..1000 {
        assert_eq!(stage.told(busy()), None);
        assert_eq!(stage.stall.decoding_since(), Some(heard));
    }
    // THEN a look that falls into a wait ends nothing, nor do several soon after
    for _ in 0..IDLE_LOOKS {
        assert_eq!(stage.told(Ok(Activity::Waiting)), None);
    }
    assert!(stage.decodes());
    // WHEN positions move again THEN it is over
    stage.state.heard = stage.state.now;
    stage.state.seen = Lsn::from_wire(200);
    assert_eq!(stage.after(Duration::ZERO), None);
    assert!(!stage.decodes());
}

#[test]
fn a_walsender_that_listens_and_is_not_heard_is_at_the_end_of_a_dead_connection() {
    let mut stage = stage();
    stage.after(LIMIT + LOOK);
    for _ in 1..IDLE_LOOKS {
        assert_eq!(stage.told(Ok(Activity::Moving)), None);
    }
    let dead = stage.told(Ok(Activity::Waiting)).unwrap();
    assert!(dead.contains("process 7") && dead.contains("nothing of it arrives"), "{dead}");
}

#[test]
fn a_walsender_that_was_busy_has_the_limit_once_more_to_be_heard() {
    let mut stage = stage();
    stage.after(LIMIT + LOOK);
    assert_eq!(stage.told(busy()), None);
    let busy_at = stage.state.now;
    let mut looks = 0;
    while stage.told(Ok(Activity::Waiting)).is_none() {
        looks += 1;
        assert!(looks < 100);
    }
    assert!(stage.state.now - busy_at >= LIMIT - LOOK && looks >= IDLE_LOOKS);
}

#[test]
fn what_has_ended_or_does_not_answer_is_dead() {
    for (activity, word) in
        [(Ok(Activity::Gone), "has ended"), (Err("no route".into()), "no route")]
    {
        let mut stage = stage();
        stage.after(LIMIT + LOOK);
        let dead = stage.told(activity).unwrap();
        assert!(dead.contains(word), "{dead}");
    }
}

#[test]
fn keepalives_do_not_hide_that_nothing_moves() {
    let mut stage = stage();
    // GIVEN a server that is ahead, of which only keepalives come
    stage.state.server = Lsn::from_wire(900);
    let began = stage.state.now + LOOK;
    for _ in 0..6 {
        stage.state.heard = stage.state.now;
        assert_eq!(stage.after(LOOK), None);
    }
    // WHEN the walsender is busy THEN Postgres decodes, since it is ahead
    assert_eq!(stage.told(busy()), None);
    assert_eq!(stage.stall.decoding_since(), Some(began));
    // WHEN it is on its way through older WAL THEN that is no different
    assert_eq!(stage.told(Ok(Activity::Moving)), None);
    assert!(stage.decodes());
    // WHEN it waits, or has ended, THEN that is no reason to end a connection that is heard
    stage.state.heard = stage.state.now;
    assert_eq!(stage.told(Ok(Activity::Waiting)), None);
    assert!(!stage.decodes());
    assert_eq!(stage.walsender_worker.answer(busy()), None, "it was asked a state ago");
    stage.state.heard = stage.state.now;
    stage.after(LIMIT);
    assert_eq!(stage.told(Ok(Activity::Gone)), None);
}

#[test]
fn what_was_not_read_on_purpose_and_what_is_known_of_another_stream_do_not_count() {
    let mut stage = stage();
    stage.state.server = Lsn::from_wire(900);
    for _ in 0..10 {
        stage.state.heard = stage.state.now;
        stage.stall.excuse();
        assert_eq!(stage.after(LOOK), None);
        assert_eq!(
            stage.walsender_worker.answer(busy()),
            None,
            "asked about a stream that is not read"
        );
    }
    // GIVEN a question about a stream that is over when its answer comes
    stage.after(LIMIT + LOOK);
    assert_eq!(stage.walsender_worker.answer(Ok(Activity::Gone)), Some(7));
    stage.stall.connected(walsender(8));
    stage.state.heard = stage.state.now;
    assert_eq!(stage.after(Duration::ZERO), None);
    assert_eq!(stage.after(LIMIT + LOOK), None);
    assert_eq!(stage.walsender_worker.answer(busy()), Some(8));
}

#[test]
fn idle_looks_before_something_was_heard_do_not_count() {
    let mut stage = stage();
    stage.after(LIMIT + LOOK);
    for _ in 1..IDLE_LOOKS {
        assert_eq!(stage.told(Ok(Activity::Waiting)), None);
    }
    // WHEN bytes arrive, and then none again
    stage.state.heard = stage.state.now;
    stage.after(Duration::ZERO);
    stage.after(LIMIT + LOOK);
    // THEN the looks are counted anew
    for _ in 1..IDLE_LOOKS {
        assert_eq!(stage.told(Ok(Activity::Waiting)), None);
    }
    assert!(stage.told(Ok(Activity::Waiting)).is_some());
}

#[test]
fn a_position_that_does_not_move_behind_the_wal_is_looked_at_while_keepalives_arrive() {
    let mut stage = stage();
    stage.state.server = Lsn::from_wire(200);
    stage.after(Duration::ZERO);
    stage.state.heard += LIMIT + LOOK;
    stage.after(LIMIT + LOOK);
    assert_eq!(stage.told(busy()), None);
    assert!(stage.decodes());
    // WHEN another session begins THEN nothing is known of its walsender
    stage.stall.connected(walsender(8));
    assert!(!stage.decodes());
    assert_eq!(stage.walsender_worker.answer(busy()), Some(7));
    stage.state.heard = stage.state.now;
    stage.after(Duration::ZERO);
    stage.after(LOOK);
    assert_eq!(stage.walsender_worker.answer(busy()), None, "asked within the limit");
}

#[test]
fn a_position_that_moves_far_behind_the_wal_is_no_stall() {
    let mut stage = stage();
    stage.state.server = Lsn::from_wire(900);
    for position in 101..111 {
        (stage.state.heard, stage.state.seen) = (stage.state.now, Lsn::from_wire(position));
        assert_eq!(stage.after(LOOK), None);
        assert_eq!(stage.walsender_worker.answer(busy()), None, "asked while it moves");
    }
    // WHEN it stands, and older WAL is decoded THEN that lasts until it moves again
    for _ in 0..6 {
        stage.state.heard = stage.state.now;
        assert_eq!(stage.after(LOOK), None);
    }
    assert_eq!(stage.told(Ok(Activity::Moving)), None);
    assert!(stage.decodes());
    (stage.state.heard, stage.state.seen) = (stage.state.now, Lsn::from_wire(200));
    stage.after(Duration::ZERO);
    assert!(!stage.decodes());
}

#[test]
fn a_keepalive_shows_that_nothing_was_to_be_sent() {
    let mut stage = stage();
    stage.after(LIMIT + LOOK);
    assert_eq!(stage.told(busy()), None);
    assert!(stage.decodes());
    stage.state.heard = stage.state.now;
    stage.after(Duration::ZERO);
    assert!(!stage.decodes());
}

#[test]
fn looks_follow_each_other_after_a_while() {
    let mut stage = stage();
    stage.after(LIMIT + LOOK);
    assert_eq!(stage.walsender_worker.answer(busy()), Some(7));
    stage.after(Duration::ZERO);
    stage.after(LOOK / 2);
    assert_eq!(stage.walsender_worker.answer(busy()), None);
    stage.after(LOOK / 2);
    assert_eq!(stage.walsender_worker.answer(busy()), Some(7));
}
