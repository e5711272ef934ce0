//! Starting, stopping, and the limits on connections.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use crate::common::{PATIENCE, TestServer, assert_bytes, hit, options, read_exactly, read_to_end, set, value};
use ebbtide::memcached::{ByteSize, Cache};
use ebbtide_server::{BoundServer, Error, Listen, Server, ServerOptions, TlsOptions};
use ebbtide_testkit::repeat_after_stalls;

fn cache() -> Cache {
    Cache::builder().memory(ByteSize::mib(64)).build().expect("a cache")
}

fn bind_error(options: ServerOptions) -> Error {
    match Server::bind(options, cache()) {
        Ok(_) => panic!("bound"),
        Err(error) => error,
    }
}

/// A path of its own for a test's socket.
fn socket_path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("ebbtide-{name}-{}", std::process::id()))
}

#[test]
fn connections_above_the_limit_are_told_so() {
    let server = TestServer::with(ServerOptions { max_connections: 2, ..options() });
    let mut first = server.connect();
    let mut second = server.connect();
    for stream in [&mut first, &mut second] {
        stream.write_all(b"version\r\n").expect("a write");
        read_exactly(stream, 16);
    }
    assert_bytes(&read_to_end(&mut server.connect()), b"ERROR Too many open connections\r\n");
    drop(second);
    server.wait_for("a free place", || {
        let mut stream = server.connect();
        // The write may meet a connection that is closed already.
        let _ = stream.write_all(b"version\r\nquit\r\n");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer == b"VERSION 1.6.45\r\n"
    });
    drop(first);
    server.wait_for("the count", || {
        let answer = server.talk(b"stats\r\n");
        answer.starts_with(b"STAT") && crate::common::stat(&answer, "rejected_connections") > 0
    });
}

#[test]
fn idle_connections_are_closed() {
    let server = TestServer::with(ServerOptions { idle_timeout: Some(Duration::from_millis(50)), ..options() });
    let mut stream = server.connect();
    assert_bytes(&read_to_end(&mut stream), b"");
    // Also those that are in the middle of something.
    let mut stream = server.connect();
    stream.write_all(b"set k 0 0 100000\r\nabc").expect("a write");
    assert_bytes(&read_to_end(&mut stream), b"");
    assert_eq!(server.stat("idle_kicks"), 2);
}

#[test]
fn unfinished_commands_time_out_slow_transfers_do_not() {
    repeat_after_stalls(Duration::from_secs(3), kick_only_unfinished_commands);
}

fn kick_only_unfinished_commands() {
    let timeout = Some(Duration::from_secs(2));
    let server = TestServer::with(ServerOptions { idle_timeout: timeout, threads: 1, ..options() });
    assert_bytes(&server.talk(&set("k", &value(12 << 20))), b"STORED\r\n");
    let (mut unfinished, mut sending, mut taking) = (server.connect(), server.connect(), server.connect());
    sending.write_all(b"set slow 0 0 1000000\r\n").expect("a write");
    socket2::SockRef::from(&taking).set_recv_buffer_size(16 << 10).expect("a smaller buffer");
    taking.write_all(b"get k\r\n").expect("a write");
    unfinished.set_nonblocking(true).expect("a socket");
    for _ in 0..400 {
        std::thread::sleep(Duration::from_millis(10));
        match unfinished.write(b"x").and_then(|_| unfinished.read(&mut [0])) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Ok(0) | Err(_) => break,
            Ok(_) => panic!("half a line was answered"),
        }
        sending.write_all(b"v").expect("a write");
        read_exactly(&mut taking, 30_000);
    }
    assert_eq!(server.stat("idle_kicks"), 1);
    assert_eq!(server.stat("curr_connections"), 3);
}

#[test]
fn a_stop_sends_what_is_pending() {
    let mut server = TestServer::with(ServerOptions { stop_timeout: PATIENCE, ..options() });
    let value = value(12 << 20);
    assert_bytes(&server.talk(&set("k", &value)), b"STORED\r\n");
    let mut idle = server.connect();
    let mut reading = server.connect();
    reading.write_all(b"get k\r\n").expect("a write");
    let mut answer = read_exactly(&mut reading, 1);
    let running = server.running();
    running.stop_handle().stop();
    assert_bytes(&read_to_end(&mut idle), b"");
    answer.extend(read_to_end(&mut reading));
    assert!(answer == [&hit("k", &value)[..], b"END\r\n"].concat());
    running.join().expect("a clean stop");
    assert!(std::net::TcpStream::connect(server.address).is_err());
}

#[test]
fn a_stop_does_not_wait_for_ever() {
    let mut server = TestServer::with(ServerOptions { stop_timeout: Duration::from_millis(20), ..options() });
    server.talk(&set("k", &value(16 << 20)));
    let mut reading = server.connect();
    reading.write_all(b"get k\r\n").expect("a write");
    read_exactly(&mut reading, 1);
    server.running().stop().expect("a clean stop");
    let mut rest = Vec::new();
    // Whether the end is a reset or not, not all has come.
    let _ = reading.read_to_end(&mut rest);
    assert!(rest.len() < 16 << 20);
}

#[test]
fn clients_stop_the_server_only_if_they_may() {
    let mut server = TestServer::with(ServerOptions { allow_shutdown: true, ..options() });
    assert_bytes(
        &server.talk(b"shutdown nonsense\r\nversion\r\n"),
        b"CLIENT_ERROR invalid shutdown mode\r\nVERSION 1.6.45\r\n",
    );
    assert_bytes(&server.talk(b"version\r\nshutdown graceful\r\n"), b"VERSION 1.6.45\r\n");
    server.running().join().expect("a clean stop");
}

#[test]
fn unix_sockets_come_and_go() {
    let path = socket_path("socket");
    let listen = Listen::Unix { path: path.clone(), mode: 0o600 };
    let bind = || {
        let options = ServerOptions {
            listeners: vec![listen.clone(), Listen::Tcp((Ipv4Addr::LOCALHOST, 0).into())],
            ..options()
        };
        Server::bind(options, cache()).expect("a server")
    };
    // A file that a killed server has left.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket"));
    let server = bind();
    assert_eq!(server.local_addrs().len(), 1);
    let running = server.start().expect("threads");
    let mode = std::fs::metadata(&path).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut stream = UnixStream::connect(&path).expect("a connection");
    stream.write_all(b"version\r\nstats conns\r\nquit\r\n").expect("a write");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an end");
    assert!(answer.starts_with("VERSION 1.6.45\r\n"), "{answer}");
    assert!(answer.contains(&format!("STAT 0:addr unix:{}\r\n", path.display())), "{answer}");
    running.stop().expect("a clean stop");
    assert!(!path.exists());
}

#[test]
fn what_cannot_be_bound_is_named() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = taken.local_addr().expect("an address");
    let error = bind_error(ServerOptions { listeners: vec![Listen::Tcp(address)], ..options() });
    let text = error.to_string();
    assert!(text.contains(&address.to_string()) && text.contains("in use"), "{text}");

    let path = socket_path("file");
    std::fs::write(&path, b"precious").expect("a file");
    let listen = Listen::Unix { path: path.clone(), mode: 0o700 };
    let error = bind_error(ServerOptions { listeners: vec![listen], ..options() });
    assert!(matches!(error, Error::NotASocket { .. }), "{error}");
    assert_eq!(std::fs::read(&path).expect("the file"), b"precious");
    std::fs::remove_file(&path).expect("the file");
}

#[test]
fn nobody_connects_before_the_cache_is_there() {
    // Smaller numbers than those that the kernel assigns to clients and listeners of other tests.
    let ports = (0..500).map(|step| 10_000 + ((std::process::id() + step * 37) % 20_000) as u16);
    let mut tried = ports.map(|port| (Ipv4Addr::LOCALHOST, port).into()).filter_map(|address| {
        let listeners = vec![Listen::Tcp(address)];
        Some((address, BoundServer::new(ServerOptions { listeners, ..options() }).ok()?))
    });
    let (address, opened): (SocketAddr, _) = tried.next().expect("a free port");
    let refused = || TcpStream::connect(address).expect_err("nobody listens").kind();
    assert_eq!(refused(), ErrorKind::ConnectionRefused);
    let mut server = opened.into_server(cache()).expect("a server");
    assert_eq!(refused(), ErrorKind::ConnectionRefused);
    server.listen().expect("a listener");
    let running = server.start().expect("threads");
    TcpStream::connect(address).expect("a connection");
    running.stop().expect("a clean stop");
}

#[test]
fn one_listener_of_a_group_suffices() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = taken.local_addr().expect("an address");
    let free = Listen::Tcp((Ipv4Addr::LOCALHOST, 0).into());
    let open = |listeners: [&Listen; 2], alternatives: &[usize]| {
        let listeners = listeners.map(Listen::clone).to_vec();
        BoundServer::new(ServerOptions { listeners, alternatives: alternatives.to_vec(), ..options() })
    };
    let taken = Listen::Tcp(address);
    for group in [[&taken, &free], [&free, &taken]] {
        let opened = open(group, &[2]).expect("one of them");
        assert!(matches!(opened.warnings(), [warning] if warning.contains(&address.to_string())));
        assert_eq!(opened.into_server(cache()).expect("a server").local_addrs().len(), 1);
        for apart in [&[][..], &[1], &[1, 1]] {
            assert!(matches!(open(group, apart), Err(Error::Listen { .. })));
        }
    }
    assert!(matches!(open([&taken, &taken], &[2]), Err(Error::Listen { .. })));
}

#[test]
fn options_without_sense_are_refused() {
    for (options, flag) in [
        (ServerOptions { threads: 0, ..options() }, "-t"),
        (ServerOptions { max_connections: 0, ..options() }, "-c"),
        (ServerOptions { requests_per_event: 0, ..options() }, "-R"),
        (ServerOptions { listeners: vec![], ..options() }, "-l"),
        (ServerOptions { idle_timeout: Some(Duration::ZERO), ..options() }, "idle_timeout"),
        (
            ServerOptions {
                listeners: vec![Listen::Udp((Ipv4Addr::LOCALHOST, 0).into())],
                tls: Some(TlsOptions::new("/nonexistent")),
                ..options()
            },
            "-U",
        ),
    ] {
        let text = bind_error(options).to_string();
        assert!(text.contains(flag), "{text}");
    }
    let error = bind_error(ServerOptions { max_connections: usize::MAX >> 8, ..options() });
    assert!(matches!(error, Error::FileLimit { .. }), "{error}");
}
