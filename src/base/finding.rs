//! What an inspection of Postgres, of the broker or of this machine found, one line each.
//!
//! An inspection collects all findings and never stops at the first, because a person repairs faster
//! with the whole list. It knows nothing of what is inspected: sources and sinks both make findings.

use serde_json::{Value, json};

use crate::base::error::Fault;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// As it should be.
    Ok,
    /// It works, and deserves a look.
    Warn,
    /// The relay must not start.
    Fail,
}

/// One line of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// Stable name; that of the fault where there is one.
    pub topic: &'static str,
    /// What was found, one line. A warning says how to mend it in the same line.
    pub text: String,
    /// The fault of a finding that fails; it says how to mend it.
    pub fault: Option<Fault>,
}

impl Finding {
    /// As it should be.
    pub fn ok(topic: &'static str, text: impl Into<String>) -> Finding {
        Finding { level: Level::Ok, topic, text: text.into(), fault: None }
    }

    /// Works, and deserves a look.
    pub fn warn(topic: &'static str, text: impl Into<String>) -> Finding {
        Finding { level: Level::Warn, topic, text: text.into(), fault: None }
    }

    /// Must be mended first.
    #[must_use]
    pub fn fail(fault: Fault) -> Finding {
        let text = if fault.place.is_empty() {
            fault.what.clone()
        } else {
            format!("{} ({})", fault.what, fault.place)
        };
        Finding { level: Level::Fail, topic: fault.code, text, fault: Some(fault) }
    }

    /// True for what works, and deserves a look.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        self.level == Level::Warn
    }

    /// The finding for scripts.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let level = match self.level {
            Level::Ok => "ok",
            Level::Warn => "warn",
            Level::Fail => "fail",
        };
        let mut value = json!({ "level": level, "topic": self.topic, "text": self.text });
        if let Some(fault) = &self.fault {
            value["mend"] = json!(fault.mend);
            value["exit"] = json!(fault.exit as u8);
        }
        value
    }
}

/// The faults among findings, in their order. Without one, nothing must be mended.
pub fn faults(findings: &[Finding]) -> impl Iterator<Item = &Fault> {
    findings.iter().filter_map(|finding| finding.fault.as_ref())
}

/// True when nothing must be mended.
#[must_use]
pub fn is_sound(findings: &[Finding]) -> bool {
    faults(findings).next().is_none()
}
