//! A finding of an inspection of Postgres, of the broker or of this machine. An inspection never
//! stops at the first problem, so that all of them are reported at once.

use serde_json::{Value, json};

use crate::base::error::Fault;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Ok,
    /// The relay can start, but the user should look at it.
    Warn,
    /// The relay must not start.
    Fail,
}

/// One line of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub level: Level,
    /// Stable name; the code of the fault, if there is one.
    pub topic: &'static str,
    /// One line; that of a warning also says how to mend it.
    pub text: String,
    /// For [`Level::Fail`].
    pub fault: Option<Fault>,
}

impl Finding {
    pub fn ok(topic: &'static str, text: impl Into<String>) -> Finding {
        Finding { level: Level::Ok, topic, text: text.into(), fault: None }
    }

    pub fn warn(topic: &'static str, text: impl Into<String>) -> Finding {
        Finding { level: Level::Warn, topic, text: text.into(), fault: None }
    }

    pub fn fail(fault: Fault) -> Finding {
        let text = if fault.place.is_empty() {
            fault.what.clone()
        } else {
            format!("{} ({})", fault.what, fault.place)
        };
        Finding { level: Level::Fail, topic: fault.code, text, fault: Some(fault) }
    }

    pub fn is_warning(&self) -> bool {
        self.level == Level::Warn
    }

    pub fn to_json(&self) -> Value {
        let level = match self.level {
            Level::Ok => "ok",
            Level::Warn => "warn",
            Level::Fail => "fail",
        };
        let mut value = json!({ "level": level, "topic": self.topic, "text": self.text });
        if let Some(fault) = &self.fault {
            value["help"] = json!(fault.mend);
            value["exit"] = json!(fault.exit as u8);
        }
        value
    }
}

pub fn faults(findings: &[Finding]) -> impl Iterator<Item = &Fault> {
    findings.iter().filter_map(|finding| finding.fault.as_ref())
}

pub fn is_sound(findings: &[Finding]) -> bool {
    faults(findings).next().is_none()
}
