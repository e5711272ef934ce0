//! Nothing is executed for a client that is not known.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;

use crate::common::packet::{self, ask, read, request, set, status_of};
use crate::common::{TestServer, assert_bytes, options, read_exactly, read_to_end};
use ebbtide_protocol::binary::reply::Status;
use ebbtide_server::{Auth, ServerOptions, UserFile, UserFormat};

const REFUSED: &[u8] = b"CLIENT_ERROR unauthenticated\r\n";
const LOGIN: &[u8] = b"set x 0 0 9\r\nuser pass\r\n";

fn users() -> (tempfile::NamedTempFile, Arc<UserFile>) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "user:pass\nother:word\n").expect("a write");
    let users = UserFile::load(file.path(), UserFormat::WholeLine).expect("users");
    (file, Arc::new(users))
}

fn ascii() -> TestServer {
    TestServer::with(ServerOptions { auth: Some(Auth::Ascii(users().1)), ..options() })
}

fn sasl() -> TestServer {
    TestServer::with(ServerOptions { auth: Some(Auth::Sasl(users().1)), ..options() })
}

fn say(stream: &mut TcpStream, input: &[u8], expected: &[u8]) {
    stream.write_all(input).expect("a write");
    assert_bytes(&read_exactly(stream, expected.len()), expected);
}

#[test]
fn every_text_command_is_refused_before_authentication() {
    let server = ascii();
    server.cache.insert(b"k", b"secret").apply().expect("space");
    let mut stream = server.connect();
    let commands = "get k|gets k|gat 0 k|mg k v|mn|me k|ms k 1|md k|ma k|add k 0 0 1|delete k|incr k 1|touch k 0|flush_all|\
        version|verbosity 1|stats|cache_memlimit 8|shutdown|quit|lru_crawler metadump all|watch|refresh_certs|frob|";
    for command in commands.split('|') {
        say(&mut stream, format!("{command}\r\n").as_bytes(), REFUSED);
    }
    assert!(server.cache.contains(b"k"));
    say(&mut stream, LOGIN, b"STORED\r\n");
    assert!(!server.cache.contains(b"x"), "the password is not stored");
    say(&mut stream, b"get k\r\n", b"VALUE k 0 6\r\nsecret\r\nEND\r\n");
    say(&mut stream, b"set x 0 0 3\r\nabc\r\n", b"STORED\r\n");
    assert!(server.cache.contains(b"x"));
}

#[test]
fn a_login_works_however_input_is_cut() {
    let server = ascii();
    let input = [b"get k\r\n", LOGIN, b"set k 0 0 1\r\nv\r\nget k\r\nquit\r\n"].concat();
    let expected = [REFUSED, b"STORED\r\nSTORED\r\nVALUE k 0 1\r\nv\r\nEND\r\n"].concat();
    for cut in 0..input.len() {
        let mut stream = server.connect();
        stream.write_all(&input[..cut]).expect("a write");
        stream.write_all(&input[cut..]).expect("a write");
        assert_bytes(&read_to_end(&mut stream), &expected);
    }
}

#[test]
fn failures_are_told_apart_and_counted() {
    let server = ascii();
    let mut stream = server.connect();
    say(&mut stream, b"set x 0 0 8\r\nuser bad\r\n", b"CLIENT_ERROR authentication failure\r\n");
    say(&mut stream, b"set x 0 0 8\r\nuserpass\r\n", b"CLIENT_ERROR bad authentication token format\r\n");
    say(&mut stream, b"set x 0 0 7\r\nuser pass", b"CLIENT_ERROR bad command line termination\r\n");
    say(&mut stream, b"\r\n", REFUSED);
    say(&mut stream, LOGIN, b"STORED\r\n");
    stream.write_all(b"stats\r\nstats settings\r\nquit\r\n").expect("a write");
    let stats = read_to_end(&mut stream);
    assert_eq!(crate::common::stat(&stats, "auth_cmds"), 2);
    assert_eq!(crate::common::stat(&stats, "auth_errors"), 1);
    let stats = String::from_utf8(stats).expect("text");
    for line in ["binding_protocol ascii", "auth_enabled_sasl no", "auth_enabled_ascii /"] {
        assert!(stats.contains(line), "{line}");
    }
}

#[test]
fn nothing_large_is_waited_for() {
    let server = ascii();
    for announced in ["8193", "1073741824", "4294967295"] {
        let mut stream = server.connect();
        stream.write_all(format!("set x 0 0 {announced}\r\n").as_bytes()).expect("a write");
        assert_bytes(&read_to_end(&mut stream), b"CLIENT_ERROR auth token too long\r\n");
    }
    let mut stream = server.connect();
    stream.write_all(&[b'x'; 2049]).expect("a write");
    assert_bytes(&read_to_end(&mut stream), b"");
    let server = sasl();
    for packet in [set(b"k", &[0; 100_000]), request(packet::SASL_AUTH, b"", b"PLAIN", &[0; 100_000])] {
        let mut stream = server.connect();
        stream.write_all(&packet[..100]).expect("a write");
        assert_eq!(read(&mut stream).status, Status::AuthError as u16);
        assert_bytes(&read_to_end(&mut stream), b"");
    }
}

#[test]
fn a_length_that_is_no_number_closes() {
    let server = ascii();
    for length in ["4294967305", "-1", "9x"] {
        let mut stream = server.connect();
        stream.write_all(format!("set x 0 0 {length}\r\nuser pass\r\n").as_bytes()).expect("a write");
        assert_bytes(&read_to_end(&mut stream), REFUSED);
    }
}

#[test]
fn a_password_may_have_blanks() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "u3:a b\nu4: c \nu5:\n").expect("a write");
    let users = Arc::new(UserFile::load(file.path(), UserFormat::WholeLine).expect("users"));
    let server = TestServer::with(ServerOptions { auth: Some(Auth::Ascii(users)), ..options() });
    let failure = b"CLIENT_ERROR authentication failure\r\n";
    for (value, answer) in [
        ("u3 a b", &b"STORED\r\n"[..]),
        ("u4  c ", b"STORED\r\n"),
        ("u3 a", failure),
        ("u3  a b", failure),
        (" u3 a b", failure),
        ("u3 a b ", failure),
        ("u5 ", failure),
        (" ", failure),
    ] {
        let mut stream = server.connect();
        say(&mut stream, format!("set x 0 0 {}\r\n{value}\r\n", value.len()).as_bytes(), answer);
    }
}

#[test]
fn a_binary_client_is_no_exception() {
    let server = ascii();
    let mut stream = server.connect();
    stream.write_all(&request(packet::NOOP, b"", b"", b"")).expect("a write");
    say(&mut stream, b"\n", REFUSED);
}

#[test]
fn users_are_read_again() {
    let (file, users) = users();
    let mut server = TestServer::with(ServerOptions { auth: Some(Auth::Ascii(Arc::clone(&users))), ..options() });
    let mut known = server.connect();
    say(&mut known, LOGIN, b"STORED\r\n");
    std::fs::write(file.path(), "new:one\n").expect("a write");
    users.reload().expect("a reload");
    let mut stream = server.connect();
    say(&mut stream, LOGIN, b"CLIENT_ERROR authentication failure\r\n");
    say(&mut stream, b"set x 0 0 7\r\nnew one\r\n", b"STORED\r\n");
    say(&mut known, b"get k\r\n", b"END\r\n");
    server.running().stop().expect("a clean stop");
}

#[test]
fn sasl_opens_the_binary_protocol() {
    let server = sasl();
    let mut text = server.connect();
    text.write_all(b"version\r\n").expect("a write");
    assert_bytes(&read_to_end(&mut text), b"");

    let get = request(packet::GET, b"", b"k", b"");
    let plain = |opcode, data: &[u8]| request(opcode, b"", b"PLAIN", data);
    for refused in [&get, &set(b"k", b"v"), &request(packet::NOOP, b"", b"", b""), &request(0x77, b"", b"", b"")] {
        let mut stream = server.connect();
        stream.write_all(refused).expect("a write");
        assert_eq!(read(&mut stream).status, Status::AuthError as u16);
        assert_bytes(&read_to_end(&mut stream), b"");
    }
    assert!(!server.cache.contains(b"k"));

    let mut stream = server.connect();
    assert_eq!(status_of(&mut stream, &request(packet::VERSION, b"", b"", b"")).0, packet::OK);
    let mechanisms = status_of(&mut stream, &request(packet::SASL_MECHANISMS, b"", b"", b""));
    assert_eq!(mechanisms, (packet::OK, b"PLAIN".to_vec()));
    for bad in [&b"\0user\0bad"[..], b"\0user\0", b"user\0pass", b"\0user\0pass\0", b"other\0user\0pass", b"\0\0"] {
        assert_eq!(ask(&mut stream, &plain(packet::SASL_AUTH, bad)).status, Status::AuthError as u16, "{bad:?}");
    }
    assert_eq!(ask(&mut stream, &plain(packet::SASL_STEP, b"\0user\0pass")).status, Status::AuthError as u16);
    let welcome = status_of(&mut stream, &plain(packet::SASL_AUTH, b"\0user\0pass"));
    assert_eq!(welcome, (packet::OK, b"Authenticated".to_vec()));
    assert_eq!(ask(&mut stream, &set(b"k", b"v")).status, packet::OK);
    // A client that starts a new authentication must complete it.
    assert_eq!(ask(&mut stream, &plain(packet::SASL_AUTH, b"")).status, 0x21);
    assert_eq!(ask(&mut stream, &plain(packet::SASL_STEP, b"user\0user\0pass")).status, packet::OK);
    assert_eq!(ask(&mut stream, &get).status, packet::OK);
    assert_eq!(ask(&mut stream, &plain(packet::SASL_AUTH, b"\0user\0bad")).status, Status::AuthError as u16);
    assert_eq!(ask(&mut stream, &get).status, Status::AuthError as u16);
}
