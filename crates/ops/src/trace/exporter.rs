//! The thread that sends finished spans to the collector, in batches.
//!
//! A batch is sent again until the collector has taken or refused it, with longer and longer pauses.
//! Meanwhile the queue fills, and what no longer fits is dropped: so a collector that is away costs
//! neither memory nor time of the data thread. A relay that stops sends what is left within a second.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::body::Bytes;
use rustls::ClientConfig;
use tokio::time::{sleep, timeout};

use super::endpoint::{OtlpEndpoint, parse_headers};
use super::event_spans::EventSpans;
use super::http::{OtlpAnswer, OtlpClient};
use super::otlp::{SpanSource, rejected_spans};
use super::queue::{BATCH_SPANS_MAX, SpanQueue};
use super::settings::TracingSettings;
use super::span::FinishedSpan;
use crate::metrics::Metrics;
use walrelay_base::backoff::Backoff;
use walrelay_base::error::{Exit, Fault};
use walrelay_base::finding::Finding;
use walrelay_base::random;
use walrelay_base::secret::Secret;
use walrelay_base::tls::{self, PemFile, RootsVerifier, TlsError};
use walrelay_base::{host, http, runtime};

/// Collectors usually take OTLP over gRPC here.
const GRPC_PORT: u16 = 4317;
/// A batch that is not full waits so long for more.
const BATCH_WITHIN: Duration = Duration::from_secs(1);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// A relay that stops waits so long for the last spans to be taken.
const FLUSHED_WITHIN: Duration = Duration::from_secs(1);
const BACKOFF_BASE: Duration = Duration::from_secs(1);
const BACKOFF_CAP: Duration = Duration::from_secs(30);
/// Full jitter may draw a pause that is hardly one.
const PAUSE_MIN: Duration = Duration::from_millis(200);
/// The collector may ask for a longer pause.
const PAUSE_MAX: Duration = Duration::from_secs(120);

/// The exporter, for as long as the relay runs.
pub struct SpanExporter {
    queue: Arc<SpanQueue>,
    thread: JoinHandle<()>,
}

impl SpanExporter {
    /// Starts the exporter if there is an endpoint. Returns what makes its spans, too.
    pub fn start(
        settings: &TracingSettings,
        source: SpanSource,
        metrics: &Arc<Metrics>,
    ) -> Result<(Option<SpanExporter>, EventSpans), Fault> {
        let url = settings.endpoint.as_ref().filter(|_| cfg!(feature = "otlp"));
        let Some(url) = url else { return Ok((None, EventSpans::default())) };
        let client = client(settings, url)?;
        let queue = Arc::new(SpanQueue::new(Arc::clone(metrics)));
        let exporting = Exporting {
            source,
            client,
            queue: Arc::clone(&queue),
            batch: Vec::new(),
            backoff: random::backoff(BACKOFF_BASE, BACKOFF_CAP),
            failing: false,
            metrics: Arc::clone(metrics),
        };
        let runtime = runtime::current_thread()?;
        let thread = runtime::spawn("span-exporter", move || {
            runtime.block_on(exporting.until_closed());
            // Not dropped: that would wait for a name that is being resolved.
            runtime.shutdown_background();
        })?;
        let to = Arc::clone(&queue);
        let spans = EventSpans::new(
            settings.sample_ratio,
            Box::new(move |span| to.push(span)),
            random::seed(),
        );
        Ok((Some(SpanExporter { queue, thread }), spans))
    }

    /// Sends what is left.
    pub fn stop(self) {
        self.queue.close();
        // A panic was logged by the thread; there is nothing left to be done.
        let _ended = self.thread.join().is_ok();
    }
}

/// Checks, for `check`, what [`SpanExporter::start`] needs. The collector is not asked: a relay starts
/// without it.
pub fn inspect(settings: &TracingSettings) -> Option<Finding> {
    let client = client(settings, settings.endpoint.as_ref()?);
    Some(match client {
        Ok(OtlpClient { endpoint, headers, .. })
            if !headers.is_empty() && !endpoint.tls && !host::is_own(&endpoint.host) =>
        {
            Finding::warn(
                "tracing.no-tls",
                format!(
                    "spans go to {endpoint}, and tracing.headers with them can be read on the way; write https:// in tracing.endpoint"
                ),
            )
        }
        Ok(OtlpClient { endpoint, .. }) if endpoint.port == GRPC_PORT => Finding::warn(
            "tracing",
            format!(
                "spans go to {endpoint}; port {GRPC_PORT} is usually OTLP over gRPC, which is not supported: use 4318"
            ),
        ),
        Ok(OtlpClient { endpoint, .. }) => {
            Finding::ok("tracing", format!("spans are to go to {endpoint} (not tried)"))
        }
        Err(fault) => Finding::fail(fault),
    })
}

fn client(settings: &TracingSettings, url: &Secret) -> Result<OtlpClient, Fault> {
    let invalid = |code, key: &str, what: &str| {
        Fault::new(Exit::Usage, code, what, key, format!("correct {key}"))
    };
    let bad_value = "config.bad-value";
    let endpoint = OtlpEndpoint::parse(url);
    let endpoint = endpoint.map_err(|what| invalid(bad_value, "tracing.endpoint", what))?;
    let headers = settings.headers.as_ref().map(parse_headers).transpose();
    let headers = headers.map_err(|what| invalid(bad_value, "tracing.headers", &what))?;
    let tls = endpoint.tls.then(|| client_config(settings)).transpose();
    // As other files of certificates, it may be written after the relay was started.
    let unread = |error: TlsError| Fault {
        exit: Exit::Failed,
        ..invalid("tracing.tls-settings", "tracing.ca_file", &error.to_string())
    };
    let tls = tls.map_err(unread)?;
    let (headers, headers_from) = (headers.unwrap_or_default(), settings.headers.clone());
    Ok(OtlpClient { endpoint, headers, headers_from, tls, connection: None })
}

fn client_config(settings: &TracingSettings) -> Result<Arc<ClientConfig>, TlsError> {
    let path = settings.ca_file.as_deref();
    let roots = tls::roots(PemFile { parameter: "tracing.ca_file", path })?;
    let provider = tls::provider();
    let verifier = Arc::new(RootsVerifier::new(roots, true, &provider)?);
    tls::client_config(provider, verifier, None)
}

struct Exporting {
    source: SpanSource,
    client: OtlpClient,
    queue: Arc<SpanQueue>,
    /// Taken from the queue, and neither delivered nor dropped.
    batch: Vec<FinishedSpan>,
    backoff: Backoff,
    /// The last request has failed.
    failing: bool,
    metrics: Arc<Metrics>,
}

/// The consequence of a request.
enum Delivery {
    /// The collector has the batch, except so many spans.
    Taken { rejected: u64 },
    /// It will never have it.
    Refused(String),
    /// It may have it later, not before this time.
    Failed(String, Duration),
}

impl Exporting {
    async fn until_closed(mut self) {
        let queue = Arc::clone(&self.queue);
        let late = async {
            queue.closed().await;
            sleep(FLUSHED_WITHIN).await;
        };
        tokio::select! {
            () = self.export() => {}
            () = late => {}
        }
        let left = self.batch.len() + self.queue.len();
        if left > 0 {
            self.metrics.spans_dropped.inc_by(left as u64);
            tracing::warn!(
                code = "trace.unfinished",
                spans = left,
                "the last spans were not exported"
            );
        }
    }

    async fn export(&mut self) {
        loop {
            self.queue.wait(BATCH_WITHIN).await;
            // Read before the queue is emptied: nothing is added after it was closed.
            let is_closed = self.queue.is_closed();
            loop {
                self.queue.take(&mut self.batch);
                if self.batch.is_empty() {
                    break;
                }
                self.deliver().await;
                self.batch.clear();
                if !is_closed && self.queue.len() < BATCH_SPANS_MAX {
                    break;
                }
            }
            if is_closed {
                return;
            }
        }
    }

    /// Sends the batch until the collector has taken or refused it.
    async fn deliver(&mut self) {
        let body = Bytes::from(self.source.encode(&self.batch));
        let spans = self.batch.len() as u64;
        loop {
            match self.send(body.clone()).await {
                Delivery::Taken { rejected } => {
                    let rejected = rejected.min(spans);
                    self.metrics.spans_exported.inc_by(spans - rejected);
                    self.metrics.spans_dropped.inc_by(rejected);
                    return self.delivered(rejected);
                }
                Delivery::Refused(reason) => {
                    self.metrics.spans_dropped.inc_by(spans);
                    return self.warn(&reason, "the collector refuses spans");
                }
                Delivery::Failed(reason, pause) => {
                    self.failing = true;
                    if self.queue.is_closed() {
                        self.metrics.spans_dropped.inc_by(spans);
                        return self.warn(&reason, "spans cannot be exported");
                    }
                    self.warn(&reason, "spans cannot be exported");
                    let drawn = self.backoff.next_delay().max(PAUSE_MIN);
                    let pause = pause.max(drawn).min(PAUSE_MAX);
                    let _closed = timeout(pause, self.queue.closed()).await.is_ok();
                }
            }
        }
    }

    async fn send(&mut self, body: Bytes) -> Delivery {
        let answer = match timeout(ANSWER_WITHIN, self.client.post(body)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Delivery::Failed(http::reason(&error), Duration::ZERO),
            Err(_) => {
                let reason = format!("no answer within {} s", ANSWER_WITHIN.as_secs());
                return Delivery::Failed(reason, Duration::ZERO);
            }
        };
        let OtlpAnswer { status, retry_after, body } = answer;
        match status {
            200..=299 => Delivery::Taken { rejected: rejected_spans(&body) },
            429 | 502..=504 => {
                Delivery::Failed(format!("it answered {status}"), retry_after.unwrap_or_default())
            }
            // The key of the collector was replaced, and then the file was.
            401 | 403 if self.client.renew_headers() => {
                let reason = format!("it answered {status}; tracing.headers were read again");
                Delivery::Failed(reason, Duration::ZERO)
            }
            _ => Delivery::Refused(format!("it answered {status}")),
        }
    }

    fn delivered(&mut self, rejected: u64) {
        self.backoff.succeeded();
        if rejected > 0 {
            self.warn(&format!("it has rejected {rejected} spans"), "the collector refuses spans");
        } else if std::mem::take(&mut self.failing) {
            let dropped = self.metrics.spans_dropped.get();
            tracing::info!(dropped, "spans are exported again");
        }
    }

    fn warn(&self, reason: &str, what: &str) {
        let (endpoint, dropped) = (&self.client.endpoint, self.metrics.spans_dropped.get());
        tracing::warn!(code = "trace.not-exported", %endpoint, error = reason, dropped, "{what}");
    }
}

#[cfg(test)]
#[path = "exporter_tests.rs"]
mod tests;
