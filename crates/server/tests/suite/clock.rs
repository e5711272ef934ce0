//! debugtime: lives end without waiting, and only on a server with a test clock.
//!
//! Real time passes beside the moved time, so lives are long and assertions leave [`SLACK`].

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::common::packet::{self, Packet, request, status_of};
use crate::common::{TestServer, assert_bytes, options};
use ebbtide::memcached::{ByteSize, Cache, Clock};
use ebbtide_protocol::binary::reply::Status;
use ebbtide_server::{Server, ServerOptions};

/// Seconds that a test may take on a slow machine.
const SLACK: u64 = 100;

fn server() -> TestServer {
    TestServer::with(ServerOptions { test_clock: true, ..options() })
}

#[track_caller]
fn check(server: &TestServer, input: &str, expected: &str) {
    assert_bytes(&server.talk(input.as_bytes()), expected.as_bytes());
}

/// The seconds that an entry has left.
#[track_caller]
fn left(server: &TestServer, key: &str) -> u64 {
    let answer = String::from_utf8(server.talk(format!("mg {key} t\r\n").as_bytes())).expect("text");
    let seconds = answer.trim_end().strip_prefix("HD t").unwrap_or_else(|| panic!("{key}: {answer}"));
    seconds.parse().expect("a number")
}

/// A number that is `expected`, but for the time that has passed since.
#[track_caller]
fn assert_about(number: u64, expected: u64) {
    assert!((expected - SLACK..=expected + SLACK).contains(&number), "{number} is not about {expected}");
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_secs()
}

#[test]
fn lives_end_in_every_dialect() {
    let server = server();
    check(&server, "set text 0 1000 1\r\nv\r\nms meta 1 T1000\r\nv\r\n", "STORED\r\nHD\r\n");
    let mut binary = server.connect();
    let thousand = [[0; 4], 1000_u32.to_be_bytes()].concat();
    assert_eq!(status_of(&mut binary, &request(packet::SET, &thousand, b"binary", b"v")).0, packet::OK);
    let get = Packet { opcode: packet::GET, key: b"binary", ..Packet::default() }.bytes();
    check(&server, "set forever 0 0 1\r\nv\r\nset later 0 2000 1\r\nv\r\n", "STORED\r\nSTORED\r\n");

    check(&server, "debugtime 700\r\nget text\r\nmg meta v\r\n", "OK\r\nVALUE text 0 1\r\nv\r\nEND\r\nVA 1\r\nv\r\n");
    assert_eq!(status_of(&mut binary, &get), (packet::OK, b"v".to_vec()));
    for key in ["text", "meta", "binary"] {
        assert_about(left(&server, key), 300);
    }

    check(&server, "debugtime 300\r\nget text\r\nmg meta v\r\n", "OK\r\nEND\r\nEN\r\n");
    assert_eq!(status_of(&mut binary, &get).0, Status::NotFound as u16);
    // It has a longer life, hence another segment: in theirs it would keep the dead ones in memory.
    check(&server, "add text 0 9000 1\r\nw\r\ntouch meta 0\r\nmd meta\r\n", "STORED\r\nNOT_FOUND\r\nNF\r\n");
    check(&server, "get text forever\r\n", "VALUE text 0 1\r\nw\r\nVALUE forever 0 1\r\nv\r\nEND\r\n");
    assert_about(left(&server, "later"), 1000);
    assert_about(left(&server, "text"), 9000);
    // Expired items without a get are found by the background thread.
    server.wait_for("taking memory back", || server.cache.stats().items == 3);
}

#[test]
fn unix_times_are_later_by_as_much() {
    let server = server();
    let started = unix_now();
    let set = |key: &str, exptime: u64| format!("set {key} 0 {exptime} 1\r\nv\r\n");
    check(&server, &set("k", started + 3000), "STORED\r\n");
    check(&server, "debugtime 2000\r\n", "OK\r\n");
    assert_about(left(&server, "k"), 1000);
    check(
        &server,
        &(set("new", started + 3000) + &set("past", started + 1900) + "get past\r\n"),
        "STORED\r\nSTORED\r\nEND\r\n",
    );
    assert_about(left(&server, "new"), 1000);
    let dump = String::from_utf8(server.talk(b"lru_crawler metadump all\r\n")).expect("text");
    for key in ["k", "new"] {
        let line = dump.lines().find_map(|line| line.strip_prefix(&format!("key={key} exp="))).expect("a line");
        assert_about(line.split(' ').next().and_then(|seconds| seconds.parse().ok()).expect("a time"), started + 3000);
    }
    assert_about(server.stat("time"), started + 2000);
    let uptime = server.stat("uptime");
    assert!((2000..=2000 + SLACK).contains(&uptime), "{uptime}");
    check(&server, "debugtime 1000\r\nget k new\r\n", "OK\r\nEND\r\n");
}

/// Runs a check within one second of the wall clock, which it is given: with one that has started anew, it runs again.
fn within_a_second(check: impl Fn(u64) -> Result<(), String>) {
    let tries = 60;
    for number in 0..tries {
        let mut started = unix_now();
        // A slow machine needs the whole second.
        while number > 2 && unix_now() == started {
            std::thread::sleep(Duration::from_millis(1));
        }
        started = unix_now();
        let result = check(started);
        if unix_now() == started {
            return result.expect("the check");
        }
    }
    panic!("no check ended within a second in {tries} tries");
}

fn is_served(server: &TestServer, key: &str) -> bool {
    !server.talk(format!("mg {key}\r\n").as_bytes()).starts_with(b"EN")
}

#[test]
fn every_command_keeps_unix_times_exactly() {
    // With units of expiry from a second to a day and a half.
    for life in [100, 129, 1001, 3601, 86_399, 2_000_001, 9_000_001] {
        unix_times_are_kept_with_a_life_of(life);
    }
}

fn unix_times_are_kept_with_a_life_of(life: u32) {
    within_a_second(|started| {
        let server = server();
        let end = started as u32 + life;
        let lines = format!(
            "set set 0 {end} 1\r\nv\r\nset touch 0 0 1\r\nv\r\ntouch touch {end}\r\nset gat 0 0 1\r\nv\r\ngat {end} gat\r\n\
             ms ms 1 T{end}\r\nv\r\nset mg 0 0 1\r\nv\r\nmg mg T{end}\r\nmg made N{end}\r\nma ma N{end}\r\n\
             set append 0 {end} 1\r\nv\r\nappend append 0 0 1\r\nv\r\n"
        );
        server.talk(lines.as_bytes());
        let mut binary = server.connect();
        let set = [[0; 4], end.to_be_bytes()].concat();
        for packet in [
            request(packet::SET, &set, b"binary", b"v"),
            request(packet::SET, &[0; 8], b"btouch", b"v"),
            request(packet::TOUCH, &end.to_be_bytes(), b"btouch", b""),
            request(packet::SET, &[0; 8], b"bgat", b"v"),
            request(packet::GAT, &end.to_be_bytes(), b"bgat", b""),
        ] {
            assert_eq!(status_of(&mut binary, &packet).0, packet::OK);
        }
        let keys = ["set", "touch", "gat", "ms", "mg", "made", "ma", "append", "binary", "btouch", "bgat"];
        check(&server, &format!("debugtime {}\r\n", life - 1), "OK\r\n");
        let early: Vec<_> = keys.iter().filter(|key| !is_served(&server, key)).collect();
        check(&server, "debugtime 1\r\n", "OK\r\n");
        let late: Vec<_> = keys.iter().filter(|key| is_served(&server, key)).collect();
        match early.is_empty() && late.is_empty() {
            true => Ok(()),
            false => Err(format!("of {life} s: lost a second early: {early:?}; served late: {late:?}")),
        }
    });
}

#[test]
fn a_slow_upload_keeps_its_unix_time() {
    within_a_second(|started| {
        let server = server();
        let (value, end) = (vec![b'v'; 4 << 20], started + 100);
        let mut stream = server.connect();
        let (first, rest) = value.split_at(3 << 20);
        stream.write_all(format!("set k 0 {end} {}\r\n", value.len()).as_bytes()).expect("a write");
        stream.write_all(first).expect("a write");
        server.wait_for("its first part", || server.stat("bytes_read") > 3 << 20);
        check(&server, "debugtime 60\r\n", "OK\r\n");
        stream.write_all(rest).expect("a write");
        stream.write_all(b"\r\nquit\r\n").expect("a write");
        assert_bytes(&crate::common::read_to_end(&mut stream), b"STORED\r\n");
        check(&server, "debugtime 39\r\n", "OK\r\n");
        let early = !is_served(&server, "k");
        check(&server, "debugtime 1\r\n", "OK\r\n");
        match (early, is_served(&server, "k")) {
            (false, false) => Ok(()),
            (early, late) => Err(format!("lost a second early: {early}, served late: {late}")),
        }
    });
}

#[test]
fn a_delayed_flush_strikes() {
    for delay in [1000, unix_now() + 1000] {
        let server = server();
        check(&server, "set k 0 0 1\r\nv\r\n", "STORED\r\n");
        check(
            &server,
            &format!("flush_all {delay}\r\ndebugtime 500\r\nget k\r\n"),
            "OK\r\nOK\r\nVALUE k 0 1\r\nv\r\nEND\r\n",
        );
        check(&server, "debugtime 501\r\nget k\r\n", "OK\r\nEND\r\n");
        check(&server, "set k 0 0 1\r\nw\r\nget k\r\n", "STORED\r\nVALUE k 0 1\r\nw\r\nEND\r\n");
    }
}

#[test]
fn a_flush_at_unix_time_is_exact() {
    within_a_second(|started| {
        let server = server();
        server.talk(format!("set k 0 0 1\r\nv\r\nflush_all {}\r\n", started + 1000).as_bytes());
        check(&server, "debugtime 999\r\n", "OK\r\n");
        let early = !is_served(&server, "k");
        check(&server, "debugtime 1\r\n", "OK\r\n");
        match (early, is_served(&server, "k")) {
            (false, false) => Ok(()),
            (early, late) => Err(format!("a second early: {early}, late: {late}")),
        }
    });
}

/// Lives from 128 s on that begin with a write are rounded down to whole units of their TTL bucket.
#[test]
fn long_relative_ttls_end_within_a_64th() {
    for life in [129_u64, 1000, 3600, 86_400, 2_000_000] {
        within_a_second(|_| {
            let server = server();
            server.talk(format!("set k 0 {life} 1\r\nv\r\n").as_bytes());
            check(&server, &format!("debugtime {}\r\n", life - life / 64 - 1), "OK\r\n");
            let early = !is_served(&server, "k");
            check(&server, &format!("debugtime {}\r\n", life / 64 + 1), "OK\r\n");
            match (early, is_served(&server, "k")) {
                (false, false) => Ok(()),
                (early, late) => Err(format!("{life}: too early {early}, late {late}")),
            }
        });
    }
}

#[test]
fn dumps_and_meta_commands_show_unix_times_exactly() {
    within_a_second(|started| {
        let (server, life) = (server(), 86_399);
        let end = started + life;
        server.talk(format!("set k 0 {end} 1\r\nv\r\n").as_bytes());
        let (left, dump) = (left(&server, "k"), server.talk(b"lru_crawler metadump all\r\n"));
        let dump = String::from_utf8_lossy(&dump).into_owned();
        match (life - 1..=life).contains(&left) && dump.contains(&format!(" exp={end} ")) {
            true => Ok(()),
            false => Err(format!("{left} of {life} s are left; {end} is not in {dump}")),
        }
    });
}

#[test]
fn time_has_an_end_and_does_not_overflow() {
    let server = server();
    check(&server, "set k 0 0 1\r\nv\r\nset m 0 2592000 1\r\nv\r\n", "STORED\r\nSTORED\r\n");
    check(&server, &"debugtime 4294967295\r\n".repeat(10_000), &"OK\r\n".repeat(10_000));
    check(&server, "get k m\r\n", "VALUE k 0 1\r\nv\r\nEND\r\n");
    check(&server, "set m 0 1000 1\r\nv\r\n", "STORED\r\n");
    assert_about(left(&server, "m"), 1000);
}

#[test]
fn what_is_no_number_of_seconds_is_refused() {
    let server = server();
    for line in ["debugtime", "debugtime x", "debugtime -1", "debugtime 4294967296", "debugtime 1 2", "debugtime p"] {
        check(&server, &format!("{line}\r\n"), "ERROR\r\n");
    }
}

#[test]
fn without_the_option_the_command_is_unknown() {
    let server = TestServer::new();
    check(&server, "set k 0 1000 1\r\nv\r\ndebugtime 1000\r\n", "STORED\r\nERROR\r\n");
    assert!(left(&server, "k") >= 1000 - SLACK);
    assert!(server.stat("uptime") < SLACK);
}

#[test]
fn clients_cannot_move_a_manual_clock() {
    let cache = Cache::builder().memory(ByteSize::mib(64)).clock(Clock::Manual).build().expect("a cache");
    let options = ServerOptions { test_clock: true, ..options() };
    let running = Server::bind(options, cache).expect("a server").start().expect("threads");
    let mut stream = std::net::TcpStream::connect(running.local_addrs()[0]).expect("a connection");
    std::io::Write::write_all(&mut stream, b"debugtime 5\r\nquit\r\n").expect("a write");
    assert_bytes(&crate::common::read_to_end(&mut stream), b"ERROR\r\n");
    running.stop().expect("a clean stop");
}
