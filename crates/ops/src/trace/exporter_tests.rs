//! Against a receiver over real sockets, which decodes with the published types.

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Instant;

use walrelay_harness::collector::Collector;

use super::super::context::TraceContext;
use super::super::span::PublishSpan;
use super::*;
use walrelay_base::event::MessagingNames;
use walrelay_base::lsn::Lsn;
use walrelay_base::secret::SecretFile as _;
use walrelay_base::testing::{TempFolder, self_signed, tls_acceptor};

const LIMIT: Duration = Duration::from_secs(20);
/// The longest that a relay that stops may wait for a collector, on a machine that is busy.
const STOPPED_WITHIN: Duration = Duration::from_secs(3);

struct Fixture {
    exporter: Option<SpanExporter>,
    metrics: Arc<Metrics>,
}

impl Fixture {
    fn start(url: &str, change: impl FnOnce(&mut TracingSettings)) -> Fixture {
        let mut settings =
            TracingSettings { endpoint: Some(Secret::new(url)), ..TracingSettings::default() };
        change(&mut settings);
        let metrics = Arc::new(Metrics::new());
        let (exporter, spans) = SpanExporter::start(&settings, source(), &metrics).unwrap();
        assert!(spans.is_on());
        Fixture { exporter, metrics }
    }

    fn push(&self, spans: usize) {
        let queue = &self.exporter.as_ref().unwrap().queue;
        (0..spans).for_each(|_| queue.push(span()));
    }

    fn counted(&self) -> [u64; 2] {
        [self.metrics.spans_exported.get(), self.metrics.spans_dropped.get()]
    }

    /// How long the end took.
    fn stop(&mut self) -> Duration {
        let began = Instant::now();
        self.exporter.take().unwrap().stop();
        began.elapsed()
    }
}

fn source() -> SpanSource {
    SpanSource {
        service_name: "walrelay".into(),
        instance: "walrelay@host".into(),
        system: "kafka",
        names: MessagingNames::NONE,
        has_commit_lsn: true,
    }
}

fn span() -> FinishedSpan {
    FinishedSpan {
        span: PublishSpan {
            context: TraceContext::sampled([1; 16], [2; 8]),
            link: None,
            start_unix_us: 1,
            exchange: "".into(),
            topic: "orders".into(),
            key: None,
            event_id: "e-1".into(),
            body_bytes: Some(1),
            partition: None,
            commit_lsn: Lsn::ZERO,
            commit_unix_us: 1,
        },
        end_unix_us: 2,
        retries: 0,
        dead_letter: None,
    }
}

#[track_caller]
fn until(mut fact: impl FnMut() -> bool) {
    let began = Instant::now();
    while !fact() {
        assert!(began.elapsed() < LIMIT, "not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn nothing_starts_without_an_endpoint() {
    let metrics = Arc::new(Metrics::new());
    let settings = TracingSettings::default();
    let (exporter, spans) = SpanExporter::start(&settings, source(), &metrics).unwrap();
    assert!(exporter.is_none() && !spans.is_on());
}

#[test]
fn a_few_spans_are_sent_soon_and_many_in_batches() {
    let collector = Collector::start().unwrap();
    let headers = Some(Secret::new("authorization=Bearer%20x"));
    let mut fixture = Fixture::start(&collector.url(), |settings| settings.headers = headers);
    // WHEN there are few THEN they come without waiting for more
    fixture.push(3);
    until(|| fixture.counted() == [3, 0]);
    let request = collector.received().requests.remove(0);
    assert_eq!((request.path.as_str(), request.spans), ("/v1/traces", 3));
    assert_eq!(request.header("content-type"), Some("application/x-protobuf"));
    assert_eq!(request.header("authorization"), Some("Bearer x"));
    assert_eq!(request.header("host"), Some(collector.address().to_string().as_str()));
    // WHEN there are many THEN no request has more than a batch, and the last ones come at the end
    fixture.push(3 * BATCH_SPANS_MAX + 7);
    assert!(fixture.stop() < STOPPED_WITHIN);
    assert_eq!(fixture.counted(), [3 * BATCH_SPANS_MAX as u64 + 10, 0]);
    assert_eq!(collector.spans().len(), 3 * BATCH_SPANS_MAX + 10);
    assert!(collector.received().requests.iter().all(|it| it.spans <= BATCH_SPANS_MAX));
}

#[test]
fn a_batch_is_sent_again_until_it_is_taken() {
    let collector = Collector::start().unwrap();
    collector.answer(503);
    let mut fixture = Fixture::start(&collector.url(), |_| {});
    fixture.push(2);
    until(|| collector.received().requests.len() >= 2);
    assert_eq!(fixture.counted(), [0, 0]);
    collector.answer(200);
    until(|| fixture.counted() == [2, 0]);
    assert_eq!(collector.spans().len(), 2);
    fixture.stop();
}

#[test]
fn a_batch_that_is_refused_is_dropped() {
    let collector = Collector::start().unwrap();
    collector.answer(400);
    let mut fixture = Fixture::start(&collector.url(), |_| {});
    fixture.push(2);
    until(|| fixture.counted() == [0, 2]);
    // WHEN a part is refused THEN it counts, and nothing is sent again
    collector.answer(200);
    collector.reject(1);
    fixture.push(3);
    until(|| fixture.counted() == [2, 3]);
    fixture.stop();
    assert_eq!(collector.received().requests.len(), 2);
}

#[test]
fn headers_of_a_file_are_read_again_when_the_collector_refuses_them() {
    let collector = Collector::start().unwrap();
    collector.answer(401);
    let folder = TempFolder::new();
    let file = folder.path().join("headers");
    std::fs::write(&file, "authorization=old").unwrap();
    let headers = Secret::of_file(&file).unwrap();
    let mut fixture = Fixture::start(&collector.url(), |settings| settings.headers = Some(headers));
    fixture.push(1);
    until(|| fixture.counted() == [0, 1]);
    // WHEN the file has others THEN the batch is sent again with them
    std::fs::write(&file, "authorization=new").unwrap();
    fixture.push(1);
    until(|| fixture.counted() == [0, 2]);
    let requests = collector.received().requests;
    let sent: Vec<_> = requests.iter().map(|it| it.header("authorization")).collect();
    assert_eq!(sent, [Some("old"), Some("old"), Some("new")]);
    fixture.stop();
}

#[test]
fn a_collector_that_is_away_costs_spans_and_no_memory() {
    // GIVEN a port where nobody listens
    let url = format!("http://127.0.0.1:{}", walrelay_harness::free_port().unwrap());
    let mut fixture = Fixture::start(&url, |_| {});
    fixture.push(50_000);
    // THEN no more than the queue and a batch are kept
    let [exported, dropped] = fixture.counted();
    assert_eq!(exported, 0);
    assert!((50_000 - 8_192 - 512..=50_000 - 8_192).contains(&dropped), "{dropped}");
    // WHEN the relay stops THEN it does not wait for the collector
    assert!(fixture.stop() < STOPPED_WITHIN);
    assert_eq!(fixture.counted(), [0, 50_000]);
}

#[test]
fn a_collector_that_comes_back_gets_what_was_kept() {
    let collector = Collector::start().unwrap();
    let address = collector.address();
    let mut fixture = Fixture::start(&collector.url(), |_| {});
    fixture.push(1);
    until(|| fixture.counted() == [1, 0]);
    collector.answer(503);
    fixture.push(5);
    until(|| collector.received().requests.len() == 2);
    drop(collector);
    let collector = loop {
        if let Ok(collector) = Collector::start_at(address) {
            break collector;
        }
    };
    until(|| fixture.counted() == [6, 0]);
    assert_eq!(collector.spans().len(), 5);
    fixture.stop();
}

#[test]
fn a_collector_that_never_answers_does_not_hold_up_the_end() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut fixture = Fixture::start(&format!("http://{}", silent.local_addr().unwrap()), |_| {});
    fixture.push(1);
    let (_request, _) = silent.accept().unwrap();
    assert!(fixture.stop() < STOPPED_WITHIN);
}

#[test]
fn a_certificate_is_trusted_that_the_file_names_and_no_other() {
    let collector = Collector::start().unwrap();
    let folder = self_signed("localhost");
    let port = tls_in_front_of(&collector, &folder);
    let url = format!("https://localhost:{port}");
    // WHEN the system's authorities decide
    let mut untrusted = Fixture::start(&url, |_| {});
    untrusted.push(1);
    untrusted.stop();
    assert_eq!(untrusted.counted(), [0, 1]);
    // WHEN the file does
    let ca_file = Some(folder.join("own.crt"));
    let mut trusted = Fixture::start(&url, |settings| settings.ca_file = ca_file.clone());
    trusted.push(1);
    trusted.stop();
    assert_eq!((trusted.counted(), collector.spans().len()), ([1, 0], 1));
    // WHEN the name is another
    let url = format!("https://127.0.0.1:{port}");
    let mut misnamed = Fixture::start(&url, |settings| settings.ca_file = ca_file);
    misnamed.push(1);
    misnamed.stop();
    assert_eq!(misnamed.counted(), [0, 1]);
}

#[test]
fn a_file_without_certificates_is_refused_at_the_start() {
    let settings = TracingSettings {
        endpoint: Some(Secret::new("https://localhost")),
        ca_file: Some(PathBuf::from("/nowhere/ca.pem")),
        ..TracingSettings::default()
    };
    let refused = SpanExporter::start(&settings, source(), &Arc::new(Metrics::new()));
    let fault = refused.err().unwrap();
    assert_eq!((fault.code, fault.place.as_str()), ("tracing.tls-settings", "tracing.ca_file"));
    assert!(fault.what.contains("/nowhere/ca.pem"), "{fault}");
}

#[test]
fn a_check_says_that_the_collector_was_not_asked_and_warns_of_the_port_of_grpc() {
    let finding = |url: &str| {
        let endpoint = Some(Secret::new(url));
        inspect(&TracingSettings { endpoint, ..TracingSettings::default() }).unwrap()
    };
    let found = finding("http://localhost:4318");
    let text = "spans are to go to http://localhost:4318/v1/traces (not tried)";
    assert_eq!(found, Finding::ok("tracing", text));
    let found = finding("http://localhost:4317");
    assert!(found.is_warning() && found.text.ends_with("not supported: use 4318"), "{found:?}");
}

/// Ends TLS in front of the collector for as long as the test process lives; returns the port.
fn tls_in_front_of(collector: &Collector, folder: &std::path::Path) -> u16 {
    let acceptor = tls_acceptor(folder);
    let address = collector.address();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        runtime::block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((near, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    // A client that does not trust the certificate ends the handshake.
                    let Ok(mut near) = acceptor.accept(near).await else { return };
                    let mut far = tokio::net::TcpStream::connect(address).await.unwrap();
                    tokio::io::copy_bidirectional(&mut near, &mut far).await.ok();
                });
            }
        })
    });
    port
}
