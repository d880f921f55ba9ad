//! Makes the topics of retries and dead letters.

use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::types::RDKafkaErrorCode as Code;

use super::{Kafka, client_error, config, dead_letter_topic, retry_topic};
use crate::{InboxError, Settings};

const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const CREATE_WITHIN: Duration = Duration::from_secs(15);
/// A copy has more headers than its message, so these topics take more than those of messages.
const COPY_BYTES_MAX: &str = "10485760";
/// A copy that is gone before it was handled would leave its key waiting for ever. 90 days.
const RETRY_RETENTION_MS: &str = "7776000000";
/// Dead letters are kept until somebody has dealt with them.
const DEAD_LETTER_RETENTION_MS: &str = "-1";

pub(super) async fn create_topics(kafka: &Kafka, settings: &Settings) -> Result<(), InboxError> {
    let admin: AdminClient<DefaultClientContext> = config::admin(kafka, settings)
        .create()
        .map_err(|error| client_error("the properties of Kafka", error))?;
    // All of the user's topics must exist: the relay's `init` makes them. A retry topic gets as many
    // partitions as the first of them.
    let topics = kafka.topics.clone();
    let counting = tokio::task::spawn_blocking(move || {
        let counts = topics.iter().map(|topic| count_partitions(&admin, topic));
        let counts = counts.collect::<Result<Vec<i32>, InboxError>>()?;
        Ok::<_, InboxError>((admin, counts[0]))
    });
    let unasked = |error| InboxError::broker("asking for the topics", error);
    let (admin, partitions) = counting.await.map_err(unasked)??;
    let retries: Vec<String> =
        settings.levels.iter().map(|level| retry_topic(&settings.service, *level)).collect();
    let dead_letters = dead_letter_topic(&settings.service);
    let new = |name, partitions, retention_ms| {
        NewTopic::new(name, partitions, TopicReplication::Fixed(kafka.replication))
            .set("retention.ms", retention_ms)
            // Whatever the cluster's defaults are: nothing goes because there is much of it, or
            // because there is a newer record of its key.
            .set("retention.bytes", "-1")
            .set("cleanup.policy", "delete")
            .set("max.message.bytes", COPY_BYTES_MAX)
    };
    let retries = retries.iter().map(|name| new(name, partitions, RETRY_RETENTION_MS));
    let dead_letters = new(&dead_letters, 1, DEAD_LETTER_RETENTION_MS);
    let topics: Vec<NewTopic<'_>> = retries.chain([dead_letters]).collect();
    let within = Some(CREATE_WITHIN);
    let options = AdminOptions::new().operation_timeout(within).request_timeout(within);
    let created = admin.create_topics(&topics, &options).await;
    for topic in created.map_err(|error| InboxError::broker("creating topics", error))? {
        match topic {
            Ok(_) | Err((_, Code::TopicAlreadyExists)) => {}
            Err((name, code)) => {
                return Err(InboxError::broker(format!("creating topic {name}"), code));
            }
        }
    }
    Ok(())
}

fn count_partitions(
    admin: &AdminClient<DefaultClientContext>,
    topic: &str,
) -> Result<i32, InboxError> {
    let what = || format!("topic {topic}");
    let metadata = admin.inner().fetch_metadata(Some(topic), ANSWER_WITHIN);
    let metadata = metadata.map_err(|error| InboxError::broker(what(), error))?;
    let found = metadata.topics().iter().find(|found| found.name() == topic);
    if let Some(code) = found.and_then(|found| found.error()) {
        return Err(InboxError::broker(what(), Code::from(code)));
    }
    let count = found.map_or(0, |found| found.partitions().len());
    match i32::try_from(count) {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(InboxError::broker(what(), "it has no partitions")),
    }
}
