//! Effects of the orders in the databases of the services: each effect once, each event once, those
//! of an order in their order.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{BILLING, NOTIFICATIONS, ORDERS};
use crate::{HarnessError, Postgres, Result};

/// Orders that are not as they should be are named by their id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Placed, paid and shipped according to the order service.
    pub orders: u64,
    /// Orders that the billing service refuses; each has to be a dead letter.
    pub poison: BTreeSet<String>,
    pub notifications: Consumed,
    pub billing: Consumed,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consumed {
    /// Orders with exactly one effect.
    pub once: u64,
    pub without_effect: BTreeSet<String>,
    pub with_several_effects: BTreeSet<String>,
    /// Effects of orders that nobody has placed.
    pub invented: BTreeSet<String>,
    pub events: u64,
    /// Events that were never handled, as `order/version`.
    pub missing_events: BTreeSet<String>,
    /// Events that were handled more than once.
    pub repeated_events: BTreeSet<String>,
    /// Events that were handled after a later one of their order.
    pub overtaken_events: BTreeSet<String>,
}

impl Effects {
    /// Every order has one notification and one invoice, from events that were each handled once; and
    /// in order but for what was replayed.
    pub fn are_exact(&self) -> bool {
        let is_exact = |consumed: &Consumed| {
            consumed.once == self.orders
                && consumed.without_effect.is_empty()
                && consumed.with_several_effects.is_empty()
                && consumed.invented.is_empty()
                && consumed.missing_events.is_empty()
                && consumed.repeated_events.is_empty()
        };
        let replayed = self.replayed();
        is_exact(&self.notifications)
            && is_exact(&self.billing)
            && self.notifications.overtaken_events.is_empty()
            && self.billing.overtaken_events.is_subset(&replayed)
    }

    /// The events that may be late: first events of orders that are poison.
    fn replayed(&self) -> BTreeSet<String> {
        self.poison.iter().map(|id| format!("{id}/1")).collect()
    }

    /// Something was done twice, too early, or out of nothing: no wait makes up for that.
    pub fn are_wrong_for_good(&self) -> bool {
        let replayed = self.replayed();
        !self.notifications.overtaken_events.is_empty()
            || !self.billing.overtaken_events.is_subset(&replayed)
            || [&self.notifications, &self.billing].iter().any(|consumed| {
                !consumed.with_several_effects.is_empty()
                    || !consumed.invented.is_empty()
                    || !consumed.repeated_events.is_empty()
            })
    }

    /// The same before the replay: what is poison has no invoice, and nothing else is missing.
    pub fn are_exact_but_for_poison(&self) -> bool {
        let mut replayed = self.clone();
        let billing = &mut replayed.billing;
        if billing.without_effect != self.poison || billing.missing_events != self.replayed() {
            return false;
        }
        billing.once += billing.without_effect.len() as u64;
        billing.without_effect.clear();
        billing.missing_events.clear();
        replayed.are_exact()
    }
}

/// Reads and compares all of it.
pub fn effects(postgres: &Postgres) -> Result<Effects> {
    let orders = pairs(postgres, ORDERS, "select order_id, version from orders")?;
    let poison =
        pairs(postgres, ORDERS, "select order_id, 0 from orders where payment = 'poison'")?;
    Ok(Effects {
        orders: orders.len() as u64,
        poison: poison.into_iter().map(|(id, _)| id).collect(),
        notifications: consumed(postgres, &orders, NOTIFICATIONS, "notifications")?,
        billing: consumed(postgres, &orders, BILLING, "invoices")?,
    })
}

fn consumed(
    postgres: &Postgres,
    orders: &[(String, u64)],
    database: &str,
    table: &str,
) -> Result<Consumed> {
    let sql = format!("select order_id, count(*) from {table} group by order_id");
    let effects: BTreeMap<String, u64> = pairs(postgres, database, &sql)?.into_iter().collect();
    let sql = "select order_id, version from handled_events order by position";
    let handled = pairs(postgres, database, sql)?;
    Ok(compare(orders, &effects, &handled))
}

fn compare(
    orders: &[(String, u64)],
    effects: &BTreeMap<String, u64>,
    handled: &[(String, u64)],
) -> Consumed {
    let mut found = Consumed { events: handled.len() as u64, ..Consumed::default() };
    let known: BTreeSet<&str> = orders.iter().map(|(id, _)| id.as_str()).collect();
    found.invented = effects.keys().filter(|id| !known.contains(id.as_str())).cloned().collect();
    let mut seen: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    for (id, version) in handled {
        let before = seen.entry(id).or_default();
        let event = format!("{id}/{version}");
        if before.last().is_some_and(|last| last > version) {
            found.overtaken_events.insert(event.clone());
        }
        if !before.insert(*version) {
            found.repeated_events.insert(event);
        }
    }
    for (id, last) in orders {
        match effects.get(id) {
            None => drop(found.without_effect.insert(id.clone())),
            Some(1) => found.once += 1,
            Some(_) => drop(found.with_several_effects.insert(id.clone())),
        }
        let handled = seen.get(id.as_str());
        let missing = (1..=*last).filter(|version| !handled.is_some_and(|it| it.contains(version)));
        found.missing_events.extend(missing.map(|version| format!("{id}/{version}")));
    }
    found
}

/// Rows of a text and a number.
fn pairs(postgres: &Postgres, database: &str, sql: &str) -> Result<Vec<(String, u64)>> {
    let text = postgres.sql(database, sql)?;
    let pair = |line: &str| {
        let (id, number) = line.rsplit_once('|')?;
        Some((id.to_owned(), number.parse().ok()?))
    };
    let rows = text.lines().map(|line| {
        pair(line).ok_or_else(|| HarnessError::Other(format!("{sql}: {line} is not understood")))
    });
    rows.collect()
}

impl fmt::Display for Effects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  orders                     {}", self.orders)?;
        let services = [("notification", &self.notifications), ("invoice", &self.billing)];
        for (name, consumed) in services {
            writeln!(f, "  with exactly one {name:<13}{}", consumed.once)?;
            writeln!(f, "    events handled           {}", consumed.events)?;
            let wrong = [
                ("without one", &consumed.without_effect),
                ("with several", &consumed.with_several_effects),
                ("of unknown orders", &consumed.invented),
                ("events not handled", &consumed.missing_events),
                ("events handled twice", &consumed.repeated_events),
                ("events overtaken", &consumed.overtaken_events),
            ];
            for (what, ids) in wrong.into_iter().filter(|(_, ids)| !ids.is_empty()) {
                let first: Vec<&str> = ids.iter().take(5).map(String::as_str).collect();
                writeln!(f, "    {what:<25}{} ({} …)", ids.len(), first.join(", "))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: &str, number: u64) -> (String, u64) {
        (id.to_owned(), number)
    }

    #[test]
    fn what_is_wrong_with_an_order_is_found() {
        // GIVEN orders that are well, lost, doubled, and out of order
        let orders = ["well", "lost", "twice", "late"].map(|id| row(id, 2));
        let effects = [row("well", 1), row("twice", 2), row("late", 1), row("ghost", 1)].into();
        let handled = [
            row("well", 1),
            row("late", 2),
            row("twice", 1),
            row("well", 2),
            row("twice", 2),
            row("twice", 2),
            row("late", 1),
        ];
        // WHEN they are compared
        let found = compare(&orders, &effects, &handled);
        // THEN each is named
        let set = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(found.once, 2);
        assert_eq!(found.without_effect, set(&["lost"]));
        assert_eq!(found.with_several_effects, set(&["twice"]));
        assert_eq!(found.invented, set(&["ghost"]));
        assert_eq!(found.missing_events, set(&["lost/1", "lost/2"]));
        assert_eq!(found.repeated_events, set(&["twice/2"]));
        assert_eq!(found.overtaken_events, set(&["late/1"]));
    }

    #[test]
    fn poison_may_be_late_and_nothing_else() {
        let consumed = Consumed { once: 2, ..Consumed::default() };
        let poison: BTreeSet<String> = ["p".to_owned()].into();
        let mut effects = Effects {
            orders: 2,
            poison: poison.clone(),
            notifications: consumed.clone(),
            billing: consumed,
        };
        assert!(effects.are_exact() && !effects.are_exact_but_for_poison());
        effects.billing.overtaken_events = ["p/1".to_owned()].into();
        assert!(effects.are_exact());
        effects.billing.overtaken_events.insert("q/1".to_owned());
        assert!(!effects.are_exact() && effects.are_wrong_for_good());
        effects.billing.overtaken_events.clear();
        assert!(effects.are_exact() && !effects.are_wrong_for_good());
        effects.billing.repeated_events = ["p/1".to_owned()].into();
        assert!(!effects.are_exact() && effects.are_wrong_for_good());
        effects.billing = Consumed {
            once: 1,
            without_effect: poison,
            missing_events: ["p/1".to_owned()].into(),
            ..Consumed::default()
        };
        assert!(effects.are_exact_but_for_poison() && !effects.are_exact());
    }
}
