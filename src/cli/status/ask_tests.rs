//! Relays that answer, something else, and nothing.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

/// A server that gives one answer to every request, or none.
async fn server(answer: Option<String>) -> AskedRelay {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr: SocketAddr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut silent = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _request = stream.read(&mut [0; 4096]).await;
            match &answer {
                Some(answer) => drop(stream.write_all(answer.as_bytes()).await),
                None => silent.push(stream),
            }
        }
    });
    AskedRelay::new(addr.into())
}

fn ok(body: &str) -> Option<String> {
    Some(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
}

fn on_runtime<F: Future>(test: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test)
}

#[test]
fn what_is_no_answer_of_a_relay_is_a_fault_that_says_why() {
    for (answer, code, told) in [
        (ok("no"), "status.not-a-relay", "no JSON"),
        (ok("[1]"), "status.not-a-relay", "no state"),
        (ok("{\"state\": 5}"), "status.not-a-relay", "no state"),
        (ok(&" ".repeat(STATUS_BYTES_MAX + 1)), "status.unreachable", "length limit"),
        (Some("HTTP/1.1 404 No\r\n\r\n".into()), "status.not-a-relay", "it answered 404"),
        (Some("SSH-2.0\r\n".into()), "status.unreachable", "the relay does not answer"),
    ] {
        let relay = on_runtime(async {
            let mut relay = [server(answer).await];
            ask_all(&mut relay, false).await;
            relay.into_iter().next().unwrap()
        });
        let fault = relay.status.as_ref().unwrap_err();
        assert_eq!((fault.code, fault.exit), (code, Exit::Failed), "{fault}");
        assert!(fault.what.contains(told), "{fault}");
        assert!(!relay.is_ready());
        assert_eq!(relay.to_json()["error"]["code"], code);
    }
}

#[test]
fn only_200_is_alive() {
    let stuck = r#"{"live":false,"reasons":[{"code":"loop_stuck","text":"the loop hangs"}]}"#;
    let unavailable = ok(stuck).unwrap().replace("200 OK", "503 Service Unavailable");
    for (answer, starts, ends) in [
        (ok("").unwrap(), "live: http://127.0.0.1:", "\n"),
        (unavailable, "not live: ", ": the loop hangs\n"),
        (
            "HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n".into(),
            "not live: ",
            ": it answered 404\n",
        ),
    ] {
        let (line, alive) =
            on_runtime(async { ask_lives(&[server(Some(answer)).await.url]).await });
        assert_eq!(alive, starts.starts_with("live"));
        assert!(line.starts_with(starts) && line.ends_with(ends), "{line}");
    }
}

#[test]
fn relays_that_are_silent_are_waited_for_together() {
    on_runtime(async {
        let ready = ok("{\"state\": \"streaming\", \"ready\": true, \"n\": 1}");
        let mut relays = [server(None).await, server(ready).await, server(None).await];
        let begun = Instant::now();
        ask_all(&mut relays, true).await;
        assert!(begun.elapsed() < 2 * ANSWER_WITHIN, "{:?}", begun.elapsed());
        let ready: Vec<bool> = relays.iter().map(AskedRelay::is_ready).collect();
        assert_eq!(ready, [false, true, false]);
        let fault = relays[0].status.as_ref().unwrap_err();
        assert!(
            fault.what.contains("no answer within 2 s: the process is stopped, frozen"),
            "{fault}"
        );
        assert!(fault.mend.contains("kill -CONT PID"), "{fault}");
        // THEN the URL stands before what the relay has said
        let json = relays[1].to_json().to_string();
        let url = &relays[1].url;
        assert_eq!(
            json,
            format!("{{\"url\":\"{url}\",\"state\":\"streaming\",\"ready\":true,\"n\":1}}")
        );
    });
}

#[test]
fn the_history_is_asked_for_with_plots_only_and_not_each_second() {
    on_runtime(async {
        let answer = ok("{\"state\": \"streaming\", \"samples\": []}");
        let mut relay = [server(answer).await];
        ask_all(&mut relay, false).await;
        assert_eq!(relay[0].history, Value::Null);
        ask_all(&mut relay, true).await;
        assert!(relay[0].history["samples"].is_array());
        let asked_at = relay[0].history_at;
        ask_all(&mut relay, true).await;
        assert_eq!(relay[0].history_at, asked_at);
    });
}

#[test]
fn a_relay_that_does_not_know_the_name_is_asked_by_its_address() {
    let status = on_runtime(async {
        let listener = TcpListener::bind("localhost:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 4096];
                let read = stream.read(&mut request).await.unwrap();
                let by_address = format!("host: {}", listener.local_addr().unwrap());
                let request = String::from_utf8_lossy(&request[..read]).to_lowercase();
                let misdirected = "HTTP/1.1 421 No\r\n\r\n".to_owned();
                let answer = match request.contains(&by_address) {
                    true => ok("{\"state\": \"streaming\"}").unwrap(),
                    false => misdirected,
                };
                drop(stream.write_all(answer.as_bytes()).await);
            }
        });
        let mut relay = [AskedRelay::new(RelayUrl::parse(&format!("localhost:{port}")).unwrap())];
        ask_all(&mut relay, false).await;
        relay.into_iter().next().unwrap().status
    });
    assert_eq!(status.unwrap()["state"], "streaming");
}
