//! Bytes in, bytes out, as memcached 1.6.45 answers them.

use crate::common::{TestServer, assert_bytes, hit, options, read_exactly, set, value};
use ebbtide::memcached::{ByteSize, Cache};
use ebbtide_server::ServerOptions;
use std::io::Write;

#[track_caller]
fn check(server: &TestServer, input: &str, expected: &str) {
    assert_bytes(&server.talk(input.as_bytes()), expected.as_bytes());
}

#[test]
fn values_come_back_as_they_were_stored() {
    let server = TestServer::new();
    check(&server, "get k\r\n", "END\r\n");
    check(
        &server,
        "set k 7 0 3\r\nabc\r\nget k\r\ngat 0 k\r\n",
        "STORED\r\nVALUE k 7 3\r\nabc\r\nEND\r\nVALUE k 7 3\r\nabc\r\nEND\r\n",
    );
    check(
        &server,
        "set e 4294967295 0 0\r\n\r\nget e none k\r\n",
        "STORED\r\nVALUE e 4294967295 0\r\n\r\nVALUE k 7 3\r\nabc\r\nEND\r\n",
    );
    check(&server, "set k 0 0 2 noreply\r\nxy\r\nget k\r\n", "VALUE k 0 2\r\nxy\r\nEND\r\n");
}

#[test]
fn a_pipelined_get_sees_the_set_before_it() {
    let server = TestServer::new();
    check(
        &server,
        "set k 0 0 1\r\n1\r\nget k\r\nset k 0 0 1\r\n2\r\nget k k\r\ndelete k\r\nget k\r\nversion\r\n",
        "STORED\r\nVALUE k 0 1\r\n1\r\nEND\r\nSTORED\r\nVALUE k 0 1\r\n2\r\nVALUE k 0 1\r\n2\r\nEND\r\nDELETED\r\nEND\r\nVERSION 1.6.45\r\n",
    );
}

#[test]
fn storage_modes_keep_their_conditions() {
    let server = TestServer::new();
    check(&server, "replace k 0 0 1\r\nx\r\n", "NOT_STORED\r\n");
    check(&server, "append k 0 0 1\r\nx\r\n", "NOT_STORED\r\n");
    check(&server, "prepend k 0 0 1\r\nx\r\n", "NOT_STORED\r\n");
    check(&server, "cas k 0 0 1 1\r\nx\r\n", "NOT_FOUND\r\n");
    check(&server, "add k 5 0 1\r\nb\r\nadd k 0 0 1\r\nx\r\n", "STORED\r\nNOT_STORED\r\n");
    check(
        &server,
        "append k 9 0 1\r\nc\r\nprepend k 9 0 1\r\na\r\nget k\r\n",
        "STORED\r\nSTORED\r\nVALUE k 5 3\r\nabc\r\nEND\r\n",
    );
    check(&server, "replace k 0 0 1\r\nz\r\nget k\r\n", "STORED\r\nVALUE k 0 1\r\nz\r\nEND\r\n");
}

#[test]
fn cas_needs_the_token_of_the_last_change() {
    let server = TestServer::new();
    let token = |server: &TestServer| {
        let answer = String::from_utf8(server.talk(b"gets k\r\n")).expect("text");
        let line = answer.lines().next().expect("a line").to_string();
        line.rsplit(' ').next().expect("a token").to_string()
    };
    check(&server, "set k 0 0 1\r\n1\r\n", "STORED\r\n");
    let first = token(&server);
    check(&server, &format!("cas k 0 0 1 {first}\r\n2\r\n"), "STORED\r\n");
    check(&server, &format!("cas k 0 0 1 {first}\r\n3\r\n"), "EXISTS\r\n");
    let second = token(&server);
    check(&server, "incr k 1\r\n", "3\r\n");
    check(&server, &format!("cas k 0 0 1 {second}\r\n3\r\n"), "EXISTS\r\n");
    let stats = server.talk(b"stats\r\n");
    assert_eq!(crate::common::stat(&stats, "cas_hits"), 1);
    assert_eq!(crate::common::stat(&stats, "cas_badval"), 2);
}

#[test]
fn numbers_count_up_and_down() {
    let server = TestServer::new();
    check(&server, "incr n 1\r\ndecr n 1\r\n", "NOT_FOUND\r\nNOT_FOUND\r\n");
    check(
        &server,
        "set n 0 0 2\r\n10\r\nincr n 5\r\ndecr n 6\r\nget n\r\n",
        "STORED\r\n15\r\n9\r\nVALUE n 0 2\r\n9 \r\nEND\r\n",
    );
    check(&server, "decr n 100\r\nincr n 18446744073709551615\r\nincr n 2\r\n", "0\r\n18446744073709551615\r\n1\r\n");
    check(
        &server,
        "set s 0 0 1\r\nx\r\nincr s 1\r\n",
        "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
    );
    check(&server, "incr n 1 noreply\r\nincr n x\r\n", "CLIENT_ERROR invalid numeric delta argument\r\n");
}

#[test]
fn exptimes_end_lives() {
    let server = TestServer::new();
    check(&server, "set k 0 -1 1\r\nx\r\nget k\r\n", "STORED\r\nEND\r\n");
    check(&server, "set k 0 2592001 1\r\nx\r\nget k\r\n", "STORED\r\nEND\r\n");
    check(&server, "set k 0 2592000 1\r\nx\r\nget k\r\n", "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n");
    check(&server, "touch k 2592001\r\nget k\r\ntouch k 1\r\n", "TOUCHED\r\nEND\r\nNOT_FOUND\r\n");
    check(&server, "set k 0 0 1\r\nx\r\ngat -1 k\r\nget k\r\n", "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\nEND\r\n");
    check(
        &server,
        "gat 10 k\r\ngats x k\r\ngat 1\r\n",
        "END\r\nCLIENT_ERROR invalid exptime argument\r\nCLIENT_ERROR bad command line format\r\n",
    );
}

#[test]
fn administration_answers_as_memcached() {
    let server = TestServer::new();
    check(&server, "set k 0 0 1\r\nx\r\nflush_all\r\nget k\r\n", "STORED\r\nOK\r\nEND\r\n");
    check(
        &server,
        "flush_all -1\r\nflush_all 0 noreply\r\nflush_all x\r\n",
        "OK\r\nCLIENT_ERROR invalid exptime argument\r\n",
    );
    check(&server, "verbosity 9\r\nverbosity 0 noreply\r\n", "OK\r\n");
    check(
        &server,
        "shutdown\r\nshutdown nonsense\r\n",
        "ERROR: shutdown not enabled\r\nERROR: shutdown not enabled\r\n",
    );
    check(
        &server,
        "cache_memlimit 1\r\ncache_memlimit 2000000000\r\ncache_memlimit 300\r\n",
        "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\nMEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\nOK\r\n",
    );
    assert_eq!(server.stat("limit_maxbytes"), 300 << 20);
    check(&server, "nonsense\r\nversion\r\n", "ERROR\r\nVERSION 1.6.45\r\n");
    check(&server, "quit\r\nversion\r\n", "");
}

#[test]
fn too_large_values_are_discarded_with_the_old() {
    let server = TestServer::new();
    let large = value((16 << 20) + 1);
    let input = [&set("k", b"old")[..], &set("k", &large), b"get k\r\nversion\r\n"].concat();
    assert_bytes(
        &server.talk(&input),
        b"STORED\r\nSERVER_ERROR object too large for cache\r\nEND\r\nVERSION 1.6.45\r\n",
    );
    let silent = [&set("k", b"old")[..], b"add k 0 0 16777217 noreply\r\n", &large, b"\r\nget k\r\n"].concat();
    assert_bytes(&server.talk(&silent), &[b"STORED\r\n", &hit("k", b"old")[..], b"END\r\n"].concat());
    assert_eq!(server.stat("store_too_large"), 2);
}

#[test]
fn bad_data_chunks_leave_the_old_value() {
    let server = TestServer::new();
    check(
        &server,
        "set k 0 0 3\r\nold\r\nset k 0 0 3\r\nabcdef\r\nget k\r\n",
        "STORED\r\nCLIENT_ERROR bad data chunk\r\nCLIENT_ERROR bad command line format\r\nVALUE k 0 3\r\nold\r\nEND\r\n",
    );
    for length in [20_000, 2 << 20] {
        // The value arrives in pieces, and its end is one byte late.
        let input = [format!("set k 0 0 {length}\r\n").as_bytes(), &value(length + 1), b"\r\nget k\r\n"].concat();
        let expected = [
            b"CLIENT_ERROR bad data chunk\r\nCLIENT_ERROR bad command line format\r\n",
            &hit("k", b"old")[..],
            b"END\r\n",
        ]
        .concat();
        assert_bytes(&server.talk(&input), &expected);
    }
}

#[test]
fn forbidden_commands_are_refused_before_their_arguments() {
    let server = TestServer::with(ServerOptions { allow_flush: false, allow_watch: false, ..options() });
    assert_bytes(&server.talk(b"flush_all x\r\n"), b"CLIENT_ERROR flush_all not allowed\r\n");
    assert_bytes(&server.talk(b"watch foo\r\n"), b"CLIENT_ERROR watch commands not allowed\r\n");
    let server = TestServer::new();
    assert_bytes(&server.talk(b"flush_all x\r\nwatch foo\r\n"), b"CLIENT_ERROR invalid exptime argument\r\nERROR\r\n");
}

/// Answers that memcached loses: to commands before a line that closes, and before a key that is too long.
#[test]
fn earlier_answers_of_a_packet_arrive() {
    let server = TestServer::new();
    check(&server, "set k 0 0 1\r\nv\r\nGET / HTTP/1.1\r\nget k\r\n", "STORED\r\n");
    let long = "k".repeat(251);
    let input = format!("set k 0 0 1\r\nv\r\nget {long}\r\nget k\r\n");
    check(&server, &input, "STORED\r\nCLIENT_ERROR bad command line format\r\nVALUE k 0 1\r\nv\r\nEND\r\n");
}

/// memcached takes the first word that begins so.
#[test]
fn words_that_are_cut_short_are_refused() {
    let server = TestServer::new();
    server.talk(b"set k 0 0 1\r\nv\r\n");
    for line in ["stats res", "watch f", "slabs a 1", "lru mode f", "lru_crawler e"] {
        let answer = server.talk(format!("{line}\r\n").as_bytes());
        assert!(answer.starts_with(b"ERROR") || answer.starts_with(b"CLIENT_ERROR"), "{line}: {answer:?}");
    }
    assert!(server.stat("cmd_set") == 1, "stats res did not reset");
}

#[test]
fn a_value_of_the_limit_is_stored() {
    let cache = Cache::builder().memory(ByteSize::mib(64)).max_value(ByteSize::mib(1)).build().expect("a cache");
    let server = TestServer::around(cache, options());
    let value = "v".repeat(1 << 20);
    check(&server, &format!("set k 0 0 1048576\r\n{value}\r\n"), "STORED\r\n");
    // A longer value is answered before it arrives.
    let mut stream = server.connect();
    stream.write_all(b"set k 0 0 2147483645\r\n").expect("a write");
    let expected = b"SERVER_ERROR object too large for cache\r\n";
    assert_bytes(&read_exactly(&mut stream, expected.len()), expected);
}

#[test]
fn without_evictions_a_refused_value_keeps_the_old() {
    let cache = Cache::builder().memory(ByteSize::mib(4)).max_value(ByteSize::mib(1)).evict(false);
    let server = TestServer::around(cache.build().expect("a cache"), options());
    server.talk(b"set k 0 0 3\r\nold\r\n");
    let value = "v".repeat(1_000_000);
    let refused = (0..8).filter(|number| {
        let answer = server.talk(format!("set filler{number} 0 0 1000000\r\n{value}\r\n").as_bytes());
        answer.starts_with(b"SERVER_ERROR")
    });
    assert!(refused.count() > 0, "the memory holds four of them at most");
    let answer = server.talk(format!("ms k 1000000 ME\r\n{value}\r\n").as_bytes());
    assert!(answer.starts_with(b"SERVER_ERROR"), "{}", String::from_utf8_lossy(&answer));
    check(&server, "get k\r\n", "VALUE k 0 3\r\nold\r\nEND\r\n");
}

#[test]
fn without_evictions_deleted_memory_is_used_again() {
    let cache = Cache::builder().memory(ByteSize::mib(4)).max_value(ByteSize::mib(1)).evict(false);
    let server = TestServer::around(cache.build().expect("a cache"), options());
    let is_stored = |number: &u32| server.cache.insert(&number.to_be_bytes(), &[b'v'; 300]).apply().is_ok();
    let stored = (0..).take_while(is_stored).count() as u32;
    let deleted = (0..stored).step_by(11).filter(|number| server.cache.delete(&number.to_be_bytes())).count();
    assert!(deleted > 900, "{deleted} of {stored}");
    let sets = deleted * 4 / 5;
    let commands: String =
        (0..sets).map(|number| format!("set new{number} 0 0 300\r\n{}\r\n", "v".repeat(300))).collect();
    check(&server, &commands, &"STORED\r\n".repeat(sets));
}
