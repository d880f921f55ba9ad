use super::*;

/// A broker that confirms an event after `latency`, and at most `capacity` a second; the rates
/// differ by up to a twentieth from round to round.
struct Model {
    capacity: f64,
    latency: Duration,
    noise: u64,
    now: Instant,
    confirmed: f64,
}

impl Model {
    fn new(capacity: f64, latency_us: u64) -> Model {
        let (latency, now) = (Duration::from_micros(latency_us), Instant::now());
        Model { capacity, latency, noise: 1, now, confirmed: 0.0 }
    }

    fn rate(&self, limit: usize) -> f64 {
        self.capacity.min(limit as f64 / self.latency.as_secs_f64())
    }

    /// A round at exactly this rate. Returns the limit behind it.
    fn round(&mut self, flight: &mut InFlightLimit, rate: u32) -> usize {
        flight.observe(self.now, self.confirmed as u64, true);
        self.now += Duration::from_millis(100);
        self.confirmed += f64::from(rate / 10);
        flight.observe(self.now, self.confirmed as u64, true);
        flight.limit()
    }

    /// Runs for a while under a load that is always more than the broker takes.
    fn run(&mut self, flight: &mut InFlightLimit, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        let mut rate = self.rate(flight.limit());
        let mut passes = 0;
        while self.now < end {
            if passes % 50 == 0 {
                // xorshift
                self.noise ^= self.noise << 13;
                self.noise ^= self.noise >> 7;
                self.noise ^= self.noise << 17;
                let part = (self.noise % 1000) as f64 / 1000.0;
                rate = self.rate(flight.limit()) * (0.95 + 0.1 * part);
            }
            passes += 1;
            let step = Duration::from_millis(1);
            self.now += step;
            self.confirmed += rate * step.as_secs_f64();
            flight.observe(self.now, self.confirmed as u64, true);
        }
    }
}

#[test]
fn a_few_times_what_the_broker_needs_is_found_at_any_latency() {
    for (capacity, latency_us) in
        [(150_000.0, 3_000), (20_000.0, 60_000), (5_000.0, 1_000), (90_000.0, 40_000)]
    {
        let mut flight = InFlightLimit::new(16_384);
        let mut model = Model::new(capacity, latency_us);
        model.run(&mut flight, 5);
        let needed = (capacity * latency_us as f64 / 1e6) as usize;
        for _ in 0..50 {
            model.run(&mut flight, 1);
            let limit = flight.limit();
            assert!(limit <= (4 * needed).max(2 * FIRST), "{limit} for {needed}");
            assert!(model.rate(limit) >= 0.7 * capacity, "{limit} for {needed}");
        }
        let before = model.confirmed;
        model.run(&mut flight, 60);
        let reached = (model.confirmed - before) / 60.0 / capacity;
        assert!(reached > 0.96, "{reached} of the rate of {needed} in flight");
    }
}

#[test]
fn a_broker_that_changes_is_measured_anew() {
    let mut flight = InFlightLimit::new(16_384);
    let mut model = Model::new(100_000.0, 2_000);
    model.run(&mut flight, 10);
    // WHEN it becomes far away THEN more is in flight
    model.latency = Duration::from_millis(50);
    model.run(&mut flight, 20);
    assert!(model.rate(flight.limit()) > 90_000.0, "{}", flight.limit());
    // WHEN it becomes slow and near THEN less
    (model.capacity, model.latency) = (10_000.0, Duration::from_millis(2));
    model.run(&mut flight, 30);
    assert!(flight.limit() <= 1_024, "{}", flight.limit());
}

#[test]
fn a_limit_that_was_found_has_a_reserve_and_outlasts_a_single_round_and_a_load_that_stops() {
    let mut flight = InFlightLimit::new(16_384);
    let mut model = Model::new(0.0, 0);
    let rates = [10_000, 20_000, 40_000, 40_000, 40_000];
    let limits = rates.map(|rate| model.round(&mut flight, rate));
    assert_eq!(limits, [512, 1024, 2048, 2048, 2048], "1024 was enough for the highest rate");
    // WHEN single rounds are far from the usual THEN the broker is the same
    for rate in [90_000, 40_000, 90_000] {
        assert_eq!(model.round(&mut flight, rate), 2048);
    }
    // WHEN the load stops while another limit is tried THEN that says nothing
    let tried = [40_000; 8].map(|rate| model.round(&mut flight, rate));
    assert_eq!(tried.last(), Some(&3072));
    for _ in 0..2 {
        model.now += Duration::from_secs(1);
        flight.observe(model.now, model.confirmed as u64, false);
    }
    assert_eq!(flight.limit(), 2048);
    // AND a broker that is another one since then is measured anew, from half of the limit
    let limits = [90_000; 2].map(|rate| model.round(&mut flight, rate));
    assert_eq!(limits, [2048, 1024]);
}

#[test]
fn a_load_that_is_not_held_back_changes_nothing() {
    let mut flight = InFlightLimit::new(16_384);
    let mut now = Instant::now();
    for second in 0..1_000_u64 {
        now += Duration::from_millis(10);
        flight.observe(now, second * 50, second % 10 == 0);
    }
    assert_eq!(flight.limit(), FIRST);
}

#[test]
fn the_bound_holds() {
    for max in [1, 2, 100, 256, 300] {
        let mut flight = InFlightLimit::new(max);
        let mut model = Model::new(1e6, 100_000);
        model.run(&mut flight, 5);
        assert!((FIRST.min(max)..=max).contains(&flight.limit()), "{}", flight.limit());
        // WHEN the broker confirms nothing for long THEN a trial ends, and nothing else changes
        let limit = flight.limit();
        model.capacity = 0.0;
        model.run(&mut flight, 100);
        assert!(flight.limit() <= (limit * 3 / 2).min(max), "{}", flight.limit());
        let mut flight = InFlightLimit::new(max);
        model.run(&mut flight, 100);
        assert_eq!(flight.limit(), FIRST.min(max));
    }
}
