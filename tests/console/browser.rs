//! Headless Chromium behind chromedriver, over the WebDriver protocol.
//!
//! The protocol is JSON over HTTP, one request at a time, so a few lines serve. What a test waits for is a
//! fact on the page.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use walrelay_harness::free_port;
use walrelay_harness::program::{Launch, Program};

use crate::support::{LIMIT, until};

const DRIVER: &str = "/usr/bin/chromedriver";
/// The name of an element's id in the protocol.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
const QUIET: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    // The browser ends when the driver does, however that ends.
    "--remote-debugging-pipe",
];

pub(crate) struct Browser {
    _driver: Program,
    address: SocketAddr,
    session: String,
}

impl Browser {
    pub(crate) fn open(name: &str) -> Browser {
        assert!(Path::new(DRIVER).exists(), "{DRIVER} is missing: scripts/setup installs it");
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("console").join(name);
        drop(std::fs::remove_dir_all(&folder));
        let profile = folder.join("profile");
        std::fs::create_dir_all(&profile).unwrap();
        let port = free_port().unwrap();
        let launch = Launch {
            name: "chromedriver".into(),
            program: DRIVER.into(),
            arguments: vec![format!("--port={port}").into()],
            env: Vec::new(),
            folder,
        };
        let driver = Program::start(launch).unwrap();
        let address = ([127, 0, 0, 1], port).into();
        until("chromedriver", LIMIT, || send(address, "GET", "/status", &Value::Null));
        let mut arguments: Vec<String> = QUIET.map(str::to_owned).into();
        arguments.push(format!("--user-data-dir={}", profile.display()));
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let session = send(address, "POST", "/session", &wanted);
        let session = session.unwrap_or_else(|| panic!("no browser\n{}", driver.tail(30)));
        let session = session["sessionId"].as_str().unwrap().to_owned();
        let browser = Browser { _driver: driver, address, session };
        browser.look_at(1280, false);
        browser
    }

    /// A command of the session; panics unless it succeeds.
    #[track_caller]
    fn command(&self, method: &str, path: &str, body: &Value) -> Value {
        let path = format!("/session/{}{path}", self.session);
        let told = send(self.address, method, &path, body);
        let told = told.unwrap_or_else(|| panic!("chromedriver does not answer {path}"));
        assert!(told.get("error").is_none(), "{path}: {told:#}");
        told
    }

    fn devtools(&self, command: &str, parameters: &Value) -> Value {
        let body = json!({ "cmd": command, "params": parameters });
        self.command("POST", "/goog/cdp/execute", &body)
    }

    /// Makes the page so wide, and the person like it dark or light.
    pub(crate) fn look_at(&self, width: u32, dark: bool) {
        let size =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", &size);
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme },
            { "name": "prefers-reduced-motion", "value": "reduce" }]);
        self.devtools("Emulation.setEmulatedMedia", &json!({ "features": features }));
    }

    pub(crate) fn go(&self, url: &str) {
        self.command("POST", "/url", &json!({ "url": url }));
    }

    /// The result of a function body, run in the page.
    #[track_caller]
    pub(crate) fn run(&self, script: &str) -> Value {
        self.command("POST", "/execute/sync", &json!({ "script": script, "args": [] }))
    }

    #[track_caller]
    fn element(&self, css: &str) -> String {
        let found = until(&format!("{css} on the page"), LIMIT, || {
            let found = self.command(
                "POST",
                "/elements",
                &json!({ "using": "css selector", "value": css }),
            );
            found.as_array().unwrap().first().cloned()
        });
        found[ELEMENT].as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub(crate) fn click(&self, css: &str) {
        let element = self.element(css);
        self.command("POST", &format!("/element/{element}/click"), &json!({}));
    }

    /// Replaces what stands in a field.
    #[track_caller]
    pub(crate) fn write(&self, css: &str, text: &str) {
        let element = self.element(css);
        self.command("POST", &format!("/element/{element}/clear"), &json!({}));
        self.command("POST", &format!("/element/{element}/value"), &json!({ "text": text }));
    }

    /// Presses keys where the focus is.
    pub(crate) fn press(&self, keys: &str) {
        let press = |key: char| {
            [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })]
        };
        let actions: Vec<Value> = keys.chars().flat_map(press).collect();
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": actions });
        self.command("POST", "/actions", &json!({ "actions": [keyboard] }));
    }

    /// The text of the first such element as the page has it, seen or not; empty without one.
    #[track_caller]
    pub(crate) fn text(&self, css: &str) -> String {
        let script = format!("return document.querySelector({css:?})?.textContent ?? ''");
        self.run(&script).as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub(crate) fn wait_text(&self, css: &str, wanted: impl Fn(&str) -> bool) -> String {
        let mut last = String::new();
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until(&format!("the text of {css}"), LIMIT, || {
                last = self.text(css);
                wanted(&last).then(|| last.clone())
            })
        }));
        found.unwrap_or_else(|_| panic!("{css} says {last:?}"))
    }

    /// Waits until a function body returns true.
    #[track_caller]
    pub(crate) fn wait(&self, script: &str) {
        until(script, LIMIT, || (self.run(script) == true).then_some(()));
    }

    pub(crate) fn is_seen(&self, css: &str) -> bool {
        self.run(&format!("return document.querySelector({css:?})?.checkVisibility() ?? false"))
            == true
    }

    /// Lines of the browser's console since the last time: scripts, network, and violations of the policy.
    pub(crate) fn complaints(&self) -> Vec<Value> {
        let told = self.command("POST", "/se/log", &json!({ "type": "browser" }));
        told.as_array().unwrap().clone()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        send(self.address, "DELETE", &format!("/session/{}", self.session), &Value::Null);
    }
}

/// The `value` of an answer; none when nobody answers.
fn send(address: SocketAddr, method: &str, path: &str, body: &Value) -> Option<Value> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(60))).ok()?;
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .ok()?;
    // The driver keeps the connection open, whatever it is asked.
    let mut answer = Vec::new();
    let mut piece = [0; 1 << 14];
    loop {
        if let Some(body) = whole_body(&answer) {
            let answer: Value = serde_json::from_slice(body).ok()?;
            return answer.get("value").cloned();
        }
        match stream.read(&mut piece).ok()? {
            0 => return None,
            read => answer.extend_from_slice(&piece[..read]),
        }
    }
}

/// The body of an answer, once all of it is there.
fn whole_body(answer: &[u8]) -> Option<&[u8]> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"))?;
    answer.get(end + 4..)?.get(..length.trim().parse().ok()?)
}
