//! No byte of a value is executed: refused storage commands over a socket, for each command and each way to be refused.

use std::io::Write;

use crate::common::{TestServer, assert_bytes, read_to_end};

const BAD: &str = "CLIENT_ERROR bad command line format\r\n";
/// Commands, and the words behind the length.
const STORES: [(&str, &str); 6] =
    [("set", ""), ("add", ""), ("replace", ""), ("append", ""), ("prepend", ""), ("cas", " 7")];
/// Values that do damage as commands: at once, behind a dropped byte or two, and larger than a buffer.
const VALUES: [&str; 3] = ["flush_all", "ab\r\nflush_all\r\nstats\r\nset victim 0 0 1\r\nx", "\nflush_all\r\nshutdown"];

fn server() -> TestServer {
    let server = TestServer::new();
    server.cache.insert(b"victim", b"alive").apply().expect("space");
    server
}

fn values() -> Vec<String> {
    let long = "flush_all\r\n".repeat(4000);
    VALUES.iter().map(|value| (*value).to_owned()).chain([long]).collect()
}

/// Checks the answers to a line with a value and the commands behind it, in one piece and in two.
#[track_caller]
fn check(server: &TestServer, line: &str, value: &str, expected: &str) {
    let input = format!("{line}\r\n{value}\r\nget victim\r\nmn\r\nquit\r\n");
    for cut in [0, line.len() + 5] {
        let mut stream = server.connect();
        let (first, second) = input.as_bytes().split_at(cut);
        for part in [first, second] {
            // A connection that was closed on the first part takes no second one.
            let _ = stream.write_all(part);
        }
        assert_bytes(&read_to_end(&mut stream), expected.as_bytes());
    }
    assert!(server.cache.contains(b"victim"), "{line}");
    assert_eq!(
        server.cache.get(b"victim").item().map(ebbtide::memcached::Item::to_vec),
        Some(b"alive".to_vec()),
        "{line}"
    );
}

const GOES_ON: &str = "VALUE victim 0 5\r\nalive\r\nEND\r\nMN\r\n";

#[test]
fn a_refused_value_of_known_length_is_dropped() {
    let server = server();
    let long_key = "k".repeat(251);
    for value in values() {
        let length = value.len();
        for (command, token) in STORES {
            for head in
                [&*format!("{long_key} 0 0"), "k bad 0", "k -1 0", "k 4294967296 0", "k 0 bad", "k 0 4294967296"]
            {
                let line = format!("{command} {head} {length}{token}");
                check(&server, &line, &value, &format!("{BAD}{GOES_ON}"));
                check(&server, &format!("{line} noreply"), &value, GOES_ON);
            }
        }
        for token in ["", " x", " -1", " 18446744073709551616"] {
            check(&server, &format!("cas k 0 0 {length}{token}"), &value, &format!("{BAD}{GOES_ON}"));
        }
        check(&server, &format!("cas k 0 0 {length} noreply"), &value, GOES_ON);
        let flags = "v f c t h l s k u q I x O1 P1 L1 MS T1 N1";
        for (line, answer) in [
            (format!("ms {long_key} {length}"), BAD),
            (format!("ms k {length} {flags}"), "CLIENT_ERROR options flags are too long\r\n"),
            (format!("ms k {length} Tx q"), "CLIENT_ERROR bad token in command line format\r\n"),
            (format!("ms k {length} F4294967296"), BAD),
            (format!("ms k {length} q y"), "CLIENT_ERROR invalid flag\r\n"),
            (format!("ms k {length} MX"), "CLIENT_ERROR invalid mode for ms M token\r\n"),
            (format!("ms k {length} b"), "CLIENT_ERROR error decoding key\r\n"),
        ] {
            check(&server, &line, &value, &format!("{answer}{GOES_ON}"));
        }
    }
    assert_eq!(server.cache.stats().items, 1, "nothing was stored");
}

#[test]
fn a_connection_closes_where_a_length_is_unknown() {
    let server = server();
    for value in VALUES {
        let length = value.len();
        for (command, token) in STORES {
            for word in ["x", "-1", "+9", "2147483646", "4294967298", "18446744073709551618"] {
                check(&server, &format!("{command} k 0 0 {word}{token}"), value, BAD);
                check(&server, &format!("{command} k 0 0 {word}{token} noreply"), value, BAD);
            }
            for key in ["", "a b", "a 0", "a 0 0 2"] {
                check(&server, &format!("{command} {key} 0 0 {length}{token}"), value, BAD);
            }
        }
        for line in ["ms k x", "ms k -1", "ms k 4294967298", "ms a b 9", "ms  9", "ms  9 T0"] {
            check(&server, line, value, BAD);
        }
        check(&server, &format!("ms a 0 {length} T0"), value, "CLIENT_ERROR invalid flag\r\n");
    }
    assert_eq!(server.cache.stats().items, 1, "nothing was stored");
}

#[test]
fn a_nul_is_part_of_a_key() {
    let server = TestServer::new();
    let input = b"set K 0 0 1\r\nx\r\nset K\0a 0 0 2\r\nab\r\nget K\0a\r\nget K\0y\r\ndelete K\0y\r\nmd K\0y\r\n\
        incr K\0y 1\r\ntouch K\0y 5\r\nget K\r\n";
    let expected = b"STORED\r\nSTORED\r\nVALUE K\0a 0 2\r\nab\r\nEND\r\nEND\r\nNOT_FOUND\r\nNF\r\n\
        NOT_FOUND\r\nNOT_FOUND\r\nVALUE K 0 1\r\nx\r\nEND\r\n";
    assert_bytes(&server.talk(input), expected);
}

/// Arguments that would be small numbers, or none at all, if they were cut to the bits of their type.
#[test]
fn numbers_beyond_their_type_are_refused() {
    let server = TestServer::new();
    server.talk(b"set n 0 0 2\r\n10\r\n");
    let exptime = "CLIENT_ERROR invalid exptime argument\r\n";
    let token = "CLIENT_ERROR bad token in command line format\r\n";
    for (line, answer) in [
        ("incr n -18446744073709551615", "CLIENT_ERROR invalid numeric delta argument\r\n"),
        ("decr n +1", "CLIENT_ERROR invalid numeric delta argument\r\n"),
        ("ma n D-18446744073709551615 v", "CLIENT_ERROR invalid or duplicate flag\r\n"),
        ("ma fresh N0 J-18446744073709551615 v", "CLIENT_ERROR invalid or duplicate flag\r\n"),
        ("touch n 4294967296", exptime),
        ("touch n 4294967297", exptime),
        ("touch n 2147483648", exptime),
        ("touch n 99999999999", exptime),
        ("touch n +5", exptime),
        ("gat 4294967297 n", exptime),
        ("gats 2147483648 n", exptime),
        ("flush_all 4294967296", exptime),
        ("flush_all +0", exptime),
        ("mg n T4294967297", token),
        ("mg n N99999999999", token),
        ("mg n R4294967296", token),
        ("md n I T2147483648", token),
        ("md n C-0", token),
        ("verbosity 4294967296", BAD),
        ("cache_memlimit 4294967360", "ERROR\r\n"),
    ] {
        assert_bytes(&server.talk(format!("{line}\r\n").as_bytes()), answer.as_bytes());
    }
    assert_bytes(&server.talk(b"mg n v t f\r\nmg fresh\r\n"), b"VA 2 t-1 f0\r\n10\r\nEN\r\n");
}
