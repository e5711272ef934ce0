//! Dumps of the keys, and the commands of memcached's crawler and lists.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::common::flash_server::{FlashServer, objects};
use crate::common::{TestServer, assert_bytes, hit, options, set};
use ebbtide_server::ServerOptions;

/// Answer of a dump, without its end line.
fn dump(server: &TestServer, command: &str, end: &str) -> Vec<String> {
    let answer = String::from_utf8(server.talk(format!("{command}\r\n").as_bytes())).expect("text");
    let lines = answer.strip_prefix("OK\r\n").and_then(|lines| lines.strip_suffix(end));
    let lines = lines.unwrap_or_else(|| panic!("{answer:?} has no end"));
    let mut lines: Vec<String> = lines.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn a_metadump_tells_of_every_key() {
    let server = TestServer::new();
    server.talk(b"set a%b 5 0 3\r\nabc\r\nset b 0 100 1\r\nx\r\nset gone 0 -1 1\r\nx\r\nget b\r\n");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time").as_secs();
    for which in ["all", "hash", "1", "1,2"] {
        let lines = dump(&server, &format!("lru_crawler metadump {which}"), "END\r\n");
        assert_eq!(lines.len(), 2, "{lines:?}");
        let fields: Vec<Vec<&str>> = lines.iter().map(|line| line.trim_end().split(' ').collect()).collect();
        let names: Vec<&str> = fields[0].iter().map(|field| field.split_once('=').expect("a pair").0).collect();
        assert_eq!(names, ["key", "exp", "la", "cas", "fetch", "cls", "size", "flags"]);
        let (first, second) = (&fields[0], &fields[1]);
        assert_eq!(
            (first[0], first[1], first[4], first[5], first[6], first[7]),
            ("key=a%25b", "exp=-1", "fetch=no", "cls=1", "size=15", "flags=5")
        );
        assert_eq!((second[0], second[4], second[6], second[7]), ("key=b", "fetch=yes", "size=7", "flags=0"));
        assert!(lines.iter().all(|line| line.ends_with(' ')), "{lines:?}");
        let number = |field: &str| field.split_once('=').expect("a pair").1.parse::<u64>().expect("a number");
        assert!(number(second[1]).abs_diff(now + 100) <= 3, "{second:?}");
        assert!(number(second[2]).abs_diff(now) <= 30, "{second:?}");
        let token = number(first[3]);
        assert_bytes(&server.talk(format!("cas a%b 5 0 3 {token}\r\nabc\r\n").as_bytes()), b"STORED\r\n");
    }
    assert!(dump(&server, "lru_crawler metadump 2,63", "END\r\n").is_empty());
}

#[test]
fn an_mgdump_is_meta_gets() {
    let server = TestServer::new();
    server.talk(&[&set("a%b", b"x")[..], &set("\u{1}k", b"y")].concat());
    assert_eq!(dump(&server, "lru_crawler mgdump hash", "EN\r\n"), ["mg AWs= b", "mg a%b"]);
}

#[test]
fn commands_behind_a_dump_wait_for_its_end() {
    let server = TestServer::new();
    server.talk(&set("k", b"v"));
    let answer = server.talk(b"get k\r\nlru_crawler mgdump all\r\nget k\r\nlru_crawler mgdump all\r\nversion\r\n");
    let twice = [&hit("k", b"v")[..], b"END\r\nOK\r\nmg k\r\nEN\r\n"].concat();
    assert_bytes(&answer, &[&twice[..], &twice, b"VERSION 1.6.45\r\n"].concat());
}

fn fill(server: &TestServer, count: usize) {
    for n in 0..count {
        server.cache.insert(format!("{n:0200}").as_bytes(), b"").apply().expect("space");
    }
}

/// A reader that stops holds neither the worker nor other dumps, and gets the rest when it reads on.
#[test]
fn a_slow_reader_delays_only_its_dump() {
    let server = TestServer::with(ServerOptions { threads: 1, ..options() });
    let count = 100_000;
    fill(&server, count);
    let mut slow: Vec<TcpStream> = (0..8).map(|_| server.connect()).collect();
    let mut head = [0; 4];
    for stream in &mut slow {
        stream.write_all(b"lru_crawler mgdump all\r\nversion\r\n").expect("a write");
        stream.read_exact(&mut head).expect("the dump begins");
    }
    assert_bytes(&server.talk(b"lru_crawler mgdump all\r\n"), b"BUSY currently processing crawler request\r\n");
    for n in 0..1000 {
        let key = format!("new {n}").replace(' ', "-");
        assert_bytes(&server.talk(&set(&key, b"v")), b"STORED\r\n");
    }
    // One goes away in the middle of it: its place is free once the server has noticed.
    drop(slow.pop());
    server.wait_for("the end of a dump", || server.talk(b"lru_crawler mgdump all\r\n").starts_with(b"OK\r\n"));
    let mut stream = slow.pop().expect("eight were started");
    stream.write_all(b"quit\r\n").expect("a write");
    let mut rest = head.to_vec();
    stream.read_to_end(&mut rest).expect("the rest");
    let text = String::from_utf8(rest).expect("text");
    let keys: std::collections::HashSet<&str> = text.lines().filter_map(|line| line.strip_prefix("mg ")).collect();
    assert!((0..count).all(|n| keys.contains(&*format!("{n:0200}"))), "a key was not met");
    assert!(text.ends_with("EN\r\nVERSION 1.6.45\r\n"));
}

/// Objects on flash are dumped like objects in memory, at the pace of the reader.
#[test]
fn dumps_tell_of_flash() {
    let mut flash_objects = objects("small", 300, 100);
    flash_objects.extend(objects("large", 20, 9000));
    let FlashServer { server, folder: _folder } = FlashServer::new(&flash_objects);
    let lines = dump(&server, "lru_crawler metadump all", "END\r\n");
    let (mut keys, mut on_flash) = (std::collections::HashMap::new(), 0);
    for line in &lines {
        let fields: Vec<(&str, &str)> =
            line.trim_end().split(' ').map(|field| field.split_once('=').expect("a pair")).collect();
        let names: Vec<&str> = fields.iter().map(|field| field.0).collect();
        assert_eq!(names, ["key", "exp", "la", "cas", "fetch", "cls", "size", "flags"]);
        *keys.entry(fields[0].1).or_insert(0) += 1;
        if let Some((key, value)) = flash_objects.iter().find(|(key, _)| key == fields[0].1) {
            assert_eq!((fields[1].1, fields[2].1, fields[3].1, fields[4].1, fields[5].1), ("-1", "0", "0", "no", "1"));
            assert_eq!(fields[6].1, (key.len() + value.len()).to_string());
            on_flash += 1;
        }
    }
    assert_eq!(on_flash, flash_objects.len(), "objects on flash are told");
    let twice: Vec<_> = keys.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.len() <= keys.len() / 50, "{twice:?} were told more than once");
    let mut short = dump(&server, "lru_crawler mgdump hash", "EN\r\n");
    short.dedup();
    assert_eq!(short.len(), keys.len(), "what is there is the same all the time");
    // The dump lists keys that gets find, and no deleted keys.
    assert_bytes(
        &server.talk(b"delete small7\r\nget small8\r\n"),
        &[&b"DELETED\r\n"[..], &hit("small8", &flash_objects[8].1), b"END\r\n"].concat(),
    );
    let short = dump(&server, "lru_crawler mgdump all", "EN\r\n");
    assert!(!short.contains(&"mg small7".to_owned()) && short.contains(&"mg small8".to_owned()));
    // Commands behind a dump wait for it, also while it reads flash. Other clients do not wait. A client that
    // disconnects in the middle leaves no state.
    flash_objects.remove(7);
    let mut slow: Vec<TcpStream> = (0..8).map(|_| server.connect()).collect();
    let mut head = [0; 4];
    for stream in &mut slow {
        stream.write_all(b"lru_crawler metadump all\r\nversion\r\nquit\r\n").expect("a write");
        stream.read_exact(&mut head).expect("the dump begins");
    }
    assert_bytes(&server.talk(&set("near", b"v")), b"STORED\r\n");
    let gone = slow.split_off(4);
    drop(gone);
    for mut stream in slow {
        let mut rest = head.to_vec();
        stream.read_to_end(&mut rest).expect("the rest");
        let text = String::from_utf8(rest).expect("text");
        assert!(text.ends_with("\nEND\r\nVERSION 1.6.45\r\n"));
        let keys: std::collections::HashSet<&str> =
            text.lines().filter_map(|line| line.strip_prefix("key=")?.split(' ').next()).collect();
        assert!(flash_objects.iter().all(|(key, _)| keys.contains(key.as_str())), "a key was not met");
    }
    server.wait_for("the end of all dumps", || {
        let scans: Vec<_> = (0..8).map(|_| server.cache.scan()).collect();
        scans.iter().all(Result::is_ok)
    });
}

#[test]
fn dumps_can_be_forbidden() {
    let server = TestServer::with(ServerOptions { allow_dump: false, ..options() });
    for (command, answer) in [
        ("lru_crawler metadump all", "ERROR metadump not allowed"),
        ("lru_crawler mgdump hash", "ERROR key dump not allowed"),
        ("stats detail on", "CLIENT_ERROR stats detail not allowed"),
        ("stats detail off", "CLIENT_ERROR stats detail not allowed"),
        ("stats detail dump", "CLIENT_ERROR stats detail not allowed"),
        ("stats detail", "CLIENT_ERROR stats detail not allowed"),
        ("stats cachedump 1 1", "CLIENT_ERROR stats cachedump not allowed"),
        ("stats cachedump", "CLIENT_ERROR stats cachedump not allowed"),
    ] {
        let answered = server.talk(format!("{command}\r\n").as_bytes());
        assert_bytes(&answered, format!("{answer}\r\n").as_bytes());
    }
}

#[test]
fn commands_without_counterpart_are_answered() {
    let server = TestServer::new();
    for (command, answer) in [
        ("lru_crawler enable", "OK"),
        ("lru_crawler disable", "OK"),
        ("lru_crawler crawl all", "OK"),
        ("lru_crawler crawl 1,5", "OK"),
        ("lru_crawler crawl x", "BADCLASS invalid class id"),
        ("lru_crawler metadump 0", "BADCLASS invalid class id"),
        ("lru_crawler metadump 64", "BADCLASS invalid class id"),
        ("lru_crawler sleep 100", "OK"),
        ("lru_crawler sleep 10000000", "CLIENT_ERROR sleep must be one second or less"),
        ("lru_crawler tocrawl 5", "OK"),
        ("lru_crawler tocrawl x", "CLIENT_ERROR bad command line format"),
        ("lru_crawler frob", "ERROR"),
        ("lru tune 10 25 0.1 2.0", "OK"),
        ("lru tune 60 60 0.1 2.0", "ERROR hot and warm pcts must not exceed 80"),
        ("lru tune 10 25 0 0", "ERROR hot/warm age factors must be greater than 0"),
        ("lru mode segmented", "OK"),
        ("lru mode x", "ERROR"),
        ("lru temp_ttl 60", "OK"),
        ("slabs reassign 1 2", "NOSPARE source class has no spare pages"),
        ("slabs reassign 1 1", "SAME src and dst class are identical"),
        ("slabs reassign 1 99", "BADCLASS invalid src or dst class id"),
        ("slabs automove 1", "OK"),
        ("slabs automove 3", "ERROR"),
        ("slabs automove ratio 0.5", "OK"),
    ] {
        let answered = server.talk(format!("{command}\r\n").as_bytes());
        assert_bytes(&answered, format!("{answer}\r\n").as_bytes());
    }
    assert_bytes(&server.talk(b"lru mode flat noreply\r\nslabs automove 1 noreply\r\nmn\r\n"), &server.talk(b"mn\r\n"));
}

/// The short list of items that old tools request.
#[test]
fn a_cachedump_lists_items_of_its_class() {
    let server = TestServer::new();
    for (arguments, answer) in [
        ("", "CLIENT_ERROR bad command line"),
        (" 1", "CLIENT_ERROR bad command line"),
        (" x 1", "CLIENT_ERROR bad command line format"),
        (" 1 x", "CLIENT_ERROR bad command line format"),
        (" 1 -1", "CLIENT_ERROR bad command line format"),
        (" 64 1", "CLIENT_ERROR Illegal slab id"),
        (" 1 1", "END"),
    ] {
        let answered = server.talk(format!("stats cachedump{arguments}\r\n").as_bytes());
        assert_bytes(&answered, format!("{answer}\r\n").as_bytes());
    }
    server.talk(b"set k 7 0 2\r\nab\r\n");
    assert_bytes(&server.talk(b"stats cachedump 1 1\r\n"), b"ITEM k [2 b; 0 s]\r\nEND\r\n");
    assert_bytes(&server.talk(b"stats cachedump 2 1\r\nstats cachedump 0 0\r\n"), b"END\r\nEND\r\n");
    // A key of "\r\nEND\r\n" would end the list.
    server.talk(b"ms DQpFTkQNCg== 1 b\r\nx\r\ndelete k\r\nset l 0 1000 1\r\nx\r\nset m 0 1000 1\r\nx\r\n");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time").as_secs();
    let count = |limit: u32| {
        let answer = String::from_utf8(server.talk(format!("stats cachedump 1 {limit}\r\n").as_bytes())).expect("text");
        let lines: Vec<&str> = answer.lines().collect();
        assert_eq!(lines.last(), Some(&"END"), "{answer}");
        for line in &lines[..lines.len() - 1] {
            let expiry = line.split("; ").nth(1).and_then(|text| text.strip_suffix(" s]")).expect("a time");
            assert!(line.starts_with("ITEM l [1 b; ") || line.starts_with("ITEM m [1 b; "), "{line}");
            assert!(expiry.parse::<u64>().expect("a number").abs_diff(now + 1000) <= 20, "{line}");
        }
        lines.len() - 1
    };
    assert_eq!((count(0), count(1), count(2), count(9)), (2, 1, 2, 2));
}
