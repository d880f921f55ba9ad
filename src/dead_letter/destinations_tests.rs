use super::*;

fn destinations(exchange: Option<&str>, topic: &str) -> Destinations {
    let template = |text: &str| Template::parse(text).unwrap();
    Destinations { routes: vec![(exchange.map(template), template(topic))] }
}

#[test]
fn a_route_leads_to_what_its_templates_can_become() {
    let kafka = destinations(None, "outbox.event.${type}");
    assert!(kafka.include("", "outbox.event.order", None));
    assert!(!kafka.include("", "payments", None));
    assert!(!kafka.include("amq.direct", "outbox.event.order", None));
    let rabbitmq = destinations(Some("outbox.events"), "${type}");
    assert!(rabbitmq.include("outbox.events", "order", None));
    // A queue of any name is reached through the default exchange.
    assert!(!rabbitmq.include("", "order", None));
    assert!(!rabbitmq.include("billing", "order", None));
    // The exchange of the consumer whose dead letters these are leads to it alone.
    assert!(rabbitmq.include("billing", "order", Some("billing")));
    assert!(!kafka.include("", "payments", Some("")));
    // Kafka has no exchanges: the name says nothing of the topic.
    assert!(!kafka.include("billing", "payments", Some("billing")));
}
