//! The permissions that a relay needs, for commands: whoever follows a hint shall not give more.

use std::iter;

use walrelay_base::template::Template;
use walrelay_base::text::quoted;
use walrelay_core::dead_letter::writer::DeadLetterAddress;
use walrelay_core::sink::rabbitmq::exchanges::permission_name;

/// Patterns to configure, write and read, as `rabbitmqctl set_permissions` takes them.
pub(super) fn rights(exchange: &Template, dead_letters: &[&DeadLetterAddress]) -> String {
    let (exchanges, queues): (Vec<_>, Vec<_>) =
        dead_letters.iter().map(|it| (it.exchange.as_str(), it.topic.as_str())).unzip();
    let write = match exchange.constant() {
        // Rows may name any exchange.
        None => ".*".to_owned(),
        Some(events) => {
            let names: Vec<&str> =
                iter::once(events).chain(exchanges).map(permission_name).collect();
            pattern(&names)
        }
    };
    format!("'' {} {}", quoted(&write), quoted(&pattern(&queues)))
}

/// A regular expression that matches these names and nothing else.
pub(super) fn pattern(names: &[&str]) -> String {
    let escaped: Vec<String> = names.iter().map(|name| regex_syntax::escape(name)).collect();
    match escaped.as_slice() {
        [] => String::new(),
        [name] => format!("^{name}$"),
        names => format!("^({})$", names.join("|")),
    }
}

#[cfg(test)]
#[path = "rights_tests.rs"]
mod tests;
