use std::net::{TcpListener, TcpStream as StdStream};

use socket2::{Domain, Type};

use super::*;

const LIMIT: Duration = Duration::from_millis(200);

/// A socket that accepts no connection and refuses none: its queue is full.
fn silent() -> (Socket, SocketAddr, Vec<StdStream>) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let queued = std::iter::from_fn(|| StdStream::connect_timeout(&address, LIMIT).ok()).collect();
    (socket, address, queued)
}

#[test]
fn an_address_that_is_silent_does_not_keep_the_next_from_being_tried() {
    let settings = RabbitSettings { connect_timeout: LIMIT, ..RabbitSettings::default() };
    let (_socket, silent, _queued) = silent();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let answering = listener.local_addr().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = connect(&settings, [silent, answering].into_iter()).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), answering);
        let loss = connect(&settings, [silent].into_iter()).await.unwrap_err();
        assert_eq!(loss.text, "no answer within 0.2 s");
    });
}
