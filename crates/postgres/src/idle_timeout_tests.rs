use super::*;

fn of(timeout_s: u64, idle_s: Option<u64>) -> IdleTimeout {
    let seconds = Duration::from_secs;
    IdleTimeout { timeout: seconds(timeout_s), idle: idle_s.map(seconds) }
}

#[test]
fn the_time_that_is_left_counts_from_the_last_reader() {
    let read = of(3600, None);
    assert_eq!((read.left(), read.is_urgent()), (None, false));
    assert!(
        read.text("s").starts_with("once nobody has read slot s for 1 h 0 min, "),
        "{}",
        read.text("s")
    );
    assert_eq!(read.to_json("s")["text"], Value::Null);
    // GIVEN no reader THEN it says in how long, and it is urgent after half of the time
    let idle = of(3600, Some(600));
    assert_eq!((idle.left(), idle.is_urgent()), (Some(Duration::from_secs(3000)), false));
    let text = idle.text("s");
    assert!(text.contains("for 10 min: from 50 min on Postgres invalidates it"), "{text}");
    assert_eq!(idle.to_json("s")["left_seconds"], 3000);
    assert!(of(3600, Some(1801)).is_urgent());
    // THEN a time that is over is no time
    let over = of(60, Some(90));
    assert_eq!((over.left(), over.is_urgent()), (Some(Duration::ZERO), true));
    assert!(over.text("s").contains("from now on"), "{}", over.text("s"));
    assert_eq!(read.after(Duration::from_secs(90)), of(3600, Some(90)));
}
