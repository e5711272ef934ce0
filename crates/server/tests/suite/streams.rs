//! Commands and values as the network cuts them, slow readers, and connections that go away.

use std::io::{Read, Write};

use crate::common::{TestServer, assert_bytes, hit, options, read_exactly, read_to_end, set, stat, value};
use ebbtide::memcached::{ByteSize, Cache};
use ebbtide_server::ServerOptions;
use ebbtide_testkit::Random;

/// A bit of everything, and its answers.
fn script() -> (Vec<u8>, Vec<u8>) {
    let input = b"set a 1 0 3\r\nabc\r\nget a b\r\nset b 0 0 0 noreply\r\n\r\ngets\r\nget b\nincr b 1\r\n\r\n\
        add c 0 0 2\r\n10\r\nincr c 5\r\nset a 0 0 1\r\nxyz\r\ngat 0 a c\r\ntouch z 1\r\ndelete a 0\r\nget a c\r\nversion\r\n";
    let output = b"STORED\r\nVALUE a 1 3\r\nabc\r\nEND\r\nCLIENT_ERROR bad command line format\r\nVALUE b 0 0\r\n\r\nEND\r\n\
        CLIENT_ERROR cannot increment or decrement non-numeric value\r\nCLIENT_ERROR bad command line format\r\nSTORED\r\n15\r\n\
        CLIENT_ERROR bad data chunk\r\nCLIENT_ERROR bad command line format\r\nVALUE a 1 3\r\nabc\r\nVALUE c 0 2\r\n15\r\nEND\r\nNOT_FOUND\r\nDELETED\r\n\
        VALUE c 0 2\r\n15\r\nEND\r\nVERSION 1.6.45\r\n";
    (input.to_vec(), output.to_vec())
}

#[test]
fn a_pipeline_is_independent_of_its_cuts() {
    let server = TestServer::new();
    let (input, expected) = script();
    assert_bytes(&server.talk(&input), &expected);
    for cut in 1..input.len() {
        server.talk(b"flush_all\r\n");
        let mut stream = server.connect();
        stream.write_all(&input[..cut]).expect("a write");
        // The answer to a ping on another connection comes later than the first part, as often as not.
        server.talk(b"version\r\n");
        stream.write_all(&input[cut..]).expect("a write");
        let answer = read_exactly(&mut stream, expected.len());
        assert_bytes(&answer, &expected);
    }
}

#[test]
fn single_bytes_are_enough() {
    let server = TestServer::new();
    let (input, expected) = script();
    let mut stream = server.connect();
    for byte in &input {
        stream.write_all(&[*byte]).expect("a write");
    }
    assert_bytes(&read_exactly(&mut stream, expected.len()), &expected);
}

#[test]
fn long_multigets_answer_every_key_in_order() {
    let server = TestServer::new();
    let keys: Vec<String> = (0..20_000).map(|n| format!("key-{n}")).collect();
    let mut input = Vec::new();
    let mut expected = Vec::new();
    for key in keys.iter().step_by(2) {
        input.extend(set(key, key.as_bytes()));
        expected.extend(b"STORED\r\n");
    }
    for _ in 0..2 {
        input.extend(format!("get {}\r\n", keys.join(" ")).as_bytes());
        for key in keys.iter().step_by(2) {
            expected.extend(hit(key, key.as_bytes()));
        }
        expected.extend(b"END\r\n");
    }
    input.extend(b"gat 0 key-0 key-1 key-2\r\n");
    expected.extend([hit("key-0", b"key-0"), hit("key-2", b"key-2"), b"END\r\n".to_vec()].concat());
    let mut stream = server.connect();
    let mut writer = stream.try_clone().expect("a clone");
    let writing = std::thread::spawn(move || writer.write_all(&input).expect("a write"));
    assert_bytes(&read_exactly(&mut stream, expected.len()), &expected);
    writing.join().expect("a writer");
    assert_eq!(server.stat("get_hits"), 20_000);
    assert_eq!(server.stat("get_misses"), 20_000);
}

/// Random commands on few keys, most of them changes; each with its end.
fn random_commands(random: &mut Random, count: usize) -> Vec<Vec<u8>> {
    let command = |random: &mut Random| {
        let key = format!("k{}", random.uniform(12));
        let noreply = if random.chance(20) { " noreply" } else { "" };
        let length = [0, 1, 3, 40, 900, 5_000, 20_000, 70_000][random.uniform(8) as usize];
        let number = random.uniform(1000).to_string();
        let stored = |verb: &str, value: &[u8]| {
            [format!("{verb} {key} 5 0 {}{noreply}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
        };
        match random.uniform(16) {
            0..4 => stored("set", &value(length)),
            4 => stored("set", number.as_bytes()),
            5 => stored("add", &value(length)),
            6 => stored("replace", &value(length)),
            7 => stored("append", number.as_bytes()),
            8 => [format!("ms {key} {length} T0 k\r\n").as_bytes(), &value(length), b"\r\n"].concat(),
            9 => format!("md {key} q\r\nma {key} v\r\n").into_bytes(),
            10 => format!("delete {key}{noreply}\r\n").into_bytes(),
            11 => format!("incr {key} {number}{noreply}\r\n").into_bytes(),
            12 => format!("touch {key} 100\r\n").into_bytes(),
            13 => format!("get {key} k1 none k2\r\n").into_bytes(),
            14 => format!("mg {key} v f k\r\ngat 0 k3 {key}\r\n").into_bytes(),
            _ => format!("incr {key} y\r\nset {key} 0 0 2\r\nlong\r\n").into_bytes(),
        }
    };
    (0..count).map(|_| command(random)).collect()
}

#[test]
fn pipelined_changes_answer_as_single_ones() {
    // Long values take several segments.
    let servers = [(); 2].map(|()| {
        let cache = Cache::builder().memory(ByteSize::mib(16)).segment_size(ByteSize::kib(4)).build().expect("a cache");
        TestServer::around(cache, options())
    });
    let mut random = Random::new(9);
    for _ in 0..8 {
        let commands = random_commands(&mut random, 400);
        let one_by_one: Vec<u8> = commands.iter().flat_map(|command| servers[0].talk(command)).collect();
        // The pieces arrive while others are executed, and the answers, which are read late, fill the output.
        let mut stream = servers[1].connect();
        let mut writer = stream.try_clone().expect("a clone");
        let writing = std::thread::spawn(move || writer.write_all(&commands.concat()).expect("a write"));
        let answer = read_exactly(&mut stream, one_by_one.len());
        assert_bytes(&answer, &one_by_one);
        writing.join().expect("a writer");
    }
    servers.iter().for_each(|server| server.cache.verify());
}

#[test]
fn values_of_every_size_go_in_and_out() {
    let server = TestServer::new();
    for length in [1, 8_191, 8_193, 32_768, 65_535, 65_536, 1 << 20, (1 << 20) + 1, 5 << 20, 16 << 20] {
        let value = value(length);
        let input = [&set("k", &value)[..], b"get k nothing\r\ngat 0 k\r\nversion\r\n"].concat();
        let expected =
            [&b"STORED\r\n"[..], &hit("k", &value), b"END\r\n", &hit("k", &value), b"END\r\nVERSION 1.6.45\r\n"]
                .concat();
        let mut stream = server.connect();
        stream.write_all(&input).expect("a write");
        let answer = read_exactly(&mut stream, expected.len());
        assert!(answer == expected, "a value of {length} bytes");
    }
}

#[test]
fn large_and_small_values_keep_their_order() {
    let server = TestServer::new();
    let sizes = [10, 70_000, 0, 300_000, 65_536, 100, 1 << 20];
    let mut expected = Vec::new();
    let mut input = Vec::new();
    for (n, size) in sizes.iter().enumerate() {
        server.talk(&set(&format!("k{n}"), &value(*size)));
    }
    for _ in 0..20 {
        input.extend(b"get k0 k1 k2 k3 none k4 k5 k6\r\nversion\r\ngat 0 k6 k1\r\n");
        for (n, size) in sizes.iter().enumerate() {
            expected.extend(hit(&format!("k{n}"), &value(*size)));
        }
        expected.extend(b"END\r\nVERSION 1.6.45\r\n");
        expected.extend([hit("k6", &value(1 << 20)), hit("k1", &value(70_000)), b"END\r\n".to_vec()].concat());
    }
    let mut stream = server.connect();
    stream.write_all(&input).expect("a write");
    let answer = read_exactly(&mut stream, expected.len());
    assert!(answer == expected);
}

#[test]
fn a_dropped_connection_during_set_keeps_the_old() {
    let server = TestServer::new();
    assert_bytes(&server.talk(b"set k 0 0 3\r\nold\r\n"), b"STORED\r\n");
    for length in [100, 100_000, 4 << 20] {
        let mut stream = server.connect();
        let set = set("k", &value(length));
        stream.write_all(&set[..set.len() - 3]).expect("a write");
        drop(stream);
        server.wait_for("the close", || server.stat("curr_connections") == 1);
        assert_bytes(&server.talk(b"get k\r\n"), &[&hit("k", b"old")[..], b"END\r\n"].concat());
    }
}

#[test]
fn who_does_not_read_is_not_read_from() {
    let server = TestServer::new();
    let value = value(60_000);
    server.talk(&set("k", &value));
    let mut stream = server.connect();
    let gets = 2_000;
    stream.write_all(&b"get k\r\n".repeat(gets)).expect("a write");
    server.wait_for("backpressure", || {
        server.talk(b"stats conns\r\n").windows(11).any(|window| window == b"conn_mwrite")
    });
    // The server executes gets up to the sockets' buffers, and a little more; other clients are served meanwhile.
    let executed = stat(&server.talk(b"stats\r\n"), "get_hits");
    assert!(executed < gets as u64 / 2, "{executed} of {gets}");
    let expected = [&hit("k", &value)[..], b"END\r\n"].concat();
    for _ in 0..gets {
        assert!(read_exactly(&mut stream, expected.len()) == expected);
    }
    assert_eq!(server.stat("get_hits"), gets as u64);
}

#[test]
fn half_closed_connections_get_their_answers() {
    let server = TestServer::new();
    server.talk(&set("k", &value(200_000)));
    let mut stream = server.connect();
    stream.write_all(&b"get k\r\n".repeat(50)).expect("a write");
    stream.shutdown(std::net::Shutdown::Write).expect("a shutdown");
    let expected = [&hit("k", &value(200_000))[..], b"END\r\n"].concat().repeat(50);
    assert!(read_to_end(&mut stream) == expected);
}

#[test]
fn endless_lines_are_cut_off() {
    let server = TestServer::new();
    let mut stream = server.connect();
    stream.write_all(&[b'x'; 2049]).expect("a write");
    let mut answer = Vec::new();
    // Closing with bytes unread may look like a reset; either way there is no answer.
    let _ = stream.read_to_end(&mut answer);
    assert_bytes(&answer, b"");
    server.wait_for("the close", || server.stat("curr_connections") == 1);
}

#[test]
fn a_busy_connection_gives_way() {
    let pipeline = b"version\r\n".repeat(50_000);
    let answers = b"VERSION 1.6.45\r\n".repeat(50_000);
    let yields = |requests_per_event| {
        let server = TestServer::with(ServerOptions { requests_per_event, ..options() });
        let mut stream = server.connect();
        let mut writer = stream.try_clone().expect("a clone");
        let pipeline = pipeline.clone();
        let writing = std::thread::spawn(move || writer.write_all(&pipeline).expect("a write"));
        assert!(read_exactly(&mut stream, answers.len()) == answers);
        writing.join().expect("a writer");
        server.stat("conn_yields")
    };
    assert_eq!(yields(1_000_000), 0);
    assert!(yields(1) > 0);
}
