//! The admin HTTP: paths, allowed clients, content of answers.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread;

use crate::common::{PATIENCE, TestServer, hit, options, set, stat};
use ebbtide::memcached::{ByteSize, Cache, PoolOptions};
use ebbtide_server::{Admin, Error, FleetOptions, Server, ServerOptions, run_fleet};
use serde_json::Value;

fn admin_at(address: SocketAddr, required: bool) -> ServerOptions {
    ServerOptions { admin: Some(Admin { address, required }), ..options() }
}

fn with_admin() -> ServerOptions {
    admin_at((Ipv4Addr::LOCALHOST, 0).into(), true)
}

fn connect(server: &TestServer) -> TcpStream {
    connect_to(server.admin.expect("an admin address"))
}

fn connect_to(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("an option");
    stream
}

/// Status, head and body of the answer to one request.
fn ask(server: &TestServer, request: &str) -> (u16, String, String) {
    exchange(connect(server), request)
}

fn exchange(mut stream: TcpStream, request: &str) -> (u16, String, String) {
    stream.write_all(request.as_bytes()).expect("a write");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, head.to_lowercase(), body.to_string())
}

fn get(server: &TestServer, path: &str) -> (u16, String, String) {
    ask(server, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
}

fn json(server: &TestServer, path: &str) -> Value {
    let (status, head, body) = get(server, path);
    assert_eq!(status, 200, "{body}");
    assert!(head.contains("content-type: application/json"), "{head}");
    // Answers of unknown length come in chunks; these have one.
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

#[test]
fn paths_methods_and_health() {
    let server = TestServer::with(with_admin());
    assert_eq!(get(&server, "/healthz").0, 200);
    assert_eq!(get(&server, "/readyz").0, 200);
    for path in ["/nothing", "/api/", "/api/overview/x", "/../etc/passwd", "/%2e%2e"] {
        assert_eq!(get(&server, path).0, 404, "{path}");
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let (status, head, _) =
            ask(&server, &format!("{method} /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
        assert_eq!(status, 405, "{method}");
        assert!(head.contains("allow: get"), "{head}");
    }
    let (status, head, body) = ask(&server, "HEAD /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_eq!((status, body.as_str()), (200, ""));
    assert!(head.contains("x-content-type-options: nosniff") && head.contains("cache-control: no-store"));
}

#[test]
fn only_requests_for_this_host_are_answered() {
    let server = TestServer::with(with_admin());
    for (host, status) in [("localhost:1", 200), ("127.0.0.1", 200), ("[::1]:80", 200), ("evil.example", 403)] {
        let request = format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        assert_eq!(ask(&server, &request).0, status, "{host}");
    }
}

#[test]
fn the_fleet_answers_only_requests_for_this_host() {
    let (started, at) = mpsc::channel();
    let options = FleetOptions { listen: (Ipv4Addr::LOCALHOST, 0).into(), nodes: Vec::new() };
    // The page is served until the process ends.
    thread::spawn(move || run_fleet(&options, |address| started.send(address).expect("a test that waits")));
    let address = at.recv_timeout(PATIENCE).expect("the page is served");
    for path in ["/", "/api/fleet"] {
        for (host, status) in [("localhost:1", 200), ("127.0.0.1", 200), ("evil.example", 403)] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            let (answered, head, body) = exchange(connect_to(address), &request);
            assert_eq!((answered, body.contains("use one of these")), (status, status == 403), "{path} of {host}");
            assert!(head.contains("cache-control: no-store"), "{head}");
        }
    }
}

#[test]
fn the_overview_counts_what_was_done() {
    let server = TestServer::with(with_admin());
    server.talk(
        &[set("k", b"value"), b"get k\r\nget none\r\nadd k 0 0 1\r\nx\r\ndelete none\r\nincr none 1\r\n".to_vec()]
            .concat(),
    );
    server.talk(b"set long 0 60 3\r\nabc\r\nset gone 0 1 3\r\nabc\r\nstats reset\r\n");
    let seen = json(&server, "/api/overview");
    assert_eq!(seen["commands"]["get"]["hits"], 1);
    assert_eq!(seen["commands"]["get"]["misses"], 1);
    assert_eq!(seen["commands"]["set"]["stored"], 3);
    assert_eq!(seen["commands"]["set"]["not_stored"], 1);
    assert_eq!(seen["commands"]["delete"]["misses"], 1);
    assert_eq!(seen["commands"]["incr"]["misses"], 1);
    assert_eq!(seen["items"], 3);
    assert_eq!(seen["connections"]["accepted_total"], 2);
    assert_eq!(seen["threads"], 2);
    let memory = &seen["memory"];
    let sum: u64 = ["live_bytes", "expired_bytes", "dead_bytes", "index_bytes", "metadata_bytes", "free_bytes"]
        .iter()
        .map(|part| memory[part].as_u64().expect("a number"))
        .sum();
    assert_eq!(sum, 256 << 20);
    assert!(memory["resident_bytes"].as_u64().is_some_and(|bytes| bytes > 0));
    let buckets = seen["ttl_buckets"].as_array().expect("a list");
    assert_eq!(buckets.len(), 3);
    assert_eq!(buckets[0]["ttl_seconds_min"], 1);
    let spans_a_minute = &buckets[1];
    assert!(spans_a_minute["ttl_seconds_min"].as_u64().is_some_and(|seconds| seconds <= 60));
    assert!(spans_a_minute["ttl_seconds_max"].as_u64().is_some_and(|seconds| seconds >= 60));
    assert_eq!((&buckets[2]["ttl_seconds_max"], &buckets[2]["items"]), (&Value::Null, &Value::from(1)));
}

#[test]
fn history_and_latencies_come_second_by_second() {
    let server = TestServer::with(with_admin());
    let mut stream = server.connect();
    let sum = |points: &Value, name: &str| -> u64 {
        points.as_array().expect("a list").iter().map(|point| point[name].as_u64().expect("a number")).sum()
    };
    let mut rounds = 0;
    server.wait_for("a point with gets and their latencies", || {
        stream.write_all(&[set("warm", b"v"), b"get warm\r\n".to_vec()].concat()).expect("a write");
        let expected = [b"STORED\r\n".to_vec(), hit("warm", b"v"), b"END\r\n".to_vec()].concat();
        assert_eq!(crate::common::read_exactly(&mut stream, expected.len()), expected);
        rounds += 1;
        let seen = json(&server, "/api/history");
        assert_eq!(seen["step_seconds"], 1);
        let points = &seen["points"];
        let timed = points.as_array().expect("a list").iter().any(|point| point["get_p99_us"].as_f64() > Some(0.0));
        std::thread::sleep(std::time::Duration::from_millis(5));
        sum(points, "gets") > 0 && sum(points, "sets") > 0 && timed
    });
    let seen = json(&server, "/api/overview");
    let get = &seen["latency_us"]["get"];
    assert!(get["count"].as_u64().is_some_and(|count| (1..=rounds).contains(&count)), "{get} of {rounds}");
    assert!(get["p50"].as_f64() <= get["max"].as_f64());
    assert_eq!(seen["hot_keys"][0]["key"], "warm");
    assert!(seen["hot_keys"][0]["share"].as_f64() > Some(0.9));
}

#[test]
fn a_history_longer_than_a_week_is_refused() {
    let server = TestServer::with(with_admin());
    assert_eq!(get(&server, "/api/history?range=604800").0, 200);
    let (status, _, body) = get(&server, "/api/history?range=604801");
    assert_eq!((status, body.as_str()), (400, "range is at most 604800 seconds\n"));
}

/// The lines of `stats ebbtide` with this beginning, as numbers.
fn own_stats(server: &TestServer, beginnings: &[&str]) -> Vec<(String, f64)> {
    let text = String::from_utf8(server.talk(b"stats ebbtide\r\n")).expect("text");
    let pairs = text.lines().filter_map(|line| line.strip_prefix("STAT ")?.split_once(' '));
    let wanted = pairs.filter(|(name, _)| beginnings.iter().any(|beginning| name.starts_with(beginning)));
    wanted.map(|(name, value)| (name.to_owned(), value.parse().expect("a number"))).collect()
}

#[test]
fn numbers_of_now_agree_at_one_moment() {
    let cache = Cache::builder().memory(ByteSize::mib(8)).build().expect("a cache");
    let server = TestServer::around(cache, with_admin());
    let mut written = 0;
    server.wait_for("evictions and gets of the last minute", || {
        let range = written..written + 500;
        written = range.end;
        server.talk(&range.flat_map(|n| set(&format!("flood:{n}"), &[b'x'; 10_000])).collect::<Vec<_>>());
        server.talk(b"set user:1 0 0 1\r\nv\r\nget user:1 user:1 user:1 user:2\r\n");
        let now = &json(&server, "/api/overview")["now"];
        now["hit_ratio"].as_f64() > Some(0.0)
            && now["evictions_per_second"]["all"].as_f64() > Some(0.0)
            && now["evicted_age_seconds"].is_f64()
            && now["unread_share"].as_f64() > Some(0.5)
    });
    let mut seen = (Value::Null, Value::Null, Vec::new());
    let mut own_headline = String::new();
    server.wait_for("all answers from the same second", || {
        let before = json(&server, "/api/overview");
        let own = own_stats(&server, &["now_", "unread", "evicted_"]);
        let text = String::from_utf8(server.talk(b"stats ebbtide\r\n")).expect("text");
        own_headline = text.lines().find_map(|line| line.strip_prefix("STAT headline ")).unwrap_or_default().to_owned();
        let keys = json(&server, "/api/keys");
        let after = json(&server, "/api/overview");
        let is_same = after["now"] == before["now"] && after["headline"] == before["headline"];
        seen = (before, keys, own);
        is_same
    });
    let (overview, keys, own) = seen;
    let now = &overview["now"];
    let told = |name: &str| own.iter().find(|(found, _)| found == name).map(|(_, value)| *value);
    for (name, path) in [
        ("now_seconds", "/seconds"),
        ("now_hit_ratio", "/hit_ratio"),
        ("now_get_per_second", "/commands_per_second/get"),
        ("now_set_per_second", "/commands_per_second/set"),
        ("now_evicted_per_second", "/evictions_per_second/all"),
        ("now_evicted_memory_per_second", "/evictions_per_second/memory"),
        ("now_bytes_read_per_second", "/network_per_second/bytes_read"),
        ("unread_share", "/unread_share"),
        ("evicted_idle_seconds", "/evicted_idle_seconds"),
        ("evicted_age_seconds", "/evicted_age_seconds"),
        ("evicted_unread_share", "/evicted_unread_share"),
    ] {
        let number = now.pointer(path).and_then(Value::as_f64);
        // A text of JSON is read to the last digit but one.
        let is_equal = told(name).zip(number).is_some_and(|(told, number)| (told - number).abs() <= 1e-12 * number);
        assert!(is_equal, "{name}: {:?}, {path}: {number:?}", told(name));
    }
    // The verdict says the hit ratio of the same minute, and the groups of keys share its evictions.
    let percent = format!("{:.1} % of gets hit", now["hit_ratio"].as_f64().expect("a ratio") * 100.0);
    let sentence = overview["headline"]["sentence"].as_str().expect("a sentence");
    assert!(sentence.starts_with(&percent), "{sentence} without {percent}");
    assert_eq!(own_headline, sentence);
    let all = now["evictions_per_second"]["all"].as_f64().expect("a rate");
    for groups in [&keys["prefixes"], &keys["evicted"]["pools"], &keys["evicted"]["sizes"], &keys["evicted"]["ttls"]] {
        let rates = groups.as_array().expect("a list").iter();
        let sum: f64 = rates.map(|row| row["evictions_per_second"].as_f64().expect("a rate")).sum();
        assert!((sum - all).abs() < 1e-6 * all, "{sum} of {all}: {groups}");
    }
}

#[test]
fn keys_are_hidden_when_dumps_are_disabled() {
    for allow_dump in [true, false] {
        let server = TestServer::with(ServerOptions { allow_dump, ..with_admin() });
        server.talk(b"get secret\r\nget secret\r\n");
        let seen = json(&server, "/api/overview");
        assert_eq!(seen["hot_keys"].as_array().expect("a list").is_empty(), !allow_dump);
        assert_eq!(seen["hot_keys_hidden"].is_null(), allow_dump);
    }
}

#[test]
fn a_flush_is_an_event() {
    let server = TestServer::with(with_admin());
    server.wait_for("the event", || {
        server.talk(b"flush_all\r\n");
        std::thread::sleep(std::time::Duration::from_millis(20));
        let seen = json(&server, "/api/overview");
        seen["events"].as_array().expect("a list").iter().any(|event| event["kind"] == "flush")
    });
}

#[test]
fn a_refused_budget_is_an_event() {
    let builder = Cache::builder().memory(ByteSize::mib(32)).max_value(ByteSize::kib(64));
    let server = TestServer::around(builder.pool(PoolOptions::named("tiny")).build().expect("a cache"), with_admin());
    let pool = server.cache.pool("tiny").expect("it was made");
    (0..600_000_u32).for_each(|number| _ = pool.insert(&number.to_le_bytes(), &[]).apply());
    pool.resize(ByteSize::bytes(0), ByteSize::mib(2)).expect("the bounds fit");
    let is_it = |event: &Value| {
        let reason = event["reason"].as_str().expect("a text");
        reason.starts_with("pools: the pool tiny stays at") && reason.contains("the index takes")
    };
    server.wait_for("the event", || {
        let seen = json(&server, "/api/overview");
        let mut events = seen["events"].as_array().expect("a list").iter();
        events.any(|event| event["kind"] == "division" && is_it(event))
    });
    assert_eq!(stat(&server.talk(b"stats ebbtide\r\n"), "pool_budgets_refused"), 1);
    assert_eq!(server.metric("ebbtide_pool_budgets_refused_total"), 1.0);
}

#[test]
fn metrics_are_told() {
    let server = TestServer::with(with_admin());
    server.talk(&[set("k", b"value"), b"get k\r\nget none\r\n".to_vec()].concat());
    let (status, head, body) = get(&server, "/metrics");
    assert_eq!(status, 200);
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    for line in [
        "# TYPE ebbtide_commands_total counter",
        "ebbtide_commands_total{command=\"get\",result=\"hit\"} 1",
        "ebbtide_commands_total{command=\"get\",result=\"miss\"} 1",
        "ebbtide_stores_total{result=\"stored\"} 1",
        "ebbtide_items 1",
    ] {
        assert!(body.lines().any(|found| found == line), "{line} in\n{body}");
    }
    assert!(!body.contains("key=") && !body.contains("none"));
}

/// A request of the binary protocol.
fn packet(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let body = (extras.len() + key.len() + value.len()) as u32;
    let mut bytes = vec![0x80, opcode, 0, key.len() as u8, extras.len() as u8, 0, 0, 0];
    bytes.extend(body.to_be_bytes());
    bytes.extend([0; 12]);
    [&bytes, extras, key, value].concat()
}

#[test]
fn every_dialect_is_timed_by_operation() {
    let expected = ["get", "set", "delete", "incr", "touch", "gat"];
    let text = b"set n 0 0 1\r\n1\r\nget n\r\nincr n 1\r\ntouch n 0\r\ngat 0 n\r\ndelete n\r\n".to_vec();
    let arithmetic = [[0, 0, 0, 0, 0, 0, 0, 1], [0; 8]].concat();
    let binary = [
        packet(0x01, &[0; 8], b"n", b"1"),
        packet(0x00, &[], b"n", b""),
        packet(0x05, &[&arithmetic[..], &[0; 4]].concat(), b"n", b""),
        packet(0x1c, &[0; 4], b"n", b""),
        packet(0x1d, &[0; 4], b"n", b""),
        packet(0x04, &[], b"n", b""),
        packet(0x07, &[], b"", b""),
    ];
    let meta = b"ms n 1\r\n1\r\nmg n v\r\nma n\r\nma n MD\r\ntouch n 0\r\nmg n T0 v\r\nmd n\r\n".to_vec();
    for input in [text, binary.concat(), meta] {
        let server = TestServer::with(with_admin());
        server.wait_for("samples of all", || {
            let mut stream = server.connect();
            stream.write_all(&input).expect("a write");
            std::thread::sleep(std::time::Duration::from_millis(5));
            let page = get(&server, "/metrics").2;
            let counts = |command: &str| {
                let name = format!("ebbtide_command_duration_seconds_count{{command=\"{command}\"}} ");
                let line = page.lines().find_map(|line| line.strip_prefix(&name)).expect("a count");
                line.parse::<u64>().expect("a number")
            };
            expected.iter().all(|command| counts(command) > 0)
        });
    }
}

#[test]
fn silent_clients_are_closed_and_others_served() {
    let server = TestServer::with(with_admin());
    // More than there are places for, all silent in the middle of a request.
    let mut silent: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = connect(&server);
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: lo").expect("a write");
            stream
        })
        .collect();
    assert_eq!(server.talk(b"version\r\n"), b"VERSION 1.6.45\r\n");
    // Each connection ends: refused at once, or after the time limit of a request.
    for stream in &mut silent {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    assert_eq!(get(&server, "/healthz").0, 200);
    let long = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    let mut stream = connect(&server);
    let _ = stream.write_all(long.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&answer));
}

#[test]
fn a_taken_address_fails_only_a_required_admin() {
    let taken = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
    let address = taken.local_addr().expect("an address");
    let cache = Cache::builder().memory(ByteSize::mib(64)).build().expect("a cache");
    let asked = Server::bind(admin_at(address, true), cache.clone());
    assert!(matches!(asked, Err(Error::Admin { .. })));
    let server = Server::bind(admin_at(address, false), cache).expect("a server");
    assert_eq!(server.admin_addr(), None);
}

#[test]
fn without_admin_commands_are_served() {
    let server = TestServer::new();
    assert_eq!(server.admin, None);
    assert_eq!(server.talk(&set("k", b"v")), b"STORED\r\n");
}

#[test]
fn a_stopping_server_says_so() {
    let mut server = TestServer::with(ServerOptions { stop_timeout: PATIENCE, ..with_admin() });
    // A client that does not read delays the end of the server.
    let mut greedy = server.connect();
    greedy.write_all(&set("big", &crate::common::value(8 << 20))).expect("a write");
    crate::common::read_exactly(&mut greedy, b"STORED\r\n".len());
    greedy.write_all(&b"get big\r\n".repeat(20)).expect("a write");
    // The server has read the commands, and begins to answer them.
    crate::common::read_exactly(&mut greedy, b"VALUE big".len());
    let mut kept = connect(&server);
    let mut health = || {
        kept.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("a write");
        let mut answer = [0; 4096];
        let length = kept.read(&mut answer).expect("an answer");
        String::from_utf8_lossy(&answer[..length]).to_string()
    };
    assert!(health().starts_with("HTTP/1.1 200"));
    let running = server.running();
    running.stop_handle().stop();
    let answer = health();
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    drop(greedy);
    running.join().expect("a clean stop");
}
