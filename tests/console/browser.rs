//! Headless Chromium behind chromedriver, over the WebDriver protocol.
//!
//! The protocol is JSON over HTTP, one request at a time, so a few lines serve. What a test waits for is a
//! fact on the page.

use std::cell::RefCell;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use walrelay_harness::free_port;
use walrelay_harness::program::{Launch, Program};

use crate::support::{LIMIT, until, wait_until};

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
    driver: Program,
    /// One connection for all requests: hundreds of short ones would take up the ports that relays ask for.
    stream: RefCell<BufReader<TcpStream>>,
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
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let stream = until("chromedriver", LIMIT, || TcpStream::connect(address).ok());
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut stream = BufReader::new(stream);
        let mut arguments: Vec<String> = QUIET.map(str::to_owned).into();
        arguments.push(format!("--user-data-dir={}", profile.display()));
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let told = exchange(&mut stream, "POST", "/session", &wanted);
        let session = told.as_ref().ok().and_then(|told| told["sessionId"].as_str());
        let Some(session) = session else { panic!("no browser: {told:?}\n{}", driver.tail(30)) };
        let session = session.to_owned();
        let browser = Browser { driver, stream: RefCell::new(stream), session };
        browser.look_at(1280, false);
        browser
    }

    /// A command of the session; panics unless it succeeds.
    #[track_caller]
    fn command(&self, method: &str, path: &str, body: &Value) -> Value {
        let path = format!("/session/{}{path}", self.session);
        let told = exchange(&mut self.stream.borrow_mut(), method, &path, body);
        let told = told.unwrap_or_else(|error| panic!("{path}: {error}\n{}", self.driver.tail(30)));
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
        wait_until(script, || self.run(script) == true);
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
        let path = format!("/session/{}", self.session);
        // The browser ends with the driver at the latest.
        drop(exchange(self.stream.get_mut(), "DELETE", &path, &Value::Null));
    }
}

/// The `value` of the answer.
fn exchange(
    stream: &mut BufReader<TcpStream>,
    method: &str,
    path: &str,
    body: &Value,
) -> io::Result<Value> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    stream.get_mut().write_all(request.as_bytes())?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(bytes) = line.strip_prefix("content-length:") {
            length = bytes.trim().parse().map_err(io::Error::other)?;
        }
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer)?;
    let mut answer: Value = serde_json::from_slice(&answer)?;
    Ok(answer["value"].take())
}
