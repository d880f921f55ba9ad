use std::net::TcpStream as StdStream;

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
fn an_address_that_is_silent_is_waited_for_as_long_as_an_attempt_may_take() {
    let host = RabbitHost { name: "localhost".to_owned(), port: 1 };
    let settings =
        RabbitSettings { connect_timeout: LIMIT, hosts: vec![host], ..RabbitSettings::default() };
    let (_socket, silent, _queued) = silent();
    on_runtime(async {
        let loss = dial(&settings, HostAddress { host: 0, address: silent }).await.unwrap_err();
        assert_eq!(loss.text, "no answer within 0.2 s");
    });
}

fn on_runtime(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test);
}

#[test]
fn a_login_that_fails_at_an_address_is_tried_at_the_next_one() {
    let address = |last: u8| SocketAddr::from(([127, 0, 0, last], 5672));
    let tried = std::cell::RefCell::new(Vec::new());
    let login = async |fails: &str, code: Option<u16>| {
        let attempt = async |at: HostAddress| {
            tried.borrow_mut().push(at.address);
            match at.address == address(1) {
                true => Err(ConnectionLoss { code, ..ConnectionLoss::of(fails) }),
                false => Ok(at.host),
            }
        };
        first_address(7, [address(1), address(2)].into_iter(), &attempt).await
    };
    on_runtime(async {
        assert_eq!(login("it hung up", None).await.unwrap(), 7);
        assert_eq!(tried.take(), [address(1), address(2)]);
        // A wrong password is wrong at each of them.
        assert_eq!(login("ACCESS_REFUSED", Some(403)).await.unwrap_err().code, Some(403));
        assert_eq!(tried.take(), [address(1)]);
    });
}
