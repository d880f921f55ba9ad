//! A consumer under load that is killed again and again with `kill -9`. It runs in a process of its
//! own: this binary again, with an ignored test that calls [`run`].

use std::process::{Child, Command, Stdio};

use walrelay_harness::kit::{Rng, volume};
use walrelay_inbox::Inbox;

use super::{Calls, Database, Script, log, runtime, until};

const SERVICE: &str = "WALRELAY_INBOX_TEST_SERVICE";
const DATABASE: &str = "WALRELAY_INBOX_TEST_DATABASE";
const BROKER: &str = "WALRELAY_INBOX_TEST_BROKER";
const KEYS: usize = 12;

/// The program of the process: `inbox` gets the service, the URL of the database and the broker.
pub(crate) fn run(inbox: impl FnOnce(&str, &str, &str) -> Inbox) {
    let Some(service) = std::env::var(SERVICE).ok() else { return };
    let (url, broker) = (std::env::var(DATABASE).unwrap(), std::env::var(BROKER).unwrap());
    log();
    // Ends with the starter, too.
    let gone = async {
        let mut nothing = [0];
        let read = tokio::task::spawn_blocking(move || {
            std::io::Read::read(&mut std::io::stdin(), &mut nothing)
        });
        drop(read.await);
    };
    let inbox = inbox(&service, &url, &broker);
    runtime(2).block_on(inbox.run(Script(Calls::new()), gone)).unwrap();
}

/// A consumer in a process of its own, which is killed.
pub(crate) struct KilledConsumer<'a> {
    /// The ignored test.
    pub(crate) test: &'a str,
    pub(crate) service: &'a str,
    pub(crate) database: &'a Database,
    pub(crate) broker: &'a str,
}

/// How many messages of the load there are, and of those that fail for good.
pub(crate) struct Load {
    pub(crate) messages: usize,
    pub(crate) permanent: usize,
}

/// Sends (key, id, value) of messages of which a part fails once or twice, or for good.
pub(crate) fn send_load(send: impl Fn(&str, &str, &str)) -> Load {
    let messages = volume(400, 4_000);
    for number in 0..messages {
        let value = match number % 40 {
            3 => "fail 1",
            17 => "fail 2",
            29 => "permanent",
            _ => "slow 3",
        };
        send(&format!("k{}", number % KEYS), &format!("{number:05}"), value);
    }
    Load { messages, permanent: (0..messages).filter(|number| number % 40 == 29).count() }
}

impl Load {
    pub(crate) fn wanted(&self) -> usize {
        self.messages - self.permanent
    }

    /// Each message was handled once, and each key in order.
    pub(crate) fn assert_handled(&self, database: &Database) {
        assert_eq!(database.handled().len(), self.wanted());
        let distinct = database.number("SELECT count(DISTINCT message_id) FROM handled");
        assert_eq!(distinct, self.wanted() as i64);
        for key in 0..KEYS {
            let of_key = database.handled_of(&format!("k{key}"));
            assert!(of_key.is_sorted(), "{key}: {of_key:?}");
        }
    }
}

impl KilledConsumer<'_> {
    /// Kills it while it works, and returns the last process, which lives and has handled all.
    pub(crate) fn kill_under(&self, load: &Load) -> Child {
        let kills = volume(4, 20);
        let mut rng = Rng::new(7);
        for kill in 1..=kills {
            let mut child = self.start();
            let share = load.wanted() * kill / (kills + 1);
            self.database.wait_handled(share.saturating_sub(rng.below(20) as usize));
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let child = self.start();
        self.database.wait_handled(load.wanted());
        child
    }

    fn start(&self) -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", self.test, "--ignored", "--nocapture"])
            .env(SERVICE, self.service)
            .env(DATABASE, &self.database.url)
            .env(BROKER, self.broker)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }
}

/// Closing its input ends it gracefully.
pub(crate) fn end(mut child: Child) {
    drop(child.stdin.take());
    let ended = until("the child ends", || child.try_wait().unwrap());
    assert!(ended.success());
}
