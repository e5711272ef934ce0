//! The stats commands: names, shapes and counts.

use std::mem;
use std::thread;
use std::time::Duration;

use crate::common::{TestServer, options, set, stat};
use ebbtide::memcached::{ByteSize, Cache};
use ebbtide_server::{PoolRule, ServerOptions};

fn names(stats: &[u8]) -> Vec<String> {
    let text = String::from_utf8(stats.to_vec()).expect("text");
    let (lines, end) = text.rsplit_once("END\r\n").expect("an end");
    assert_eq!(end, "");
    lines
        .split_terminator("\r\n")
        .map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            assert_eq!((fields.len(), fields[0]), (3, "STAT"), "{line}");
            fields[1].to_string()
        })
        .collect()
}

#[test]
fn general_stats_are_small_and_plain() {
    let server = TestServer::new();
    let stats = server.talk(b"stats\r\n");
    assert!(stats.len() < 4096);
    let names = names(&stats);
    for name in [
        "pid",
        "uptime",
        "time",
        "version",
        "pointer_size",
        "rusage_user",
        "rusage_system",
        "max_connections",
        "curr_connections",
        "total_connections",
        "rejected_connections",
        "cmd_get",
        "cmd_set",
        "cmd_flush",
        "cmd_touch",
        "get_hits",
        "get_misses",
        "get_expired",
        "get_flushed",
        "delete_misses",
        "delete_hits",
        "incr_misses",
        "incr_hits",
        "decr_misses",
        "decr_hits",
        "cas_misses",
        "cas_hits",
        "cas_badval",
        "touch_hits",
        "touch_misses",
        "bytes_read",
        "bytes_written",
        "limit_maxbytes",
        "accepting_conns",
        "listen_disabled_num",
        "threads",
        "curr_items",
        "total_items",
        "bytes",
        "evictions",
        "reclaimed",
    ] {
        assert!(names.iter().any(|n| n == name), "{name}");
    }
    assert!(names.iter().all(|name| !name.contains(':')));
    let text = String::from_utf8(stats).expect("text");
    for usage in ["rusage_user", "rusage_system"] {
        let line = text.lines().find(|line| line.contains(usage)).expect("a line");
        assert_eq!(line.rsplit_once('.').expect("a point").1.len(), 6, "{line}");
    }
}

#[test]
fn commands_are_counted_and_reset() {
    let server = TestServer::new();
    server.talk(b"set n 0 0 1\r\n1\r\nget n n none\r\ngat 0 n none\r\ntouch none 0\r\nincr n 1\r\nincr x 1\r\n");
    server.talk(b"decr n 1\r\ndecr x 1\r\ndelete n\r\ndelete n\r\nflush_all\r\n");
    let stats = server.talk(b"stats\r\n");
    for (name, count) in [
        ("cmd_get", 3),
        ("get_hits", 2),
        ("get_misses", 1),
        ("cmd_touch", 3),
        ("touch_hits", 1),
        ("touch_misses", 2),
        ("cmd_set", 1),
        ("incr_hits", 1),
        ("incr_misses", 1),
        ("decr_hits", 1),
        ("decr_misses", 1),
        ("delete_hits", 1),
        ("delete_misses", 1),
        ("cmd_flush", 1),
        ("curr_connections", 1),
        ("total_connections", 3),
    ] {
        assert_eq!(stat(&stats, name), count, "{name}");
    }
    assert!(stat(&stats, "bytes_read") > 100 && stat(&stats, "bytes_written") > 50);
    assert_eq!(server.talk(b"stats reset\r\n"), b"RESET\r\n");
    let stats = server.talk(b"stats\r\n");
    for name in ["cmd_get", "get_hits", "cmd_set", "touch_misses", "delete_hits", "cmd_flush"] {
        assert_eq!(stat(&stats, name), 0, "{name}");
    }
    assert_eq!(stat(&stats, "total_connections"), 1);
}

#[test]
fn settings_show_the_options() {
    let server = TestServer::with(ServerOptions {
        threads: 3,
        max_connections: 77,
        requests_per_event: 5,
        backlog: 99,
        verbosity: 1,
        ..options()
    });
    let stats = server.talk(b"stats settings\r\n");
    names(&stats);
    for (name, number) in [
        ("maxconns", 77),
        ("num_threads", 3),
        ("reqs_per_event", 5),
        ("tcp_backlog", 99),
        ("verbosity", 1),
        ("item_size_max", 16 << 20),
        ("maxbytes", 256 << 20),
        ("segment_size", 266_240),
        ("pools", 1),
    ] {
        assert_eq!(stat(&stats, name), number, "{name}");
    }
    assert!(String::from_utf8_lossy(&stats).contains("STAT policy s3fifo\r\n"));
    server.talk(b"verbosity 0\r\n");
    assert_eq!(stat(&server.talk(b"stats settings\r\n"), "verbosity"), 0);
}

#[test]
fn the_pool_is_slab_class_one() {
    let server = TestServer::new();
    assert_eq!(server.talk(b"stats items\r\n"), b"END\r\n");
    server.talk(b"set k 0 0 1\r\nx\r\nget k\r\n");
    let items = server.talk(b"stats items\r\n");
    assert!(names(&items).iter().all(|name| name.starts_with("items:1:")));
    assert_eq!(stat(&items, "items:1:number"), 1);
    let slabs = server.talk(b"stats slabs\r\n");
    names(&slabs);
    assert_eq!(stat(&slabs, "1:get_hits"), 1);
    assert_eq!(stat(&slabs, "active_slabs"), 1);
}

#[test]
fn evictions_of_unread_objects_are_counted() {
    let cache = Cache::builder().memory(ByteSize::mib(8)).build().expect("a cache");
    let server = TestServer::around(cache, options());
    let sets =
        |from: usize| (from..from + 5_000).flat_map(|n| set(&format!("k{n}"), &[b'x'; 1000])).collect::<Vec<_>>();
    server.talk(&sets(0));
    server.talk(&sets(5_000));
    // Maintenance continues until it has its reserve of free segments.
    let mut before = 0;
    server.wait_for("evictions end", || {
        thread::sleep(Duration::from_millis(200));
        let evicted = stat(&server.talk(b"stats\r\n"), "evictions");
        mem::replace(&mut before, evicted) == evicted
    });
    let items = server.talk(b"stats items\r\n");
    let evicted = stat(&items, "items:1:evicted");
    assert!(evicted > 1000, "{evicted}");
    assert_eq!(stat(&items, "items:1:evicted_unfetched"), evicted, "nothing was read");
    assert_eq!(stat(&server.talk(b"stats\r\n"), "evicted_unfetched"), evicted);
    assert!(stat(&items, "items:1:evicted_time") < 60);
    server.talk(b"stats reset\r\n");
    assert_eq!(stat(&server.talk(b"stats items\r\n"), "items:1:evicted_unfetched"), 0);
    assert_eq!(stat(&server.talk(b"stats\r\n"), "evicted_unfetched"), 0);
}

#[test]
fn refused_writes_are_counted_by_pool() {
    let users = PoolRule { prefixes: vec![b"user:".to_vec()], max_bytes: Some(8 << 20), ..PoolRule::named("users") };
    let cache = Cache::builder().memory(ByteSize::mib(64)).evict(false).pool(users.options()).build().expect("a cache");
    let server = TestServer::around(cache, ServerOptions { pools: vec![users], ..options() });
    server.talk(&set("other", b"v"));
    let answers = server.talk(&(0..20_000).flat_map(|n| set(&format!("user:{n}"), &[b'x'; 1000])).collect::<Vec<_>>());
    let refused = String::from_utf8(answers).expect("text").matches("SERVER_ERROR out of memory").count() as u64;
    assert!(refused > 1000, "{refused}");
    let items = server.talk(b"stats items\r\n");
    assert_eq!((stat(&items, "items:1:outofmemory"), stat(&items, "items:2:outofmemory")), (0, refused));
    assert_eq!(stat(&server.talk(b"stats\r\n"), "store_no_memory"), refused);
}

#[test]
fn connections_are_listed() {
    let server = TestServer::new();
    let other = server.connect();
    let peer = other.local_addr().expect("an address");
    server.wait_for("the other connection", || {
        let text = String::from_utf8(server.talk(b"stats conns\r\n")).expect("text");
        names(text.as_bytes());
        assert!(text.contains(&format!("STAT 0:addr tcp:{}\r\nSTAT 0:state conn_listening\r\n", server.address)));
        assert!(text.contains("state conn_parse_cmd\r\n"));
        text.contains(&format!(":addr tcp:{peer}\r\n")) && text.contains("state conn_read\r\n")
    });
}

#[test]
fn other_topics() {
    let server = TestServer::new();
    assert_eq!(server.talk(b"stats sizes\r\n"), b"STAT sizes_status disabled\r\nEND\r\n");
    assert_eq!(server.talk(b"stats nonsense\r\n"), b"ERROR\r\n");
    let own = server.talk(b"stats ebbtide\r\n");
    assert!(names(&own).iter().all(|name| !name.contains(':')));
    assert!(own.starts_with(concat!("STAT version ", env!("CARGO_PKG_VERSION"), "\r\n").as_bytes()));
}

/// The groups of statistics named `group:field`: the sum of a field over all of them.
fn sum(stats: &[u8], field: &str) -> u64 {
    let text = String::from_utf8(stats.to_vec()).expect("text");
    let numbers = text.lines().filter_map(|line| {
        let (name, number) = line.strip_prefix("STAT ")?.split_once(' ')?;
        (name.split_once(':')?.1 == field).then(|| number.parse::<u64>().expect("a number"))
    });
    numbers.sum()
}

#[test]
fn memory_by_ttl_and_by_size_is_told() {
    let server = TestServer::new();
    server.talk(&(0..100).flat_map(|n| set(&format!("never{n}"), &[b'x'; 1000])).collect::<Vec<_>>());
    server.talk(&(0..50).flat_map(|n| format!("set soon{n} 0 100 1\r\nx\r\n").into_bytes()).collect::<Vec<_>>());
    let ttls = server.talk(b"stats ebbtide ttls\r\n");
    assert_eq!((stat(&ttls, "never:items"), sum(&ttls, "items")), (100, 150));
    assert!(stat(&ttls, "never:live_bytes") > 100_000 && sum(&ttls, "ttl_seconds_max") >= 100);
    let sizes = server.talk(b"stats ebbtide sizes\r\n");
    // Key, value and a few bytes of metadata: 1006 to 1023 and 7 to 15 bytes.
    assert_eq!((stat(&sizes, "512:items"), stat(&sizes, "512:bytes_max"), sum(&sizes, "items")), (100, 1023, 150));
    assert_eq!((stat(&sizes, "512:unread"), stat(&sizes, "complete")), (100, 1));
    assert_eq!(server.talk(b"stats ebbtide keys\r\n"), b"ERROR\r\n");
}

#[test]
fn numbers_stay_sane_while_others_reset_them() {
    let threads = 8;
    let server = TestServer::with(ServerOptions { threads, ..options() });
    let rounds = 2_000;
    // Connections go to the workers in turn: these run at the same time.
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let answer =
                    server.talk(&b"set k 0 0 1\r\nv\r\nstats reset\r\nstats\r\nstats slabs\r\n".repeat(rounds));
                let text = String::from_utf8(answer).expect("text");
                assert_eq!(text.matches("END\r\n").count(), 2 * rounds);
                for line in text.lines().filter(|line| line.starts_with("STAT total_items ")) {
                    let stored: usize = line["STAT total_items ".len()..].parse().expect("a number");
                    assert!(stored <= threads * rounds, "{line}");
                }
            });
        }
    });
}
