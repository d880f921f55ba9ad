//! A node of RabbitMQ that lets a client in, sends heartbeats, and answers nothing after that but what a test
//! wants.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const METHOD: u8 = 1;
const HEARTBEAT: u8 = 8;
const FRAME_END: u8 = 0xCE;
const HEARTBEAT_EVERY: Duration = Duration::from_secs(1);

/// The address of the node, and a message at the end of each of its connections. `answer` gives the answer to
/// the payload of a method, if there is to be one; each connection has a copy.
pub fn silent_node(
    answer: impl FnMut(&[u8]) -> Option<Vec<u8>> + Clone + Send + 'static,
) -> io::Result<(SocketAddr, Receiver<()>)> {
    let (ends, ended) = channel();
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let (ends, answer) = (ends.clone(), answer.clone());
            std::thread::spawn(move || {
                // Its error is the end of the connection.
                drop(serve(socket, answer));
                let _read = ends.send(()).is_ok();
            });
        }
    });
    Ok((address, ended))
}

fn serve(
    mut socket: TcpStream,
    mut answer: impl FnMut(&[u8]) -> Option<Vec<u8>>,
) -> io::Result<()> {
    let mut greeting = [0; 8];
    socket.read_exact(&mut greeting)?;
    let start: &[u8] = &[0, 10, 0, 10, 0, 9, 0, 0, 0, 0];
    let start = [start, &long("PLAIN"), &long("en_US")].concat();
    write(&mut socket, METHOD, 0, &start)?;
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
        let answer = match body[..] {
            // start-ok, open, channel.open and basic.qos.
            [0, 10, 0, 11, ..] => vec![0, 10, 0, 30, 7, 255, 0, 2, 0, 0, 0, 10],
            [0, 10, 0, 40, ..] => vec![0, 10, 0, 41, 0],
            [0, 20, 0, 10, ..] => vec![0, 20, 0, 11, 0, 0, 0, 0],
            [0, 60, 0, 10, ..] => vec![0, 60, 0, 11],
            _ => match answer(&body) {
                Some(answer) => answer,
                None => continue,
            },
        };
        write(&mut socket, METHOD, head[2], &answer)?;
    }
}

fn long(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

fn write(socket: &mut TcpStream, kind: u8, channel: u8, payload: &[u8]) -> io::Result<()> {
    let length = (payload.len() as u32).to_be_bytes();
    socket.write_all(&[&[kind, 0, channel], &length[..], payload, &[FRAME_END]].concat())
}
