//! Nodes that let a client in, send heartbeats, and answer nothing after that.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use super::*;
use crate::settings::RabbitLogin;
use crate::uri::RabbitHost;
use walrelay_base::finding::faults;
use walrelay_base::secret::Secret;
use walrelay_sink::UNREACHABLE;
use walrelay_sink::log::SILENT;

const METHOD: u8 = 1;
const HEARTBEAT: u8 = 8;
const FRAME_END: u8 = 0xCE;
const HEARTBEAT_EVERY: Duration = Duration::from_secs(1);

/// The answer of a node to a method with this payload, if it gives one.
type Answer = fn(&[u8]) -> Option<Vec<u8>>;

/// Lets a client in, and opens channels.
fn login(method: &[u8]) -> Option<Vec<u8>> {
    Some(match method {
        [0, 10, 0, 11, ..] => vec![0, 10, 0, 30, 7, 255, 0, 2, 0, 0, 0, 10],
        [0, 10, 0, 40, ..] => vec![0, 10, 0, 41, 0],
        [0, 20, 0, 10, ..] => vec![0, 20, 0, 11, 0, 0, 0, 0],
        _ => return None,
    })
}

/// Also begins to read a queue, and answers questions about it.
fn begin(method: &[u8]) -> Option<Vec<u8>> {
    let tag = |at: usize| method[at..=at + usize::from(method[at])].to_vec();
    Some(match method {
        [0, 60, 0, 10, ..] => vec![0, 60, 0, 11],
        [0, 60, 0, 20, _, _, queue, ..] => {
            [vec![0, 60, 0, 21], tag(7 + usize::from(*queue))].concat()
        }
        [0, 60, 0, 30, ..] => [vec![0, 60, 0, 31], tag(4)].concat(),
        [0, 50, 0, 10, ..] => vec![0, 50, 0, 11, 1, b'q', 0, 0, 0, 0, 0, 0, 0, 0],
        _ => return login(method),
    })
}

/// A sink whose broker has such a node alone, which answers so many questions about a queue.
fn node(answer: Answer, questions: usize) -> RabbitSettings {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            // Its error is the end of the connection.
            std::thread::spawn(move || drop(serve(socket, answer, questions)));
        }
    });
    RabbitSettings {
        hosts: vec![RabbitHost { name: "127.0.0.1".to_owned(), port }],
        vhost: "/".to_owned(),
        login: RabbitLogin::Plain("u".to_owned(), Secret::new("p")),
        ..RabbitSettings::default()
    }
}

fn serve(mut socket: TcpStream, answer: Answer, mut questions: usize) -> io::Result<()> {
    let mut greeting = [0; 8];
    socket.read_exact(&mut greeting)?;
    let start = b"\0\x0a\0\x0a\0\x09\0\0\0\0\0\0\0\x05PLAIN\0\0\0\x05en_US";
    write(&mut socket, METHOD, 0, start)?;
    socket.set_read_timeout(Some(HEARTBEAT_EVERY))?;
    loop {
        let mut head = [0; 7];
        match socket.read_exact(&mut head) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                write(&mut socket, HEARTBEAT, 0, &[])?;
                continue;
            }
            read => read?,
        }
        let length = u32::from_be_bytes([head[3], head[4], head[5], head[6]]);
        let mut body = vec![0; length as usize + 1];
        socket.read_exact(&mut body)?;
        if head[0] != METHOD {
            continue;
        }
        if body.starts_with(&[0, 50, 0, 10]) {
            let Some(left) = questions.checked_sub(1) else { continue };
            questions = left;
        }
        if let Some(answer) = answer(&body) {
            write(&mut socket, METHOD, head[2], &answer)?;
        }
    }
}

fn write(socket: &mut TcpStream, kind: u8, channel: u8, payload: &[u8]) -> io::Result<()> {
    let length = (payload.len() as u32).to_be_bytes();
    socket.write_all(&[&[kind, 0, channel], &length[..], payload, &[FRAME_END]].concat())
}

/// The result of what may wait for ever.
fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (done, result) = channel();
    std::thread::spawn(move || drop(done.send(work())));
    result
}

#[test]
fn a_node_that_answers_no_question_is_told_and_waited_for() {
    let required =
        || Requirements { dead_letters: Some(DeadLetterAddress::default()), ..Default::default() };
    let silent = node(login, 0);
    let begins = node(begin, 1);
    let (checked, made, opened) = (silent.clone(), silent.clone(), silent.clone());
    let read = begins.clone();
    let first = |found: Vec<Finding>| faults(&found).next().cloned();
    // WHEN it is asked by check and init, and for the dead letters, at once or when they are read
    let outcomes = [
        (&silent, UNREACHABLE, run(move || first(checked.inspect(&required())))),
        (&silent, UNREACHABLE, run(move || made.prepare(&required(), false).err()?.pop())),
        (
            &silent,
            SILENT,
            run(move || opened.log(&DeadLetterAddress::default(), ReadFrom::Beginning).err()),
        ),
        (
            &begins,
            SILENT,
            run(move || {
                let log = read.log(&DeadLetterAddress::default(), ReadFrom::Beginning);
                log.unwrap().next(Duration::ZERO).err()
            }),
        ),
    ];
    // THEN each ends, and names it
    for (node, code, outcome) in outcomes {
        let fault = outcome.recv_timeout(Duration::from_secs(30)).expect("it ends");
        let fault = fault.expect("nobody answers");
        let host = &node.hosts[0];
        let told = format!("{host} lets a client in, and answers no question within ");
        assert!(fault.what.contains(&told), "{fault}");
        assert_eq!((fault.code, fault.may_pass), (code, true));
    }
}
