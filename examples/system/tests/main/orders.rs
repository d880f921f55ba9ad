//! Tests of the answers of the order service: done, to be corrected by the client, to be repeated,
//! or a defect.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use walrelay_harness::program::{Launch, Program};
use walrelay_harness::{Postgres, PostgresOptions, free_port};

const LIMIT: Duration = Duration::from_secs(30);
const OUTBOX: &str = include_str!("../../../../sql/outbox.sql");
const ORDERS: &str = include_str!("../../sql/orders.sql");

struct OrderService {
    program: Program,
    address: SocketAddr,
}

impl OrderService {
    fn start(database_url: String, folder: PathBuf) -> OrderService {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port().unwrap()));
        let env = [("DATABASE_URL", database_url), ("LISTEN", address.to_string())];
        let launch = Launch {
            name: "order-service".into(),
            program: env!("CARGO_BIN_EXE_order-service").into(),
            arguments: Vec::new(),
            env: env.map(|(name, value)| (name.to_owned(), value)).into(),
            folder,
        };
        OrderService { program: Program::start(launch).unwrap(), address }
    }

    /// Once it listens.
    #[track_caller]
    fn connect(&self) -> TcpStream {
        let began = Instant::now();
        loop {
            if let Ok(stream) = TcpStream::connect(self.address) {
                return stream;
            }
            assert!(began.elapsed() < LIMIT, "{}", self.program.tail(20));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Status and body of the answer.
    #[track_caller]
    fn post(&self, path: &str, body: &str) -> (u16, String) {
        let mut stream = self.connect();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n",
            self.address
        );
        stream.write_all([head.as_bytes(), body.as_bytes()].concat().as_slice()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.trim_end().to_owned())
    }

    #[track_caller]
    fn place(&self, order_id: &str, customer: &str, amount_cents: i64) -> (u16, String) {
        let order = format!(
            r#"{{"order_id": "{order_id}", "customer": "{customer}", "amount_cents": {amount_cents}, "payment": "card"}}"#
        );
        self.post("/orders", &order)
    }
}

#[track_caller]
fn assert_answer(answer: (u16, String), status: u16, body: &str) {
    assert_eq!((answer.0, answer.1.as_str()), (status, body));
}

#[test]
fn only_what_may_pass_is_to_be_repeated() {
    let mut postgres = Postgres::start(PostgresOptions::default()).unwrap();
    postgres.sql("postgres", OUTBOX).unwrap();
    postgres.sql("postgres", ORDERS).unwrap();
    let folder = postgres.folder().join("order-service");
    let service = OrderService::start(postgres.url("postgres"), folder);
    assert_answer(service.place("o-1", "ada", 4200), 201, "done");
    assert_answer(service.place("o-1", "ada", 4200), 200, "done_before");
    // WHEN a request can never be done THEN the client is told so
    assert_answer(service.place("", "ada", 4200), 400, "order_id is empty");
    assert_answer(service.place("o-2", "a\\u0000da", 4200), 400, "customer has a NUL character");
    assert_answer(service.place("o-2", "ada", -1), 400, "amount_cents is negative: -1");
    assert_answer(
        service.place(&"o".repeat(300), "ada", 1),
        400,
        "order_id is longer than 200 bytes",
    );
    assert_answer(service.post("/orders/o%00/pay", ""), 400, "refused");
    // WHEN the fault is the service's own THEN a repetition is not asked for
    postgres.sql("postgres", "ALTER TABLE outbox RENAME TO renamed").unwrap();
    assert_answer(service.post("/orders/o-1/pay", ""), 500, "failed");
    postgres.sql("postgres", "ALTER TABLE renamed RENAME TO outbox").unwrap();
    // WHEN Postgres is away THEN the request may be repeated
    postgres.kill9().unwrap();
    assert_answer(service.post("/orders/o-1/pay", ""), 503, "unavailable");
    postgres.start_again().unwrap();
    assert_answer(service.post("/orders/o-1/ship", ""), 409, "too_early");
    assert_answer(service.post("/orders/o-1/pay", ""), 201, "done");
}

#[test]
fn a_silent_database_holds_no_request_for_ever() {
    // GIVEN a database server that takes connections and says nothing
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://postgres@{}/orders", silent.local_addr().unwrap());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("silent-database");
    let service = OrderService::start(url, folder);
    // WHEN an order is placed THEN the answer is to repeat the request
    assert_answer(service.place("o-1", "ada", 1), 503, "unavailable");
}
