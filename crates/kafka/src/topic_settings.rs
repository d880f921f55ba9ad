//! Effects of topic settings: a topic may refuse records for their size or for the time of their publish,
//! delete them too early, or confirm them before there is a second copy.

use std::time::Duration;

use walrelay_core::sink::kafka::fault::{LETTER_BYTES_MIN, limit_command};

use super::cluster;
use super::settings::KafkaSettings;
use walrelay_base::figures::{counted, duration};
use walrelay_base::finding::Finding;

/// Most of the difference between two clocks that are set by NTP.
const CLOCKS_MS: i64 = 10_000;
/// The longest that an event in flight waits in the client while no broker answers, with the time
/// of its publish.
const WAITS_MS: i64 = 600_000;
const WITHIN: Duration = Duration::from_secs(5);

/// The settings of a topic, as far as this login may see them. `None` is unknown.
#[derive(Clone, Copy, Debug, Default)]
struct TopicSettings<'a> {
    /// For commands.
    brokers: &'a str,
    by_append_time: bool,
    before_max_ms: Option<i64>,
    after_max_ms: Option<i64>,
    retention_ms: Option<i64>,
    retention_bytes: Option<i64>,
    cleanup_policy: Option<&'a str>,
    bytes_max: Option<usize>,
    replicas: Option<usize>,
    in_sync_min: Option<usize>,
}

/// Finds the harmful settings of topics that exist. One of them may be the dead-letter topic.
pub(super) fn findings(
    kafka: &KafkaSettings,
    topics: &[&str],
    dead_letters: Option<&str>,
) -> Vec<Finding> {
    let all: Vec<&str> = topics.iter().copied().chain(dead_letters).collect();
    if all.is_empty() {
        return Vec::new();
    }
    let client = cluster::admin(kafka).ok();
    let (configs, sees_all) = match cluster::topic_configs(kafka, &all, WITHIN) {
        Ok(read) => read,
        Err(reason) => {
            let text = format!("the settings of topics could not be read: {reason}");
            return vec![Finding::warn("sink", text)];
        }
    };
    let mut found = Vec::new();
    if !sees_all {
        let text = "the settings of topics are not checked where the login may not see them (right DescribeConfigs)";
        found.push(Finding::warn("sink", text));
    }
    for (topic, config) in configs {
        let text = |name: &str| config.get(name).and_then(|entry| entry.value.as_deref());
        let number = |name: &str| text(name)?.parse().ok();
        let settings = TopicSettings {
            brokers: &kafka.brokers,
            by_append_time: text("message.timestamp.type") == Some("LogAppendTime"),
            before_max_ms: number("message.timestamp.before.max.ms"),
            after_max_ms: number("message.timestamp.after.max.ms"),
            retention_ms: number("retention.ms"),
            retention_bytes: number("retention.bytes"),
            cleanup_policy: text("cleanup.policy"),
            bytes_max: text("max.message.bytes").and_then(|number| number.parse().ok()),
            replicas: client
                .as_ref()
                .and_then(|(client, _)| cluster::replicas(client, &topic, WITHIN)),
            in_sync_min: text("min.insync.replicas").and_then(|number| number.parse().ok()),
        };
        found.extend(judge(&topic, settings, dead_letters == Some(topic.as_str())));
    }
    found
}

fn judge(topic: &str, settings: TopicSettings<'_>, is_of_dead_letters: bool) -> Vec<Finding> {
    let TopicSettings { by_append_time, before_max_ms, after_max_ms, retention_ms, .. } = settings;
    let shorter = |limit: Option<i64>, than: i64| limit.filter(|ms| (0..than).contains(ms));
    let mut texts = Vec::new();
    // With the broker's time none is refused.
    if let Some(ms) = shorter(after_max_ms, CLOCKS_MS).filter(|_| !by_append_time) {
        texts.push(format!(
            "topic {topic} refuses records whose time is more than {ms} ms ahead of the broker's clock (message.timestamp.after.max.ms), and its events wait while the clock of this host is: raise it, or keep both clocks together"
        ));
    }
    if let Some(ms) = shorter(before_max_ms, WAITS_MS).filter(|_| !by_append_time) {
        texts.push(format!(
            "topic {topic} refuses records that are older than {ms} ms (message.timestamp.before.max.ms): what has waited longer in the client is refused, and sent again with a new time; raise it"
        ));
    }
    texts.extend(copies(topic, &settings));
    if is_of_dead_letters {
        texts.extend(lost_dead_letters(topic, &settings));
        texts.extend(refused_dead_letters(topic, &settings));
    } else if let Some(ms) = shorter(retention_ms, WAITS_MS) {
        let kept = duration(u64::try_from(ms / 1000).unwrap_or_default());
        texts.push(format!(
            "topic {topic} keeps records for {kept} after their publish (retention.ms): consumers that are away longer lose them, and so does what has waited longer in the client for an unreachable broker"
        ));
    }
    texts.into_iter().map(|text| Finding::warn("sink", text)).collect()
}

/// How many copies of a record there must be before the broker confirms it. A topic of one replica has
/// one by choice.
fn copies(topic: &str, settings: &TopicSettings<'_>) -> Option<String> {
    let mend = format!(
        "kafka-configs.sh --bootstrap-server {} --alter --entity-type topics --entity-name {topic} --add-config min.insync.replicas=",
        settings.brokers
    );
    match (settings.replicas?, settings.in_sync_min?) {
        (replicas, min) if min > replicas => Some(format!(
            "topic {topic} has {}, and min.insync.replicas is {min}: Kafka before 3.7 confirms no record there; {mend}{replicas}",
            counted(replicas, "replica")
        )),
        (2.., 1) => Some(format!(
            "topic {topic} confirms a record that only the leader has, while its other replicas are behind (min.insync.replicas = 1): if the leader is lost then, so is the event; {mend}2"
        )),
        _ => None,
    }
}

/// How the broker deletes dead letters that nobody has dealt with.
fn lost_dead_letters(topic: &str, settings: &TopicSettings<'_>) -> Option<String> {
    let TopicSettings { brokers, retention_ms, retention_bytes, cleanup_policy, .. } = *settings;
    let limited = |limit: Option<i64>| limit.is_some_and(|limit| limit >= 0);
    let deletes = cleanup_policy.is_none_or(|policy| policy.contains("delete"));
    let compacts = cleanup_policy.is_some_and(|policy| policy.contains("compact"));
    let reason = match (deletes, retention_ms, retention_bytes) {
        _ if compacts => "cleanup.policy = compact removes all but the last of a key".to_owned(),
        (true, Some(ms), _) if ms >= 0 => format!("retention.ms = {ms} deletes them"),
        (true, _, bytes) if limited(bytes) => "retention.bytes deletes the oldest".to_owned(),
        _ => return None,
    };
    Some(format!(
        "the dead-letter topic {topic} loses dead letters that nobody has dealt with: {reason}; kafka-configs.sh --bootstrap-server {brokers} --alter --entity-type topics --entity-name {topic} --add-config retention.ms=-1,retention.bytes=-1,cleanup.policy=delete"
    ))
}

/// How the broker refuses dead letters even if they are cut.
fn refused_dead_letters(topic: &str, settings: &TopicSettings<'_>) -> Option<String> {
    let bytes_max = settings.bytes_max.filter(|bytes_max| *bytes_max < LETTER_BYTES_MIN)?;
    Some(format!(
        "the dead-letter topic {topic} takes records of {bytes_max} bytes at most (max.message.bytes), and a dead letter may have {LETTER_BYTES_MIN} bytes: the first one that is refused stops the relay; {}",
        limit_command(topic, settings.brokers)
    ))
}

#[cfg(test)]
#[path = "topic_settings_tests.rs"]
mod tests;
