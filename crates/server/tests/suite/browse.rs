//! `/api/entries` and `/api/value`: the sources of the dashboard's key browser.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use crate::common::flash_server::{FlashServer, objects};
use crate::common::{PATIENCE, TestServer, options, set};
use ebbtide::memcached::FlashPromotion;
use ebbtide_server::{Admin, ServerOptions};
use serde_json::Value;

fn server(more: ServerOptions) -> TestServer {
    TestServer::with(with_admin(more))
}

fn with_admin(more: ServerOptions) -> ServerOptions {
    let admin = Admin { address: (Ipv4Addr::LOCALHOST, 0).into(), required: true };
    ServerOptions { admin: Some(admin), ..more }
}

/// Status and body of a GET with more header lines.
fn get(server: &TestServer, path: &str, headers: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(server.admin.expect("an admin address")).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("an option");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).expect("a write");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status"), body.to_owned())
}

fn json(server: &TestServer, path: &str) -> Value {
    let (status, body) = get(server, path, "");
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

const CONFIRM: &str = "X-Ebbtide-Confirm: value\r\n";

#[test]
fn a_filter_finds_its_keys_slice_by_slice() {
    let server = server(options());
    let lines = |prefix: &str| -> Vec<u8> { (0..700).flat_map(|n| set(&format!("{prefix}:{n}"), b"x")).collect() };
    server.talk(&lines("user"));
    server.talk(&lines("page"));
    let (mut found, mut slices) = (BTreeSet::new(), 0);
    let mut answer = json(&server, "/api/entries?filter=user%3A");
    loop {
        slices += 1;
        let entries = answer["entries"].as_array().expect("entries");
        found.extend(entries.iter().map(|entry| entry["key"].as_str().expect("a key").to_owned()));
        let Some(next) = answer["next"].as_u64() else { break };
        answer = json(&server, &format!("/api/entries?next={next}"));
    }
    assert_eq!(found, (0..700).map(|n| format!("user:{n}")).collect());
    assert!(slices > 2, "{slices} answers");
    assert_eq!(answer["looked_at"], 1400);
}

/// All entries of a search; `None` if flash was too slow for one of the answers.
fn search(server: &TestServer, filter: &str) -> Option<Vec<Value>> {
    let (mut found, mut path) = (Vec::new(), format!("/api/entries?filter={filter}"));
    loop {
        let (status, body) = get(server, &path, "");
        if status == 503 {
            return None;
        }
        assert_eq!(status, 200, "{body}");
        let answer: Value = serde_json::from_str(&body).expect("JSON");
        found.extend(answer["entries"].as_array().expect("entries").iter().cloned());
        let Some(next) = answer["next"].as_u64() else { return Some(found) };
        path = format!("/api/entries?next={next}");
    }
}

#[test]
fn keys_on_flash_are_found_and_marked() {
    let mut on_flash = objects("small", 30, 100);
    on_flash.extend(objects("large", 10, 9000));
    let flash = FlashServer::with(&on_flash, FlashPromotion::Never, with_admin(options()));
    flash.server.talk(&set("small-near", b"x"));
    for (filter, keys, near) in [("small", 30, 1), ("large", 10, 0)] {
        let mut found = None;
        flash.server.wait_for("a search that flash answers in time", || {
            found = search(&flash.server, filter);
            found.is_some()
        });
        let found = found.expect("it was waited for");
        let of = |on_flash: bool| -> BTreeSet<&str> {
            let rows = found.iter().filter(|entry| entry["on_flash"] == on_flash);
            rows.map(|entry| entry["key"].as_str().expect("a key")).collect()
        };
        let names: Vec<String> = (0..keys).map(|number| format!("{filter}{number}")).collect();
        assert_eq!(of(true), names.iter().map(String::as_str).collect(), "{filter}");
        assert_eq!(of(false).len(), near, "{filter}");
        let entry = found.iter().find(|entry| entry["on_flash"] == true).expect("one");
        assert_eq!((&entry["idle_seconds"], &entry["unread"]), (&Value::Null, &Value::Null));
        assert!(entry["bytes"].as_u64().is_some_and(|bytes| bytes >= 100), "{entry}");
    }
}

#[test]
fn an_entry_says_what_the_object_is() {
    let server = server(options());
    server.talk(b"set a%20%ff 7 100 3\r\nabc\r\nset read 0 0 1\r\nx\r\nget read\r\n");
    let answer = json(&server, "/api/entries?filter=a%2520");
    let entry = &answer["entries"][0];
    assert_eq!((entry["key"].as_str(), entry["id"].as_str()), (Some("a%20%ff"), Some("a%2520%25ff")));
    assert_eq!((entry["pool"].as_str(), entry["unread"].as_bool()), (Some("default"), Some(true)));
    assert!((90..=100).contains(&entry["ttl_seconds"].as_u64().expect("a TTL")), "{entry}");
    let read = json(&server, "/api/entries?filter=read");
    assert_eq!(read["entries"][0]["ttl_seconds"], Value::Null);
}

#[test]
fn a_search_that_is_over_says_so() {
    let server = server(options());
    server.talk(&(0..700).flat_map(|n| set(&format!("key:{n}"), b"x")).collect::<Vec<_>>());
    let first = json(&server, "/api/entries")["next"].as_u64().expect("more");
    json(&server, "/api/entries?filter=key");
    let (status, body) = get(&server, &format!("/api/entries?next={first}"), "");
    assert_eq!(status, 410);
    assert!(body.contains("search again"), "{body}");
    for (query, word) in [("filtre=a", "filter, next"), ("filter=%g0", "hexadecimal"), ("next=x", "whole number")] {
        let (status, body) = get(&server, &format!("/api/entries?{query}"), "");
        assert_eq!(status, 400, "{query}");
        assert!(body.contains(word), "{query}: {body}");
    }
}

#[test]
fn showing_values_needs_confirmation_and_counts_no_use() {
    let server = server(options());
    server.talk(b"set text 7 0 5\r\nvalue\r\nset bytes 0 0 3\r\na\x00\xff\r\n");
    let (status, body) = get(&server, "/api/value?id=text", "");
    assert_eq!(status, 403);
    assert!(body.contains("X-Ebbtide-Confirm") && !body.contains("value\""), "{body}");
    let told = |path: &str| -> Value { serde_json::from_str(&get(&server, path, CONFIRM).1).expect("JSON") };
    let text = told("/api/value?id=text");
    assert_eq!((text["text"].as_str(), text["flags"].as_u64()), (Some("value"), Some(7)));
    let bytes = told("/api/value?id=bytes");
    assert_eq!((bytes["text"].as_str(), bytes["is_text"].as_bool()), (Some("a\\x00\\xff"), Some(false)));
    assert_eq!(json(&server, "/api/entries?filter=text")["entries"][0]["unread"], true);
    assert_eq!(get(&server, "/api/value?id=absent", CONFIRM).0, 404);
    assert_eq!(get(&server, "/api/value", CONFIRM).0, 400);
}

#[test]
fn a_long_value_is_cut() {
    let server = server(options());
    server.talk(&set("long", &vec![b'x'; 3 << 20]));
    let (status, body) = get(&server, "/api/value?id=long", CONFIRM);
    let value: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!((status, value["is_cut"].as_bool(), value["value_bytes"].as_u64()), (200, Some(true), Some(3 << 20)));
    assert!(value["text"].as_str().is_some_and(|text| text.len() == 16 << 10));
}

#[test]
fn without_dumps_neither_keys_nor_values_are_told() {
    let server = server(ServerOptions { allow_dump: false, ..options() });
    server.talk(&set("secret", b"x"));
    for path in ["/api/entries?filter=secret", "/api/value?id=secret"] {
        let (status, body) = get(&server, path, CONFIRM);
        assert_eq!(status, 403, "{path}");
        assert!(body.contains("-X"), "{body}");
    }
}
