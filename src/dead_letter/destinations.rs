//! Where the events of a configuration can go. A replay goes nowhere else: whoever may write to the
//! dead-letter topic could otherwise have anything published, to any topic, with the login of the
//! relay.

use crate::base::template::Template;

#[derive(Clone, Debug, Default)]
pub(crate) struct Destinations {
    routes: Vec<(Option<Template>, Template)>,
}

impl Destinations {
    /// Collects the destinations of routes, each with its exchange, where the sink has
    /// exchanges, and its topic.
    pub(crate) fn of(routes: impl Iterator<Item = (Option<Template>, Template)>) -> Destinations {
        Destinations { routes: routes.collect() }
    }

    /// The destinations of a configuration that leads everywhere.
    #[cfg(test)]
    pub(crate) fn anywhere() -> Destinations {
        let any = Template::column("any");
        Destinations { routes: vec![(None, any.clone()), (Some(any.clone()), any)] }
    }

    #[cfg(test)]
    pub(crate) fn to(topic: &str) -> Destinations {
        Destinations { routes: vec![(None, Template::literal(topic))] }
    }

    /// Could an event of the configuration go there? `consumer` is the one whose dead letters are
    /// replayed: in RabbitMQ an exchange of its name leads to it alone.
    pub(crate) fn include(&self, exchange: &str, topic: &str, consumer: Option<&str>) -> bool {
        let leads = |(template, topics): &(Option<Template>, Template)| {
            let is_exchange = match template {
                Some(template) => template.could_become(exchange),
                None => exchange.is_empty(),
            };
            is_exchange && topics.could_become(topic)
        };
        // On a broker without exchanges the name in the dead letter leads nowhere.
        let has_exchanges = self.routes.iter().any(|(template, _)| template.is_some());
        let is_own = has_exchanges && !exchange.is_empty() && consumer == Some(exchange);
        is_own || self.routes.iter().any(leads)
    }
}

#[cfg(test)]
#[path = "destinations_tests.rs"]
mod tests;
