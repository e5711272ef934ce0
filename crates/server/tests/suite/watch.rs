//! Watchers: their events, that other clients do not wait for them, and that they are bounded.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::common::packet::{self, Packet, ask};
use crate::common::{TestServer, assert_bytes, options, read_exactly, read_to_end, set, stat};
use ebbtide_protocol::binary::reply::Status;
use ebbtide_server::ServerOptions;

/// A watcher of these kinds.
fn watch(server: &TestServer, kinds: &str) -> BufReader<TcpStream> {
    let mut stream = server.connect();
    stream.write_all(format!("watch {kinds}\r\n").as_bytes()).expect("a write");
    assert_bytes(&read_exactly(&mut stream, 4), b"OK\r\n");
    BufReader::new(stream)
}

fn raw_line(watcher: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    watcher.read_line(&mut line).expect("a line");
    line
}

/// The next line without its time and numbers, which must be there.
fn line(watcher: &mut BufReader<TcpStream>) -> String {
    let line = raw_line(watcher);
    let mut words = line.trim_end().split(' ');
    let time = words.next().and_then(|word| word.strip_prefix("ts=")).expect("a time");
    assert!(time.split('.').all(|part| part.parse::<u64>().is_ok()), "{line}");
    let number = words.next().and_then(|word| word.strip_prefix("gid=")).expect("a number");
    assert!(number.parse::<u64>().is_ok(), "{line}");
    words.filter(|word| !word.starts_with("cfd=") && !word.starts_with("rport=")).collect::<Vec<_>>().join(" ")
}

#[test]
fn kinds_without_events_are_accepted() {
    let server = TestServer::new();
    for kind in ["sysevents", "proxyreqs", "proxyevents", "proxyuser"] {
        drop(watch(&server, kind));
    }
}

#[test]
fn fetchers_see_every_lookup() {
    let server = TestServer::new();
    server.talk(&set("a%b", b"abc"));
    let mut watcher = watch(&server, "fetchers");
    server.talk(b"gets a%b none\r\nget a%b\r\ngat 100 a%b none\r\ntouch none 1\r\nincr none 1\r\ndelete a%b\r\n");
    let hit = "type=item_get key=a%25b status=found clsid=1 size=3";
    let miss = "type=item_get key=none status=not_found clsid=0 size=0";
    for expected in [hit, miss, hit, hit, miss, miss, miss, hit] {
        assert_eq!(line(&mut watcher), expected);
    }
}

#[test]
fn the_binary_protocol_is_watched_as_well() {
    let server = TestServer::new();
    let mut watcher = watch(&server, "fetchers mutations");
    let mut stream = server.connect();
    let head = |opcode: u8, extras: u8, body: u8| {
        let mut head = vec![0x80, opcode, 0, 1, extras, 0, 0, 0, 0, 0, 0, body];
        head.extend([0; 12]);
        head
    };
    let put = [&head(1, 8, 8 + 1 + 2)[..], &[0, 0, 0, 0, 0, 0, 0, 9], b"kvv"].concat();
    stream.write_all(&[&put[..], &head(0, 0, 1), b"k"].concat()).expect("a write");
    assert_eq!(line(&mut watcher), "type=item_store key=k status=stored cmd=set ttl=9 clsid=1 size=2");
    assert_eq!(line(&mut watcher), "type=item_get key=k status=found clsid=1 size=2");
}

#[test]
fn mutations_tell_what_came_of_them() {
    let server = TestServer::new();
    let mut watcher = watch(&server, "mutations");
    server.talk(b"set k 0 0 3\r\nabc\r\nadd k 0 0 1\r\nx\r\nreplace none 0 0 1\r\nx\r\nappend k 0 0 2\r\nxy\r\n");
    server.talk(b"cas k 0 0 1 1\r\nx\r\ncas none 0 0 1 1\r\nx\r\nget k\r\n");
    server.talk(b"ms v 1 MA N30\r\nx\r\n");
    server.talk(&set("large", &vec![0; 200_000]));
    server.talk(&set("huge", &vec![0; 17 << 20]));
    for expected in [
        "key=k status=stored cmd=set ttl=0 clsid=1 size=3",
        "key=k status=not_stored cmd=add ttl=0 clsid=1 size=1",
        "key=none status=not_stored cmd=replace ttl=0 clsid=1 size=1",
        "key=k status=stored cmd=append ttl=0 clsid=1 size=5",
        "key=k status=exists cmd=cas ttl=0 clsid=1 size=1",
        "key=none status=not_found cmd=cas ttl=0 clsid=1 size=1",
        "key=v status=stored cmd=append ttl=30 clsid=1 size=1",
        "key=large status=stored cmd=set ttl=0 clsid=1 size=200000",
        "key=huge status=too_large cmd=set ttl=0 clsid=1 size=0",
    ] {
        assert_eq!(line(&mut watcher), format!("type=item_store {expected}"));
    }
}

#[test]
fn append_events_show_whole_ttl_and_length() {
    const TTL: u64 = 100_000;
    let server = TestServer::new();
    let mut watcher = watch(&server, "mutations");
    server.talk(format!("set k 0 {TTL} 3\r\nabc\r\nappend k 0 0 2\r\nxy\r\nprepend k 0 0 1\r\nz\r\n").as_bytes());
    assert!(line(&mut watcher).contains(&format!("cmd=set ttl={TTL} clsid=1 size=3")));
    for (command, size) in [("append", 5), ("prepend", 6)] {
        let told = line(&mut watcher);
        let ttl = told.split("ttl=").nth(1).and_then(|rest| rest.split(' ').next()).expect("a life");
        let ttl: u64 = ttl.parse().expect("seconds");
        assert!((TTL * 98 / 100..=TTL).contains(&ttl), "{told}");
        assert!(told.contains(&format!("cmd={command} ")) && told.ends_with(&format!("size={size}")), "{told}");
    }
}

#[test]
fn deletions_tell_the_size_of_what_went() {
    let server = TestServer::new();
    let mut watcher = watch(&server, "deletions");
    server.talk(&[&set("k", b"abcd")[..], b"delete none\r\ndelete k\r\n"].concat());
    assert_eq!(line(&mut watcher), "type=deleted key=k cmd=delete clsid=1 size=4");
    server.talk(&[&set("m", b"abc")[..], b"md m C1\r\nmd m I\r\nmd none\r\nmd m q\r\n"].concat());
    assert_eq!(line(&mut watcher), "type=deleted key=m cmd=md clsid=1 size=3");
    server.talk(&[&set("m", b"abc")[..], b"md m x C1\r\nmd m x I\r\nmd m x\r\n"].concat());
    assert_eq!(line(&mut watcher), "type=deleted key=m cmd=md clsid=1 size=0");
    let mut stream = server.connect();
    let token = ask(&mut stream, &packet::set(b"b", b"12345")).cas;
    for (cas, status) in [(token + 1, Status::Exists as u16), (token, packet::OK)] {
        let delete = Packet { opcode: packet::DELETE, key: b"b", cas, ..Packet::default() };
        assert_eq!(ask(&mut stream, &delete.bytes()).status, status);
    }
    assert_eq!(line(&mut watcher), "type=deleted key=b cmd=delete clsid=1 size=5");
}

#[test]
fn meta_commands_are_told_as_look_ups() {
    let server = TestServer::new();
    let mut watcher = watch(&server, "fetchers mutations");
    let hit = |size| format!("type=item_get key=k status=found clsid=1 size={size}");
    let miss = "type=item_get key=k status=not_found clsid=0 size=0".to_string();
    let stored = "type=item_store key=k status=stored cmd=set ttl=0 clsid=1 size=2".to_string();
    let huge = [&b"ms k 17825792 ME\r\n"[..], &vec![0; 17 << 20], b"\r\n"].concat();
    for (command, expected) in [
        (&b"mg k\r\n"[..], miss.clone()),
        (b"mg k N30\r\n", miss.clone()),
        (b"mg k v N30\r\n", hit(0)),
        (b"ms k 2\r\n10\r\n", stored.clone()),
        (b"ma k D90\r\n", hit(3)),
        (b"ma k C1\r\n", hit(3)),
        (b"me k\r\n", hit(3)),
        (b"md k I\r\n", hit(3)),
        (b"mg k T50\r\n", hit(3)),
        (b"md k C1\r\n", hit(3)),
        (b"md k\r\n", hit(3)),
        (b"md k\r\n", miss.clone()),
        (b"me k\r\n", miss.clone()),
        (b"ma k\r\n", miss.clone()),
        (b"ma k N0\r\n", miss.clone()),
        (&huge, "type=item_store key=k status=too_large cmd=add ttl=0 clsid=1 size=0".to_string()),
        (b"me k\r\n", miss),
    ] {
        server.talk(command);
        assert_eq!(line(&mut watcher), expected, "{}", command[..command.len().min(20)].escape_ascii());
    }
}

#[test]
fn watching_is_no_use_of_a_key() {
    let server = TestServer::new();
    let _watcher = watch(&server, "fetchers");
    server.talk(b"set n 0 0 1\r\n5\r\nincr n 1\r\nma n\r\nmd n I\r\nme n\r\n");
    assert_bytes(&server.talk(b"mg n h u\r\n"), b"HD h0 X W\r\n");
}

#[test]
fn connections_come_and_go_for_a_reason() {
    let server = TestServer::new();
    let mut watcher = watch(&server, "connevents");
    for (input, reason) in [(&b"quit\r\n"[..], "normal"), (b"POST / HTTP/1.1\r\n", "error")] {
        let mut stream = server.connect();
        stream.write_all(input).expect("a write");
        assert_eq!(line(&mut watcher), "type=conn_new rip=127.0.0.1 transport=tcp");
        assert_eq!(line(&mut watcher), format!("type=conn_close rip=127.0.0.1 transport=tcp reason={reason}"));
    }
    drop(server.connect());
    assert_eq!(line(&mut watcher), "type=conn_new rip=127.0.0.1 transport=tcp");
    assert_eq!(line(&mut watcher), "type=conn_close rip=127.0.0.1 transport=tcp reason=normal");
}

#[test]
fn evictions_tell_what_was_lost() {
    let server = TestServer::new();
    let mut watcher = watch(&server, "evictions");
    let value = vec![b'x'; 60_000];
    for n in 0..6000 {
        server.cache.insert(format!("key-{n}").as_bytes(), &value).apply().expect("space");
    }
    assert!(server.cache.stats().evictions > 0);
    let line = line(&mut watcher);
    assert!(line.starts_with("type=eviction key=key-"), "{line}");
    let fields: Vec<&str> = line.split(' ').skip(2).map(|field| field.split('=').next().expect("a name")).collect();
    assert_eq!(fields, ["fetch", "ttl", "la", "clsid", "size"]);
    assert!(line.contains(" ttl=-1 ") && line.ends_with(" clsid=1 size=60000"), "{line}");
}

/// No client waits for the watcher, and the watcher gets the number of missed lines.
#[test]
fn a_slow_watcher_loses_lines() {
    let server = TestServer::new();
    let mut watcher = watch(&server, "fetchers");
    let key = "k".repeat(250);
    let gets = format!("get {key}\r\n").repeat(1000);
    let mut asked = 0;
    while server.stat("log_watcher_skipped") == 0 {
        server.talk(gets.as_bytes());
        asked += 1000;
        assert!(asked < 1_000_000, "no line was lost");
    }
    server.talk(b"get end\r\n");
    let (mut lines, mut skipped) = (0, 0);
    loop {
        let line = raw_line(&mut watcher);
        if let Some(count) = line.strip_prefix("skipped=") {
            skipped += count.trim_end().parse::<u64>().expect("a number");
            continue;
        }
        lines += 1;
        if line.contains("key=end") {
            break;
        }
        // The buffer has space again: the next line reports the loss.
        if skipped == 0 && lines % 100 == 0 {
            server.talk(b"get end\r\n");
        }
    }
    assert!(skipped > 0 && lines > 100, "{lines} lines, {skipped} skipped");
}

#[test]
fn watchers_are_bounded_and_release_their_slots() {
    let server = TestServer::new();
    let mut watchers: Vec<_> = (0..20).map(|_| watch(&server, "fetchers")).collect();
    assert_bytes(
        &server.talk(b"watch mutations\r\nmn\r\n"),
        &[b"WATCHER_TOO_MANY log watcher limit reached\r\n", &server.talk(b"mn\r\n")[..]].concat(),
    );
    assert_eq!(stat(&server.talk(b"stats\r\n"), "log_watchers"), 20);
    watchers.pop();
    server.wait_for("a watcher's end", || server.stat("log_watchers") == 19);
    watch(&server, "fetchers");
}

#[test]
fn a_watcher_takes_no_commands() {
    let server = TestServer::new();
    let mut stream = server.connect();
    stream.write_all(b"watch\r\nget k\r\nquit\r\n").expect("a write");
    let mut watcher = BufReader::new(stream);
    assert_eq!(raw_line(&mut watcher), "OK\r\n");
    watcher.get_mut().write_all(b"version\r\n").expect("a write");
    server.wait_for("the watcher", || server.stat("log_watchers") == 1);
    server.talk(b"get other\r\n");
    assert_eq!(line(&mut watcher), "type=item_get key=other status=not_found clsid=0 size=0");
}

#[test]
fn bad_kinds_and_forbidden_watching_are_refused() {
    let server = TestServer::new();
    assert_bytes(&server.talk(b"watch frob\r\nwatch fetchers frob\r\n"), b"ERROR\r\nERROR\r\n");
    let server = TestServer::with(ServerOptions { allow_watch: false, ..options() });
    assert_bytes(&server.talk(b"watch fetchers\r\n"), b"CLIENT_ERROR watch commands not allowed\r\n");
}

#[test]
fn who_watches_is_not_idle() {
    let timeout = Some(Duration::from_secs(1));
    let server = TestServer::with(ServerOptions { idle_timeout: timeout, threads: 1, ..options() });
    let mut watcher = watch(&server, "fetchers");
    // A later connection has been idle for a shorter time.
    assert_bytes(&read_to_end(&mut server.connect()), b"");
    server.talk(b"get k\r\n");
    assert_eq!(line(&mut watcher), "type=item_get key=k status=not_found clsid=0 size=0");
}
