//! The names of statistics, and their order, as clients and dashboards see them.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use crate::common::{PATIENCE, TestServer, options};
use ebbtide::memcached::{ByteSize, Cache, CompactSizes, PressureMode, PressureOptions};
use ebbtide_server::{Admin, PoolRule, ServerOptions};
use serde_json::Value;

const NAMES: &str = include_str!("statistics.txt");

fn get(server: &TestServer, path: &str) -> String {
    let mut stream = TcpStream::connect(server.admin.expect("an admin address")).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("an option");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("a write");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.split_once("\r\n\r\n").expect("a head").1.to_owned()
}

fn stats(server: &TestServer, topic: &str, names: &mut Vec<String>) {
    let text = String::from_utf8(server.talk(format!("stats{topic}\r\n").as_bytes())).expect("text");
    let lines = text.lines().filter_map(|line| line.strip_prefix("STAT ")?.split(' ').next());
    names.extend(lines.map(|name| format!("stats{topic} {name}")));
}

fn paths(value: &Value, path: &str, names: &mut Vec<String>) {
    match value {
        Value::Object(entries) => {
            for (name, entry) in entries {
                paths(entry, &if path.is_empty() { name.clone() } else { format!("{path}.{name}") }, names);
            }
        }
        _ => names.push(format!("api {path}")),
    }
}

#[test]
fn names_and_their_order_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = Cache::builder().memory(ByteSize::mib(64)).flash(folder.path().join("flash"), ByteSize::mib(128));
    let admin = Admin { address: (Ipv4Addr::LOCALHOST, 0).into(), required: true };
    let options = ServerOptions { admin: Some(admin), ..options() };
    let server = TestServer::around(cache.build().expect("a cache"), options);
    server.talk(b"set k 0 0 1\r\nv\r\n");
    server.wait_for("gets of the last minute, and a look at the objects", || {
        server.talk(b"get k\r\n");
        std::thread::sleep(std::time::Duration::from_millis(20));
        let own = String::from_utf8(server.talk(b"stats ebbtide\r\n")).expect("text");
        own.contains("now_hit_ratio") && own.contains("unread_share")
    });
    let mut names = Vec::new();
    stats(&server, "", &mut names);
    stats(&server, " ebbtide", &mut names);
    for line in get(&server, "/metrics").lines() {
        match line.rsplit_once(' ') {
            _ if line.starts_with('#') => names.push(line.to_owned()),
            Some((name, _)) if name.contains("version=") => names.push("metric ebbtide_build_info".to_owned()),
            Some((name, _)) => names.push(format!("metric {name}")),
            None => {}
        }
    }
    let overview: Value = serde_json::from_str(&get(&server, "/api/overview")).expect("JSON");
    paths(&overview, "", &mut names);
    // Which commands have latencies depends on the last seconds.
    names.retain(|name| !name.starts_with("api latency_us"));
    let (expected_paths, expected): (Vec<&str>, Vec<_>) = NAMES.lines().partition(|name| name.starts_with("api "));
    let (paths, names): (Vec<_>, Vec<_>) = names.iter().map(String::as_str).partition(|name| name.starts_with("api "));
    for (at, (name, expected)) in names.iter().zip(&expected).enumerate() {
        assert_eq!(name, expected, "line {}", at + 1);
    }
    assert_eq!(names.len(), expected.len());
    // An object of JSON has no order.
    let sorted = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<BTreeSet<_>>();
    assert_eq!(sorted(&paths), sorted(&expected_paths));
}

#[test]
fn names_of_pools_and_of_the_monitor_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    let target_hit_ratio = Some("0.9".parse().expect("a ratio"));
    let users = PoolRule { prefixes: vec![b"user:".to_vec()], target_hit_ratio, ..PoolRule::named("users") };
    let sizes = CompactSizes { key_bytes: 8, value_bytes: 8, has_ttl: false };
    let seen = PoolRule { prefixes: vec![b"seen:".to_vec()], compact: Some(sizes), ..PoolRule::named("seen") };
    let cache = Cache::builder()
        .memory(ByteSize::mib(64))
        .flash(folder.path().join("flash"), ByteSize::mib(128))
        .pool(users.options())
        .pool(seen.options())
        // No host has that much free memory and no less.
        .memory_monitor(PressureOptions::new(PressureMode::Free, 1, u64::MAX));
    let admin = Admin { address: (Ipv4Addr::LOCALHOST, 0).into(), required: true };
    let options = ServerOptions { admin: Some(admin), pools: vec![users, seen], ..options() };
    let server = TestServer::around(cache.build().expect("a cache"), options);
    server.wait_for("gets of the last minute in each pool", || {
        server.talk(b"get k\r\nget user:1\r\nget seen:abc\r\n");
        std::thread::sleep(std::time::Duration::from_millis(20));
        let pools = String::from_utf8(server.talk(b"stats pools\r\n")).expect("text");
        ["default", "users", "seen"].iter().all(|pool| pools.contains(&format!("{pool}:now_hit_ratio")))
    });
    let mut names = Vec::new();
    stats(&server, " pools", &mut names);
    let page = get(&server, "/metrics");
    let is_ours = |line: &&str| line.contains("ebbtide_pool_") || line.contains("ebbtide_memory_monitor_");
    names.extend(page.lines().filter(is_ours).map(|line| match line.starts_with('#') {
        true => line.to_owned(),
        false => format!("metric {}", line.rsplit_once(' ').expect("a number").0),
    }));
    let mut api = Vec::new();
    let pools: Value = serde_json::from_str(&get(&server, "/api/pools")).expect("JSON");
    for pool in pools["pools"].as_array().expect("pools") {
        paths(pool, pool["name"].as_str().expect("a name"), &mut api);
    }
    api.sort();
    names.extend(api);
    let expected: Vec<_> = include_str!("pool_statistics.txt").lines().collect();
    assert_eq!(names, expected);
}

#[test]
fn objects_of_the_memory_file_are_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let build = || Cache::builder().memory(ByteSize::mib(64)).memory_file(folder.path().join("memory")).build();
    let cache = build().expect("a cache");
    (0..7_u8).for_each(|key| _ = cache.insert(&[key], b"value").apply().expect("a write"));
    cache.close().expect("a save");
    drop(cache);
    let admin = Admin { address: (Ipv4Addr::LOCALHOST, 0).into(), required: true };
    let server = TestServer::around(build().expect("a cache"), ServerOptions { admin: Some(admin), ..options() });
    let own = String::from_utf8(server.talk(b"stats ebbtide\r\n")).expect("text");
    assert!(own.contains("STAT memory_file_restored_objects 7\r\nSTAT memory_file_refusals 0\r\n"), "{own}");
    let page = get(&server, "/metrics");
    assert!(page.contains("\nebbtide_memory_file_restored_objects 7\n"), "{page}");
    assert!(page.contains("\nebbtide_memory_file_refusals_total 0\n"), "{page}");
}
