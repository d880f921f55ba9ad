//! The span of a message: `SERVICE process`, a child of the span that published the message.
//!
//! Without the feature `otel` there is none, and this costs nothing.

#[cfg(not(feature = "otel"))]
pub(crate) use off::{MessageSpan, Tracing};
#[cfg(feature = "otel")]
pub(crate) use on::{MessageSpan, Tracing};

#[cfg(not(feature = "otel"))]
mod off {
    use crate::decision::Outcome;
    use crate::{Message, Settings};

    pub(crate) struct Tracing;

    pub(crate) struct MessageSpan;

    impl Tracing {
        pub(crate) fn new(_settings: &Settings, _system: &'static str) -> Tracing {
            Tracing
        }

        pub(crate) fn begin(&self, _message: &mut Message) -> MessageSpan {
            MessageSpan
        }
    }

    impl MessageSpan {
        pub(crate) async fn hold<F: Future>(&self, handler: F) -> F::Output {
            handler.await
        }

        pub(crate) fn failed(&self, _reason: &str) {}

        pub(crate) fn end(self, _outcome: Option<Outcome>, _attempts: u32) {}
    }
}

#[cfg(feature = "otel")]
mod on {
    use std::sync::Arc;

    use opentelemetry::global::{self, BoxedTracer};
    use opentelemetry::trace::{
        FutureExt as _, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags,
        TraceId, TraceState, Tracer as _,
    };
    use opentelemetry::{Context, KeyValue};

    use crate::decision::Outcome;
    use crate::{Message, Settings};

    pub(crate) struct Tracing {
        tracer: Arc<BoxedTracer>,
        name: String,
        system: &'static str,
    }

    pub(crate) struct MessageSpan(Context);

    impl Tracing {
        pub(crate) fn new(settings: &Settings, system: &'static str) -> Tracing {
            let global = || Arc::new(global::tracer("walrelay-inbox"));
            Tracing {
                tracer: settings.tracer.clone().unwrap_or_else(global),
                name: format!("{} process", settings.service),
                system,
            }
        }

        pub(crate) fn begin(&self, message: &mut Message) -> MessageSpan {
            let parent = message.header("traceparent").and_then(|text| {
                let state = message.header("tracestate").unwrap_or_default();
                parse(text, state)
            });
            let parent = match parent {
                Some(parent) => Context::new().with_remote_span_context(parent),
                None => Context::new(),
            };
            let builder = self
                .tracer
                .span_builder(self.name.clone())
                .with_kind(SpanKind::Consumer)
                .with_attributes([
                    KeyValue::new("messaging.system", self.system),
                    KeyValue::new("messaging.operation.type", "process"),
                    KeyValue::new("messaging.destination.name", message.topic().to_owned()),
                    KeyValue::new("messaging.message.id", message.id().to_owned()),
                ]);
            let span = self.tracer.build_with_context(builder, &parent);
            let context = parent.with_span(span);
            message.context = context.clone();
            MessageSpan(context)
        }
    }

    impl MessageSpan {
        /// Runs the handler inside the span.
        pub(crate) async fn hold<F: Future>(&self, handler: F) -> F::Output {
            handler.with_context(self.0.clone()).await
        }

        pub(crate) fn failed(&self, reason: &str) {
            self.0.span().set_status(Status::error(reason.to_owned()));
        }

        /// `outcome` is none where the message was given up and will be delivered again.
        pub(crate) fn end(self, outcome: Option<Outcome>, attempts: u32) {
            let outcome = outcome.map_or("given_up", Outcome::name);
            let span = self.0.span();
            span.set_attribute(KeyValue::new("consumer.outcome", outcome));
            span.set_attribute(KeyValue::new("consumer.retry_count", i64::from(attempts)));
            span.end();
        }
    }

    /// <https://www.w3.org/TR/trace-context-2/#traceparent-header>; a later version may append
    /// fields.
    fn parse(text: &str, state: &str) -> Option<SpanContext> {
        let mut parts = text.split('-');
        let [version, trace, span, flags] = [(); 4].map(|()| parts.next().unwrap_or_default());
        let is_hex = |part: &str, digits: usize| {
            let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            part.len() == digits && part.bytes().all(is_digit)
        };
        let is_sound = is_hex(version, 2)
            && version != "ff"
            && (version != "00" || parts.next().is_none())
            && is_hex(trace, 32)
            && is_hex(span, 16)
            && is_hex(flags, 2);
        let context = SpanContext::new(
            TraceId::from_hex(trace).ok().filter(|_| is_sound)?,
            SpanId::from_hex(span).ok()?,
            TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED,
            true,
            state.parse().unwrap_or(TraceState::NONE),
        );
        context.is_valid().then_some(context)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        const SOUND: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

        #[test]
        fn a_trace_context_is_read_or_ignored() {
            let context = parse(SOUND, "").unwrap();
            assert_eq!(context.trace_id().to_string(), &SOUND[3..35]);
            assert!(context.is_sampled() && context.is_remote());
            assert!(parse(&SOUND.replacen("00-", "01-", 1), "").is_some(), "a later version");
            for wrong in [
                "",
                "00",
                &SOUND[..54],
                &SOUND.to_uppercase(),
                &SOUND.replacen("00-", "ff-", 1),
                &format!("{SOUND}-x"),
                "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            ] {
                assert!(parse(wrong, "").is_none(), "{wrong}");
            }
        }
    }
}
