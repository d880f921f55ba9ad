//! Operations of the relay on a cluster besides publishing (creating and deleting topics, reading
//! one), and their faults.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rdkafka::admin::{
    AdminClient, AdminOptions, ConfigResource, NewTopic, OwnedResourceSpecifier, ResourceSpecifier,
    TopicReplication,
};
use rdkafka::client::{Client, DefaultClientContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::metadata::MetadataPartition;
use rdkafka::types::RDKafkaErrorCode as Code;
use rdkafka::{ClientConfig, ClientContext, Offset, TopicPartitionList};
use walrelay_core::sink::kafka::{self, fault};

use super::code::code_of;
use super::settings::KafkaSettings;
use walrelay_base::error::{Exit, Fault};
use walrelay_base::runtime;
use walrelay_sink::broker::NOT_PURGED;

/// How long the cluster may take to create or delete topics.
pub(super) const CHANGE_WITHIN: Duration = Duration::from_secs(15);
/// The properties of the topic of dead letters: they are kept until somebody has dealt with
/// them, whatever the brokers' defaults are.
const KEPT_FOR_EVER: [(&str, &str); 3] =
    [("retention.ms", "-1"), ("retention.bytes", "-1"), ("cleanup.policy", "delete")];
/// How long one look for the leaders of a new topic may take, and how long after it is the next.
const LEADER_ANSWER_WITHIN: Duration = Duration::from_secs(1);
const LEADER_ASK_AFTER: Duration = Duration::from_millis(20);

/// A partition as the cluster's metadata shows it.
pub(super) struct DescribedPartition {
    pub(super) id: i32,
    /// -1 is none.
    pub(super) leader: i32,
    /// All its replicas are in sync.
    pub(super) is_in_sync: bool,
    pub(super) replicas: usize,
}

/// The partitions of a topic.
pub(super) fn partitions<C: ClientContext>(
    client: &Client<C>,
    topic: &str,
    within: Duration,
) -> KafkaResult<Vec<DescribedPartition>> {
    let metadata = client.fetch_metadata(Some(topic), within)?;
    let found = metadata.topics().iter().find(|found| found.name() == topic);
    let partitions = found.map(|found| found.partitions()).unwrap_or_default();
    let error = found.and_then(|found| found.error()).map(Code::from);
    let state = |it: &MetadataPartition| DescribedPartition {
        id: it.id(),
        leader: it.leader(),
        is_in_sync: it.isr().len() == it.replicas().len(),
        replicas: it.replicas().len(),
    };
    match error.or(partitions.is_empty().then_some(Code::UnknownTopicOrPartition)) {
        Some(code) => Err(KafkaError::MetadataFetch(code)),
        None => Ok(partitions.iter().map(state).collect()),
    }
}

/// Waits until every partition of a new topic has a leader, and returns the partitions. The
/// controller answers when it has made the topic, which the brokers learn a little later.
pub(super) fn wait_for_leaders<C: ClientContext>(
    client: &Client<C>,
    settings: &KafkaSettings,
    topic: &str,
) -> KafkaResult<Vec<i32>> {
    let wanted = usize::try_from(settings.partitions).unwrap_or(1).max(1);
    let deadline = Instant::now() + CHANGE_WITHIN;
    leaders_of(wanted, deadline, || partitions(client, topic, LEADER_ANSWER_WITHIN))
}

/// Looks until that many partitions have a leader.
fn leaders_of(
    wanted: usize,
    deadline: Instant,
    mut look: impl FnMut() -> KafkaResult<Vec<DescribedPartition>>,
) -> KafkaResult<Vec<i32>> {
    loop {
        let error = match look() {
            Ok(found) if found.len() >= wanted && found.iter().all(|it| it.leader >= 0) => {
                return Ok(found.into_iter().map(|it| it.id).collect());
            }
            Ok(_) => KafkaError::MetadataFetch(Code::LeaderNotAvailable),
            Err(error) => error,
        };
        if may_not_describe(&error) || Instant::now() >= deadline {
            return Err(error);
        }
        std::thread::sleep(LEADER_ASK_AFTER);
    }
}

fn may_not_describe(error: &KafkaError) -> bool {
    error.rdkafka_error_code() == Some(Code::TopicAuthorizationFailed)
}

/// Creates those of the topics that do not exist, and returns their names once they can be used; a
/// login that may not describe a topic cannot see that. In a dry run the brokers judge the request only.
pub(super) fn create_topics(
    settings: &KafkaSettings,
    topics: &[&str],
    dead_letters: Option<&str>,
    dry_run: bool,
) -> Result<Vec<String>, Fault> {
    let new = |name| {
        let replication = TopicReplication::Fixed(settings.replication);
        NewTopic::new(name, settings.partitions, replication)
    };
    let others = topics.iter().copied().filter(|name| dead_letters != Some(name)).map(new);
    let kept = |topic, (key, value)| NewTopic::set(topic, key, value);
    let dead_letters = dead_letters.map(|name| KEPT_FOR_EVER.into_iter().fold(new(name), kept));
    let topics: Vec<NewTopic<'_>> = others.chain(dead_letters).collect();
    if topics.is_empty() {
        return Ok(Vec::new());
    }
    let refused = |error: KafkaError| {
        let reason = settings.without_secrets(&error.to_string());
        not_created("any topic", &reason, settings, "")
    };
    let (client, options) = admin(settings).map_err(refused)?;
    let options = options.validate_only(dry_run);
    let created = runtime::block_on(client.create_topics(&topics, &options))?.map_err(refused)?;
    let mut names = Vec::new();
    for topic in created {
        match topic {
            Ok(name) => names.push(name),
            Err((_, Code::TopicAlreadyExists)) => {}
            Err((name, code)) => {
                let reason = fault::reason(code_of(code), &name);
                let mend = match code {
                    Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed => format!(
                        "kafka-acls.sh --bootstrap-server {} --add --allow-principal User:… --operation Create --operation Describe --topic {name}",
                        settings.brokers
                    ),
                    Code::InvalidReplicationFactor => {
                        "set sink.kafka.replication to the number of brokers at most, or remove it"
                            .to_owned()
                    }
                    Code::InvalidPartitions => {
                        "set sink.kafka.partitions to what the cluster allows".to_owned()
                    }
                    Code::InvalidConfig | Code::PolicyViolation => format!(
                        "the cluster refuses these partitions, replicas or settings: create the topic in the way that it allows (dead letters want cleanup.policy=delete, retention.ms=-1): kafka-topics.sh --bootstrap-server {} --create --topic {name} --partitions …",
                        settings.brokers
                    ),
                    _ => fault::mend(code_of(code), &name, &settings.tools(), true),
                };
                return Err(not_created(&name, &reason, settings, &mend));
            }
        }
    }
    for name in names.iter().filter(|_| !dry_run) {
        if let Err(error) = wait_for_leaders(client.inner(), settings, name)
            && !may_not_describe(&error)
        {
            return Err(without_leader(settings, name, &error));
        }
    }
    Ok(names)
}

/// The partitions of a topic, each with an offset.
pub(super) fn offset_list(
    topic: &str,
    offsets: impl Iterator<Item = (i32, Offset)>,
) -> KafkaResult<TopicPartitionList> {
    let mut list = TopicPartitionList::new();
    for (id, offset) in offsets {
        list.add_partition_offset(topic, id, offset)?;
    }
    Ok(list)
}

/// Deletes the records before these offsets, by partition.
pub(super) fn delete_records(
    settings: &KafkaSettings,
    topic: &str,
    before: &BTreeMap<i32, i64>,
) -> Result<(), Fault> {
    let refused = |error: KafkaError| {
        let (reason, mend) = match error.rdkafka_error_code() {
            Some(Code::TopicAuthorizationFailed) => (
                "this login has no right to".to_owned(),
                format!(
                    "kafka-acls.sh --bootstrap-server {} --add --allow-principal User:… --operation Delete --topic {topic}",
                    settings.brokers
                ),
            ),
            _ => {
                let reason = settings.without_secrets(&error.to_string());
                (
                    reason,
                    "see the broker's log; the topic's cleanup.policy must be delete".to_owned(),
                )
            }
        };
        let what = format!("records of {topic} cannot be deleted: {reason}");
        Fault::new(Exit::Sink, NOT_PURGED, what, brokers_key(settings), mend)
    };
    let (client, options) = admin(settings).map_err(refused)?;
    let before = before.iter().map(|(id, offset)| (*id, Offset::Offset(*offset)));
    let offsets = offset_list(topic, before).map_err(refused)?;
    let deleted = runtime::block_on(client.delete_records(&offsets, &options))?.map_err(refused)?;
    deleted.elements().iter().try_for_each(|partition| partition.error()).map_err(refused)
}

/// The configurations of those of the topics that this login may see, and whether it may see all; or
/// why none could be read.
pub(super) fn topic_configs(
    settings: &KafkaSettings,
    topics: &[&str],
    within: Duration,
) -> Result<(Vec<(String, ConfigResource)>, bool), String> {
    let unread = |error: KafkaError| settings.without_secrets(&error.to_string());
    let (client, options) = admin(settings).map_err(unread)?;
    let options = options.request_timeout(Some(within));
    let wanted: Vec<_> = topics.iter().map(|topic| ResourceSpecifier::Topic(topic)).collect();
    let described = runtime::block_on(client.describe_configs(&wanted, &options));
    let described = described.map_err(|fault| fault.what)?.map_err(unread)?;
    // The library leaves the error of a topic out, and says that it has no configuration.
    let (seen, unseen): (Vec<ConfigResource>, Vec<_>) =
        described.into_iter().flatten().partition(|resource| !resource.entries.is_empty());
    let named = |found: ConfigResource| match &found.specifier {
        OwnedResourceSpecifier::Topic(topic) => Some((topic.clone(), found)),
        _ => None,
    };
    Ok((seen.into_iter().filter_map(named).collect(), unseen.is_empty()))
}

/// How many replicas each partition of a topic has, at least.
pub(super) fn replicas(
    client: &AdminClient<DefaultClientContext>,
    topic: &str,
    within: Duration,
) -> Option<usize> {
    let partitions = partitions(client.inner(), topic, within).ok()?;
    partitions.iter().map(|partition| partition.replicas).min()
}

pub(super) fn admin(
    settings: &KafkaSettings,
) -> KafkaResult<(AdminClient<DefaultClientContext>, AdminOptions)> {
    // A command that changes topics ends before a login can be rotated.
    let config: ClientConfig = settings.properties_at_start().into_iter().collect();
    let within = Some(CHANGE_WITHIN);
    let options = AdminOptions::new().operation_timeout(within).request_timeout(within);
    Ok((config.create()?, options))
}

/// The fault of a client that librdkafka does not make. That may pass unless a property is refused:
/// somebody may have replaced a certificate, and not yet its key.
pub(super) fn refused_client(settings: &KafkaSettings, error: &KafkaError) -> Fault {
    let as_told = error.to_string();
    let reason = match error {
        KafkaError::ClientConfig(_, reason, ..) | KafkaError::ClientCreation(reason) => reason,
        _ => &as_told,
    };
    let reason = settings.without_secrets(reason);
    let fault = Fault::new(
        Exit::Usage,
        "sink.refused-property",
        format!("librdkafka refuses the configuration: {reason}"),
        "sink.kafka.properties",
        "correct the property; its names and values are those of librdkafka's CONFIGURATION.md",
    );
    match error {
        KafkaError::ClientConfig(..) => fault,
        _ => Fault { exit: Exit::Sink, ..fault.passing() },
    }
}

pub(super) fn not_created(
    topic: &str,
    reason: &str,
    settings: &KafkaSettings,
    mend: &str,
) -> Fault {
    let mend =
        if mend.is_empty() { "start the broker, or correct sink.kafka.brokers" } else { mend };
    let what = format!("cannot create {topic}: {reason}");
    Fault::new(Exit::Sink, "sink.topic-not-made", what, brokers_key(settings), mend)
}

pub(super) fn without_leader(settings: &KafkaSettings, topic: &str, error: &KafkaError) -> Fault {
    let mend = see_topic(settings, topic);
    let what = format!("topic {topic} was created, and cannot be used yet: {error}");
    Fault::new(Exit::Sink, "sink.topic-not-made", what, brokers_key(settings), mend)
}

fn see_topic(settings: &KafkaSettings, topic: &str) -> String {
    format!("see the broker's log, and {}", describe_command(settings, topic))
}

/// The command that shows the leaders and replicas of a topic.
pub(super) fn describe_command(settings: &KafkaSettings, topic: &str) -> String {
    format!("kafka-topics.sh --bootstrap-server {} --describe --topic {topic}", settings.brokers)
}

pub(super) fn brokers_key(settings: &KafkaSettings) -> String {
    format!("sink.kafka.brokers = {:?}", settings.brokers)
}

/// `is_listed` says that `walrelay init` creates the topic with the present configuration.
pub(super) fn topic_unusable(
    code: kafka::Code,
    settings: &KafkaSettings,
    topic: &str,
    is_listed: bool,
) -> Fault {
    let (name, what) = match code {
        kafka::Code::UnknownTopic
        | kafka::Code::UnknownTopicOrPartition
        | kafka::Code::LeaderNotAvailable => {
            ("sink.topic-missing", format!("topic {topic} does not exist"))
        }
        kafka::Code::TopicAuthorizationFailed => {
            ("sink.topic-forbidden", format!("this login may not see topic {topic}"))
        }
        _ => {
            let reason = fault::reason(code, topic);
            ("sink.topic-unusable", format!("topic {topic} cannot be used: {reason}"))
        }
    };
    let place = format!("topic {topic} on {}", settings.brokers);
    let mend = fault::mend(code, topic, &settings.tools(), is_listed);
    Fault::new(Exit::Sink, name, what, place, mend)
}

pub(super) fn dead_letters_unusable(
    code: kafka::Code,
    settings: &KafkaSettings,
    topic: &str,
) -> Fault {
    let KafkaSettings { brokers, partitions, .. } = settings;
    let (name, what, mend) = match code {
        kafka::Code::TopicAuthorizationFailed => (
            "sink.dead-letter-forbidden",
            format!("this login may not use the dead-letter topic {topic}"),
            format!(
                "kafka-acls.sh --bootstrap-server {brokers} --add --allow-principal User:… --operation Write --operation Read --operation Describe --topic {topic}"
            ),
        ),
        kafka::Code::UnknownTopic
        | kafka::Code::UnknownTopicOrPartition
        | kafka::Code::UnknownPartition
        | kafka::Code::LeaderNotAvailable => (
            "sink.dead-letter-missing",
            format!("the dead-letter topic {topic} does not exist"),
            format!(
                "walrelay init, or: kafka-topics.sh --bootstrap-server {brokers} --create --topic {topic} --partitions {partitions}{}",
                KEPT_FOR_EVER.map(|(key, value)| format!(" --config {key}={value}")).concat()
            ),
        ),
        _ => (
            "sink.dead-letter-unusable",
            format!("the dead-letter topic {topic} cannot be used: {code}"),
            see_topic(settings, topic),
        ),
    };
    Fault::new(Exit::Sink, name, what, format!("dead_letter.topic on {brokers}"), mend)
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;
