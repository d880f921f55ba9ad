//! The console in a real browser: headless Chromium, driven by clicks and keys, with a relay behind it.

mod browser;
mod dead_letters;
mod live;
mod look;
mod page;
mod requests;

pub(crate) use browser::Browser;
use serde_json::Value;
use walrelay_harness::BrokerKind;
use walrelay_harness::relay::RelayProcess;

use crate::dead_letters::fixture::DeadLetterFixture;
use crate::support::LIMIT;

const TOKEN: &str = "a-token-for-the-console";

/// A relay with dead letters for two topics, and the console of it in a browser.
struct Console {
    case: DeadLetterFixture,
    relay: RelayProcess,
    browser: Browser,
}

impl Console {
    /// `letters` events of three keys have no route, nor have two of another type.
    fn open(kind: BrokerKind, name: &str, letters: u64) -> Console {
        let (delivery, dead_letter) = ("attempts_max = 1\n", "burst_max = 100000\n");
        let case = DeadLetterFixture::on(kind, name, delivery, dead_letter).with_token(TOKEN);
        let (name, lost, other) = (case.site.name.clone(), case.lost(), case.other());
        let mut relay = case.relay();
        case.insert(&lost, 0..3, 0, letters);
        case.insert(&other, 3..4, letters, 2);
        case.insert(&name, 0..3, letters + 2, 20);
        case.site.wait_confirmed(&mut relay, LIMIT);
        assert_eq!(case.open().len() as u64, letters + 2);
        Console::of(case, relay)
    }

    /// The console of this relay.
    fn of(case: DeadLetterFixture, relay: RelayProcess) -> Console {
        let browser = Browser::open(&case.site.name);
        browser.go(&format!("http://{}/", relay.admin()));
        Console { case, relay, browser }
    }

    fn log_in(&self) {
        self.browser.write("#token", TOKEN);
        self.browser.click("#login button");
        self.browser.wait_text("#letters-count", |text| text.contains("dead letters match"));
    }

    /// Asserts that the browser has complained about no answer but those that the test has
    /// provoked.
    #[track_caller]
    fn assert_no_complaints(&self, provoked: &[&str]) {
        let told = self.browser.complaints();
        let of_ours = |entry: &&Value| {
            let text = entry["message"].as_str().unwrap_or_default();
            !provoked.iter().any(|provoked| text.contains(provoked))
        };
        let told: Vec<&Value> = told.iter().filter(of_ours).collect();
        assert!(told.is_empty(), "{told:#?}");
    }
}

impl DeadLetterFixture {
    /// A second aggregate type whose events have no route.
    fn other(&self) -> String {
        format!("{}.other", self.site.name)
    }
}
