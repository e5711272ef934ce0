//! The binary protocol, over a socket.

use std::io::Write;
use std::thread;

use crate::common::packet::{self, Packet, ask, read, request, set, status_of};
use crate::common::{TestServer, options, read_to_end, value};
use ebbtide_protocol::binary::reply::Status;
use ebbtide_server::{Protocol, ServerOptions};

const NOT_FOUND: (u16, &[u8]) = (Status::NotFound as u16, b"Not found");
const EXISTS: (u16, &[u8]) = (Status::Exists as u16, b"Data exists for key.");

fn with(protocol: Protocol) -> TestServer {
    TestServer::with(ServerOptions { protocol, ..options() })
}

#[track_caller]
fn assert_status(answer: (u16, Vec<u8>), expected: (u16, &[u8])) {
    assert_eq!((answer.0, &*answer.1), expected);
}

fn counting(delta: u64, initial: u64, exptime: u32) -> Vec<u8> {
    [&delta.to_be_bytes()[..], &initial.to_be_bytes(), &exptime.to_be_bytes()].concat()
}

#[test]
fn the_first_byte_decides() {
    let version = |server: &TestServer| status_of(&mut server.connect(), &request(packet::VERSION, b"", b"", b""));
    let server = TestServer::new();
    assert_status(version(&server), (packet::OK, b"1.6.45"));
    assert_eq!(server.talk(b"version\r\n"), b"VERSION 1.6.45\r\n");
    let server = with(Protocol::Binary);
    assert_status(version(&server), (packet::OK, b"1.6.45"));
    let mut stream = server.connect();
    stream.write_all(b"version\r\n").expect("a write");
    assert_eq!(read_to_end(&mut stream), b"");
    let server = with(Protocol::Ascii);
    let mut stream = server.connect();
    stream.write_all(&request(packet::VERSION, b"", b"", b"")).expect("a write");
    stream.write_all(b"\r\nquit\r\n").expect("a write");
    assert_eq!(read_to_end(&mut stream), b"ERROR\r\n");
}

#[test]
fn the_dialect_stays_what_it_was() {
    let server = TestServer::new();
    let mut stream = server.connect();
    ask(&mut stream, &request(packet::NOOP, b"", b"", b""));
    stream.write_all(b"version\r\n").expect("a write");
    assert_eq!(read_to_end(&mut stream), b"");
}

#[test]
fn tokens_come_with_writes_and_bind_others() {
    let server = TestServer::new();
    let mut stream = server.connect();
    let bound = |opcode, extras: &[u8], key: &[u8], value: &[u8], cas| {
        Packet { opcode, extras, key, value, cas, opaque: 0 }.bytes()
    };
    let stored = ask(&mut stream, &set(b"k", b"v"));
    let hit = ask(&mut stream, &request(packet::GET, b"", b"k", b""));
    assert_eq!((stored.status, stored.cas, hit.value), (packet::OK, hit.cas, b"v".to_vec()));
    let stale = hit.cas;
    let stored = ask(&mut stream, &bound(packet::SET, &[0; 8], b"k", b"w", stale));
    assert_eq!(stored.status, packet::OK);
    assert_status(status_of(&mut stream, &bound(packet::SET, &[0; 8], b"k", b"x", stale)), EXISTS);
    assert_status(status_of(&mut stream, &bound(packet::ADD, &[0; 8], b"absent", b"x", stale)), NOT_FOUND);
    assert_status(status_of(&mut stream, &bound(packet::APPEND, b"", b"k", b"x", stale)), EXISTS);
    assert_status(status_of(&mut stream, &bound(packet::DELETE, b"", b"k", b"", stale)), EXISTS);
    let appended = ask(&mut stream, &bound(packet::APPEND, b"", b"k", b"x", stored.cas));
    assert_eq!(appended.status, packet::OK);
    let deleted = ask(&mut stream, &bound(packet::DELETE, b"", b"k", b"", appended.cas));
    assert_eq!((deleted.status, deleted.cas), (packet::OK, 0));
    let made = ask(&mut stream, &request(packet::INCREMENT, &counting(1, 5, 0), b"n", b""));
    let counted = ask(&mut stream, &bound(packet::DECREMENT, &counting(2, 0, 0), b"n", b"", made.cas));
    assert_eq!((made.value, counted.value), (5u64.to_be_bytes().to_vec(), 3u64.to_be_bytes().to_vec()));
    assert_status(status_of(&mut stream, &bound(packet::INCREMENT, &counting(1, 0, 0), b"n", b"", made.cas)), EXISTS);
    assert_eq!(ask(&mut stream, &request(packet::GET, b"", b"n", b"")).cas, counted.cas);
    assert_eq!(server.stat("cas_badval"), 1);
}

#[test]
fn racing_increments_make_one_counter() {
    let server = TestServer::new();
    const CLIENTS: u64 = 4;
    const ROUNDS: u64 = 500;
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut stream = server.connect();
                for round in 0..ROUNDS {
                    let key = format!("n{round}");
                    let answer = ask(&mut stream, &request(packet::INCREMENT, &counting(1, 1, 0), key.as_bytes(), b""));
                    assert_eq!(answer.status, packet::OK);
                }
            });
        }
    });
    let mut stream = server.connect();
    for round in 0..ROUNDS {
        let hit = ask(&mut stream, &request(packet::GET, b"", format!("n{round}").as_bytes(), b""));
        assert_eq!(hit.value, CLIENTS.to_string().into_bytes());
    }
}

#[test]
fn quiet_gets_are_answered_in_order_however_many() {
    let server = TestServer::new();
    let mut stream = server.connect();
    let keys = 20_000;
    let mut sets = Vec::new();
    let mut gets = Vec::new();
    for n in 0..keys {
        let key = format!("key-{n}");
        if n % 3 == 0 {
            let packet = Packet {
                opcode: packet::SETQ,
                extras: &[0; 8],
                key: key.as_bytes(),
                value: &value(n % 200),
                ..Packet::default()
            };
            sets.extend(packet.bytes());
        }
        let opcode = if n % 2 == 0 { packet::GETQ } else { packet::GETKQ };
        gets.extend(Packet { opcode, key: key.as_bytes(), opaque: n as u32, ..Packet::default() }.bytes());
    }
    let noop = request(packet::NOOP, b"", b"", b"");
    stream.write_all(&[sets, noop.clone()].concat()).expect("a write");
    assert_eq!(read(&mut stream).opcode, packet::NOOP);
    let mut writer = stream.try_clone().expect("a clone");
    let writing = thread::spawn(move || writer.write_all(&[gets, noop].concat()).expect("a write"));
    for n in (0..keys).step_by(3) {
        let hit = read(&mut stream);
        let key = if n % 2 == 0 { String::new() } else { format!("key-{n}") };
        assert_eq!((hit.opaque, hit.key, hit.value), (n as u32, key.into_bytes(), value(n % 200)));
    }
    assert_eq!(read(&mut stream).opcode, packet::NOOP);
    writing.join().expect("a writer");
    assert_eq!(server.stat("get_hits"), keys.div_ceil(3) as u64);
    assert_eq!(server.stat("get_misses"), (keys - keys.div_ceil(3)) as u64);
}

#[test]
fn values_of_every_size_go_in_and_out() {
    let server = TestServer::new();
    let mut stream = server.connect();
    for length in [0, 1, 8_192, 8_193, 32_768, 65_535, 65_536, 1 << 20, (1 << 20) + 1, 5 << 20, 16 << 20] {
        let value = value(length);
        let stored = ask(&mut stream, &set(b"k", &value));
        // A get, and a get behind it in the same read: the output is full between the two.
        let gets = request(packet::GET, b"", b"k", b"").repeat(2);
        stream.write_all(&gets).expect("a write");
        for _ in 0..2 {
            let hit = read(&mut stream);
            assert!(hit.value == value, "a value of {length} bytes");
            assert_eq!(hit.cas, stored.cas);
        }
    }
    assert_eq!(status_of(&mut stream, &request(packet::APPEND, b"", b"k", b"more")).0, Status::NotStored as u16);
}

#[test]
fn what_is_too_large_is_skipped() {
    let server = TestServer::new();
    let mut stream = server.connect();
    ask(&mut stream, &set(b"k", b"old"));
    let long = vec![0; (16 << 20) + 1];
    let sent = [set(b"k", &long), request(0x77, b"ext", b"key", &value(100_000)), request(packet::NOOP, b"", b"", b"")];
    let mut writer = stream.try_clone().expect("a clone");
    let writing = thread::spawn(move || writer.write_all(&sent.concat()).expect("a write"));
    let answers = [read(&mut stream), read(&mut stream), read(&mut stream)];
    assert_eq!(answers.map(|answer| answer.status), [3, 0x81, 0]);
    writing.join().expect("a writer");
    assert_status(status_of(&mut stream, &request(packet::GET, b"", b"k", b"")), NOT_FOUND);
    assert_eq!(server.stat("store_too_large"), 1);
}

#[test]
fn single_bytes_are_enough() {
    let server = TestServer::new();
    let mut stream = server.connect();
    let input =
        [set(b"k", b"value"), request(packet::APPEND, b"", b"k", b"!"), request(packet::GET, b"", b"k", b"")].concat();
    for byte in &input {
        stream.write_all(&[*byte]).expect("a write");
    }
    assert_eq!(read(&mut stream).opcode, packet::SET);
    assert_eq!(read(&mut stream).opcode, packet::APPEND);
    assert_eq!(read(&mut stream).value, b"value!");
}

#[test]
fn announced_bytes_that_do_not_come_are_nothing() {
    let server = TestServer::new();
    let mut stream = server.connect();
    ask(&mut stream, &set(b"k", b"old"));
    for length in [100, 100_000, 4 << 20] {
        let mut half = server.connect();
        let set = set(b"k", &value(length));
        half.write_all(&set[..set.len() - 3]).expect("a write");
        drop(half);
        server.wait_for("the close", || server.stat("curr_connections") == 2);
        assert_eq!(ask(&mut stream, &request(packet::GET, b"", b"k", b"")).value, b"old");
    }
}

#[test]
fn errors_close_only_without_a_known_next_packet() {
    let server = TestServer::new();
    let noop = request(packet::NOOP, b"", b"", b"");
    for (bad, status) in [
        (request(packet::GET, b"ext", b"k", b""), Status::InvalidArguments),
        (request(packet::SET, b"", b"k", b"v"), Status::InvalidArguments),
        (request(packet::GET, b"", &[b'k'; 251], b""), Status::InvalidArguments),
        (request(packet::NOOP, b"", b"", b"v"), Status::InvalidArguments),
    ] {
        let mut stream = server.connect();
        stream.write_all(&[bad, noop.clone()].concat()).expect("a write");
        assert_eq!(read(&mut stream).status, status as u16);
        assert_eq!(read_to_end(&mut stream), b"");
    }
    let mut stream = server.connect();
    for (bad, status) in [
        (request(0x1B, &[0; 4], b"", b""), Status::UnknownCommand),
        (request(packet::SASL_MECHANISMS, b"", b"", b""), Status::UnknownCommand),
        (request(packet::SASL_AUTH, b"", b"PLAIN", b"\0me\0pass"), Status::UnknownCommand),
        (request(packet::INCREMENT, &counting(1, 0, u32::MAX), b"absent", b""), Status::NotFound),
        (request(packet::STAT, b"", b"bogus", b""), Status::NotFound),
        // memcached takes the first word that begins so, or of which this is the beginning.
        (request(packet::STAT, b"", b"settingsx", b""), Status::NotFound),
        (request(packet::STAT, b"", b"settin", b""), Status::NotFound),
        (request(packet::STAT, b"", b"resetx", b""), Status::NotFound),
        (request(packet::STAT, b"", b"detail dumpx", b""), Status::NotFound),
    ] {
        assert_eq!(ask(&mut stream, &bad).status, status as u16);
    }
    assert_eq!(ask(&mut stream, &noop).status, packet::OK);
}

#[test]
fn statistics_end_with_an_empty_packet() {
    let server = with(Protocol::Binary);
    let mut stream = server.connect();
    ask(&mut stream, &set(b"k", b"v"));
    for (topic, name) in
        [("", "pid"), ("settings", "binding_protocol"), ("items", "items:1:number"), ("conns", "0:addr")]
    {
        stream.write_all(&request(packet::STAT, b"", topic.as_bytes(), b"")).expect("a write");
        let mut names = Vec::new();
        loop {
            let answer = read(&mut stream);
            assert_eq!(answer.status, packet::OK);
            if answer.key.is_empty() {
                break;
            }
            if answer.key == b"binding_protocol" {
                assert_eq!(answer.value, b"binary");
            }
            names.push(String::from_utf8(answer.key).expect("a name"));
        }
        assert!(names.iter().any(|found| found == name), "{name} in {names:?}");
    }
    let reset = ask(&mut stream, &request(packet::STAT, b"", b"reset", b""));
    assert_eq!((reset.status, reset.key), (packet::OK, Vec::new()));
}

#[test]
fn flush_is_refused_where_it_is_not_allowed() {
    for allow_flush in [true, false] {
        let server = TestServer::with(ServerOptions { allow_flush, ..options() });
        let mut stream = server.connect();
        ask(&mut stream, &set(b"k", b"v"));
        let expected = if allow_flush { packet::OK } else { Status::AuthError as u16 };
        assert_eq!(ask(&mut stream, &request(0x08, b"", b"", b"")).status, expected);
        let found = ask(&mut stream, &request(packet::GET, b"", b"k", b"")).status == packet::OK;
        assert_eq!(found, !allow_flush);
    }
}

#[test]
fn forbidden_statistics_are_not_found() {
    let server = TestServer::with(ServerOptions { allow_dump: false, ..options() });
    let mut stream = server.connect();
    for topic in ["detail dump", "detail on", "cachedump 1 1", "settingsx"] {
        let answer = ask(&mut stream, &request(packet::STAT, b"", topic.as_bytes(), b""));
        assert_status((answer.status, answer.value), NOT_FOUND);
    }
    assert_eq!(ask(&mut stream, &request(packet::STAT, b"", b"reset", b"")).status, packet::OK);
}
