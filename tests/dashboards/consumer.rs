//! A consumer that handles some messages, tries others again, and gives the rest up; and its metrics
//! for a Prometheus.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus::{Registry, TextEncoder};
use tokio::runtime::Runtime;
use tokio_postgres::Transaction;
use walrelay_inbox::{Failure, Handler, Inbox, Kafka, Message, Settings};

use crate::support::{Fixture, shared_kafka};

/// Runs until it is dropped.
pub(super) struct ScrapedConsumer {
    pub(super) address: SocketAddr,
    _runtime: Runtime,
}

impl ScrapedConsumer {
    /// Consumes the fixture's topic, in its database.
    pub(super) fn start(site: &Fixture) -> ScrapedConsumer {
        let registry = Registry::new();
        let settings = Settings::new(format!("consumer.{}", site.name), &site.url)
            .levels([std::time::Duration::from_millis(100)])
            .dead_letter_burst(100_000, std::time::Duration::from_secs(60))
            .registry(&registry);
        let kafka = Kafka::new(shared_kafka().bootstrap(), [site.name.clone()]);
        let inbox = Inbox::new(settings, kafka);
        let runtime = Runtime::new().unwrap();
        runtime.block_on(inbox.init()).unwrap();
        runtime.spawn(async move { inbox.run(Turns::default(), std::future::pending()).await });
        ScrapedConsumer { address: serve(registry), _runtime: runtime }
    }
}

/// Answers every request with the metrics.
fn serve(registry: Registry) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let body = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
            let length = body.len();
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\n\
                 content-length: {length}\r\nconnection: close\r\n\r\n"
            );
            // Whoever asks and leaves is no failure of the test.
            let asked = stream.read(&mut [0; 4096]);
            asked.and_then(|_| stream.write_all((head + &body).as_bytes())).ok();
        }
    });
    address
}

/// One message goes well, the next at the second attempt, the next never.
#[derive(Default)]
struct Turns(AtomicU64);

impl Handler for Turns {
    type Error = std::io::Error;

    async fn handle(&self, message: &Message, _: &Transaction<'_>) -> std::io::Result<()> {
        match self.0.fetch_add(1, Ordering::Relaxed) % 3 {
            1 if message.failed_attempts() == 0 => Err(std::io::ErrorKind::TimedOut.into()),
            2 => Err(std::io::ErrorKind::InvalidData.into()),
            _ => Ok(()),
        }
    }

    fn classify(&self, error: &std::io::Error) -> Failure {
        match error.kind() {
            std::io::ErrorKind::InvalidData => Failure::Permanent,
            _ => Failure::Transient,
        }
    }
}
