//! Findings about the server alone, judged from facts.

use walrelay_core::outbox::settings::{Messages, OutboxTable};

use super::*;

/// PostgreSQL 19 answers with the level that is in effect.
#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn the_wal_level_that_is_in_effect_counts_where_there_is_one() {
    let (client, settings) = prepared(testing::logical(), "wal_levels").await;
    let sound = report(&client, &settings).await.facts;
    let judged = |level: &str, effective: Option<&str>| {
        let mut facts = sound.clone();
        facts.server.wal_level = level.to_owned();
        facts.server.effective_wal_level = effective.map(str::to_owned);
        let found = crate::doctor::server::judge(&facts, &settings).into_iter();
        let found = found.filter(|finding| finding.topic == "source.wal-level");
        found.map(|finding| (finding.level, finding.text)).next().unwrap()
    };
    assert_eq!(judged("logical", None), (Level::Ok, "wal_level is logical".to_owned()));
    assert_eq!(judged("replica", None).0, Level::Fail);
    // GIVEN 19 THEN replica is enough, with and without a slot that has raised the level
    let (level, text) = judged("replica", Some("replica"));
    assert_eq!(level, Level::Ok);
    assert!(text.contains("first logical slot raises"), "{text}");
    let (level, text) = judged("replica", Some("logical"));
    assert_eq!(level, Level::Ok);
    assert!(text.contains("effective_wal_level logical"), "{text}");
    assert_eq!(judged("minimal", Some("minimal")).0, Level::Fail);
}

/// Postgres converts the values of columns, and no logical messages.
#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn an_encoding_matters_where_logical_messages_are_read() {
    let (client, settings) = prepared(testing::logical(), "encodings").await;
    let mut facts = report(&client, &settings).await.facts;
    let mut judged = |encoding: &str, settings: &SourceSettings| {
        facts.server.encoding = encoding.to_owned();
        SourceReport { findings: judge(&facts, settings), facts: facts.clone() }
    };
    let OutboxTable { columns, route, .. } = OutboxTable::default();
    let messages = Some(Messages { prefix: "outbox".into(), columns, route });
    let with_messages = SourceSettings { messages, ..settings.clone() };
    let found = judged("LATIN1", &with_messages);
    expect_warning(&found, "source.encoding", "convert_to(…, 'UTF8')");
    let is_warned = |found: SourceReport| {
        found.findings.iter().any(|it| it.topic == "source.encoding" && it.level == Level::Warn)
    };
    assert!(!is_warned(judged("LATIN1", &settings)));
    assert!(!is_warned(judged("UTF8", &with_messages)));
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_failover_slot_that_waits_for_standbys_is_warned_of() {
    let (client, settings) = prepared(testing::logical(), "standby_slots").await;
    let sound = report(&client, &settings).await.facts;
    assert!(sound.server.unread_standby_slots.is_empty());
    let judged = |failover: bool, standby: bool| {
        let row = serde_json::json!({
            "slot_name": "standby_slots", "plugin": "pgoutput", "database": "standby_slots",
            "temporary": false, "active": false, "confirmed_flush_lsn": "0/1",
            "restart_lsn": "0/1", "wal_status": "reserved", "failover": failover,
        });
        judged_with(&sound, &settings, &|facts| {
            facts.slot = Some(serde_json::from_value(row.clone()).unwrap());
            facts.server.unread_standby_slots = vec!["sb1".to_owned(), "sb2".to_owned()];
            facts.server.standby = standby;
        })
    };
    expect_warning(&judged(true, false), "source.standby-slots", "no standby reads (sb1, sb2)");
    // THEN other slots wait for no standby, and a standby sends to nobody
    for found in [judged(false, false), judged(true, true)] {
        assert!(found.findings.iter().all(|it| it.topic != "source.standby-slots"));
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_relay_that_counts_as_a_standby_and_patroni_are_found() {
    let (client, settings) = prepared(testing::logical(), "standbys").await;
    let sound = report(&client, &settings).await.facts;
    let own = &settings.connection.application_name;
    let named = |names: &str| {
        let change = |facts: &mut SourceFacts| facts.server.synchronous_standbys = names.to_owned();
        let found = judged_with(&sound, &settings, &change).findings.into_iter();
        found.filter(|it| it.topic == "source.synchronous").map(|it| it.level).next()
    };
    for names in ["*", "ANY 1 (*)", &format!("FIRST 2 (s1, \"{own}\")"), &own.to_uppercase()] {
        assert_eq!(named(names), Some(Level::Warn), "{names}");
    }
    assert_eq!(named(&format!("FIRST 1 (\t{own}\n)")), Some(Level::Warn));
    for names in ["", "s1, s2", &format!("\"a, {own}\""), &format!("ANY 1 (s1, {own}2)")] {
        assert_eq!(named(names), None, "{names}");
    }
    let found = judged_with(&sound, &settings, &|facts| facts.server.has_patroni = true);
    expect_warning(&found, "slot.patroni", "ignore_slots");
    client.batch_execute("SET application_name = 'Patroni restapi'").await.unwrap();
    assert!(report(&client, &settings).await.facts.server.has_patroni);
}
