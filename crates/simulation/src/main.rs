//! Runs seeds.

use walrelay_simulation::SinkKind;

fn main() {
    let mut args = std::env::args().skip(1).map(|it| it.parse::<u64>().unwrap_or(0));
    let (seeds, first) = (args.next().unwrap_or(1000), args.next().unwrap_or(1));
    let tells = args.next() == Some(1);
    let sink = match std::env::args().nth(4).as_deref() {
        Some("direct") => Some(SinkKind::Direct),
        Some("kafka") => Some(SinkKind::Kafka),
        _ => None,
    };
    let began = std::time::Instant::now();
    let (mut events, mut faults, mut bad, mut rounds) = (0, 0, 0, 0);
    for seed in first..first + seeds {
        let report = walrelay_simulation::run(seed, tells, sink);
        events += report.events;
        faults += report.faults.len();
        rounds += report.rounds;
        for line in &report.story {
            println!("{line}");
        }
        if let Some(violation) = report.violation {
            bad += 1;
            if bad <= 30 {
                println!("seed {seed}: {violation} {:?} stops {:?}", report.faults, report.stops);
            }
        }
    }
    println!(
        "{seeds} seeds, {events} events, {faults} faults, {rounds} rounds, {bad} violations, {:?}",
        began.elapsed()
    );
}
