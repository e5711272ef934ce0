//! A server in this process, and plain sockets to talk to it. Not every test file uses all of it.
#![allow(dead_code)]

pub mod flash_server;
pub mod packet;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use ebbtide::memcached::{ByteSize, Cache};
use ebbtide_server::{Listen, Running, Server, ServerOptions};

/// Longer than anything here takes: only a failure waits for it.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub struct TestServer {
    pub cache: Cache,
    pub address: SocketAddr,
    pub admin: Option<SocketAddr>,
    running: Option<Running>,
}

pub fn options() -> ServerOptions {
    ServerOptions {
        listeners: vec![Listen::Tcp((Ipv4Addr::LOCALHOST, 0).into())],
        threads: 2,
        ..ServerOptions::default()
    }
}

impl TestServer {
    pub fn new() -> Self {
        Self::with(options())
    }

    pub fn with(options: ServerOptions) -> Self {
        let cache = Cache::builder().memory(ByteSize::mib(256)).max_value(ByteSize::mib(16)).build().expect("a cache");
        Self::around(cache, options)
    }

    pub fn around(cache: Cache, options: ServerOptions) -> Self {
        let server = Server::bind(options, cache.clone()).expect("a server");
        let admin = server.admin_addr();
        let running = server.start().expect("threads");
        Self { cache, address: running.local_addrs()[0], admin, running: Some(running) }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("a connection");
        stream.set_nodelay(true).expect("an option");
        stream.set_read_timeout(Some(PATIENCE)).expect("an option");
        stream.set_write_timeout(Some(PATIENCE)).expect("an option");
        stream
    }

    /// All that one connection is answered to `input`.
    pub fn talk(&self, input: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        stream.write_all(input).expect("a write");
        stream.write_all(b"quit\r\n").expect("a write");
        read_to_end(&mut stream)
    }

    pub fn running(&mut self) -> Running {
        self.running.take().expect("a running server")
    }

    /// One number of the plain stats.
    pub fn stat(&self, name: &str) -> u64 {
        stat(&self.talk(b"stats\r\n"), name)
    }

    /// A metric without labels; the server has an admin HTTP.
    pub fn metric(&self, name: &str) -> f64 {
        let mut stream = TcpStream::connect(self.admin.expect("an admin address")).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("an option");
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("a write");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("an answer");
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {page}")).parse().expect("a number")
    }

    /// Waits for something that the server does on its own time.
    pub fn wait_for(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !condition() {
            assert!(Instant::now() < deadline, "{what} did not happen");
            std::thread::yield_now();
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop().expect("a clean stop");
        }
        if !std::thread::panicking() {
            self.cache.verify();
        }
    }
}

pub fn stat(stats: &[u8], name: &str) -> u64 {
    let text = String::from_utf8_lossy(stats);
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("STAT {name} ")))
        .unwrap_or_else(|| panic!("no {name} in {text}"));
    line.parse().expect("a number")
}

pub fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        // The server has closed while our last bytes were under way: that is an end too.
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => answer,
        outcome => outcome.map(|_| answer).expect("an end"),
    }
}

pub fn read_exactly(stream: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer).expect("all bytes of the answer");
    answer
}

/// Panics with readable text if the bytes differ.
#[track_caller]
pub fn assert_bytes(answer: &[u8], expected: &[u8]) {
    assert!(
        answer == expected,
        "answered {:?}\nexpected {:?}",
        String::from_utf8_lossy(&answer[..answer.len().min(400)]),
        String::from_utf8_lossy(&expected[..expected.len().min(400)])
    );
}

/// Bytes that differ from place to place.
pub fn value(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n / 251 + n % 251) as u8).collect()
}

pub fn set(key: &str, value: &[u8]) -> Vec<u8> {
    let line = format!("set {key} 0 0 {}\r\n", value.len());
    [line.as_bytes(), value, b"\r\n"].concat()
}

pub fn hit(key: &str, value: &[u8]) -> Vec<u8> {
    let line = format!("VALUE {key} 0 {}\r\n", value.len());
    [line.as_bytes(), value, b"\r\n"].concat()
}
