//! Keys that get other pools: values of before are never served again, also where a reload, a value that arrives or
//! flash fails half-way, and amid reloads and restarts at random.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::packet::{self, Packet, SET};
use crate::common::{PATIENCE, assert_bytes, options, read_exactly, value};
use ebbtide::flash::{Delivery, Direction, FaultyDevice, Health};
use ebbtide::memcached::{ByteSize, Cache, CacheBuilder, CompactSizes, FlashOptions, PoolOptions};
use ebbtide_server::{PoolRule, ReloadHandle, Running, Server, ServerOptions};
use ebbtide_testkit::{Random, seeds};

const LONG: usize = 300_000;
const DEVICE_BYTES: usize = 64 << 20;

fn rule(name: &str, prefix: &str) -> PoolRule {
    PoolRule { prefixes: vec![prefix.into()], ..PoolRule::named(name) }
}

/// Rules with the pool `default`.
fn rules(others: &[PoolRule]) -> Vec<PoolRule> {
    [&[PoolRule::named("default")], others].concat()
}

fn cache(builder: CacheBuilder, rules: &[PoolRule]) -> Cache {
    let builder = rules.iter().fold(builder, |builder, rule| builder.pool(rule.options()));
    builder.key_routing(&PoolRule::routing(rules)).build().expect("a cache")
}

/// A server that can be reloaded.
struct Reloaded {
    cache: Cache,
    running: Option<Running>,
    reload: ReloadHandle,
}

impl Reloaded {
    fn new(cache: Cache, rules: &[PoolRule]) -> Self {
        let options = ServerOptions { pools: rules.to_vec(), ..options() };
        let server = Server::bind(options, cache.clone()).expect("a server");
        let reload = server.reload_handle();
        Self { cache, running: Some(server.start().expect("threads")), reload }
    }

    fn connect(&self) -> std::net::TcpStream {
        let address = self.running.as_ref().expect("it runs").local_addrs()[0];
        let stream = std::net::TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("an option");
        stream
    }

    fn ask(&self, line: &str, answer: &str) {
        let mut stream = self.connect();
        stream.write_all(line.as_bytes()).expect("a write");
        assert_bytes(&read_exactly(&mut stream, answer.len()), answer.as_bytes());
    }

    /// Reloads once the entries of the reload before are deleted.
    fn reload(&self, rules: &[PoolRule]) {
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = self.reload.reload_pools(rules) {
            assert!(error.to_string().contains("still being deleted") && Instant::now() < deadline, "{error}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn stop(mut self) {
        self.running.take().expect("it runs").stop().expect("a clean stop");
        self.cache.close().expect("a clean close");
    }
}

#[test]
fn values_that_arrive_over_a_reload_are_refused() {
    let (before, after) = (rules(&[rule("u", "u:")]), rules(&[rule("u", "v:")]));
    let server = Reloaded::new(cache(Cache::builder().memory(ByteSize::mib(32)), &before), &before);
    let long = value(LONG);
    let request = Packet { opcode: SET, extras: &[0; 8], key: b"u:2", value: &long, cas: 0, opaque: 0 }.bytes();
    let (mut text, mut binary) = (server.connect(), server.connect());
    text.write_all(format!("set u:1 0 0 {LONG}\r\n").as_bytes()).expect("a write");
    text.write_all(&long[..LONG / 2]).expect("a write");
    binary.write_all(&request[..LONG / 2]).expect("a write");
    // Both have started: each holds the memory of its whole value.
    let deadline = Instant::now() + PATIENCE;
    while server.cache.pool("u").expect("a pool").stats().upload_bytes < LONG as u64 / 2 * 3 {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    server.reload(&after);
    server.ask("set u:1 0 0 3\r\nnew\r\nset u:2 0 0 3\r\nnew\r\n", "STORED\r\nSTORED\r\n");
    text.write_all(&[&long[LONG / 2..], b"\r\n"].concat()).expect("a write");
    let refused = b"SERVER_ERROR out of memory storing object\r\n";
    assert_bytes(&read_exactly(&mut text, refused.len()), refused);
    assert_ne!(packet::ask(&mut binary, &request[LONG / 2..]).status, packet::OK);
    // As after each set that fails, no older value is there.
    server.ask("get u:1 u:2\r\n", "END\r\n");
    server.ask("set u:1 0 0 5\r\nnewer\r\nset u:2 0 0 5\r\nnewer\r\n", "STORED\r\nSTORED\r\n");
    server.reload(&before);
    server.ask("get u:1 u:2\r\n", "END\r\n");
    server.stop();
}

/// Memory for the new pool is not free at once, and a thread with a borrowed item does not wait for it.
#[test]
fn a_reload_that_fails_brings_nothing_old_back() {
    let before = rules(&[rule("u", "u:")]);
    let added = PoolRule { min_bytes: 16 << 20, ..rule("c", "c:") };
    let after = rules(&[rule("u", "v:"), added]);
    let server = Reloaded::new(cache(Cache::builder().memory(ByteSize::mib(32)), &before), &before);
    for number in 0..40_000_u32 {
        server.cache.insert(&number.to_le_bytes(), &[7; 1000]).apply().expect("stored");
    }
    server.ask("set u:1 0 0 3\r\nold\r\n", "STORED\r\n");
    server.cache.insert(b"borrowed", b"value").apply().expect("stored");
    let item = server.cache.get(b"borrowed");
    let refused = server.reload.reload_pools(&after).expect_err("there is no memory");
    assert!(refused.to_string().contains("borrowed"), "{refused}");
    drop(item);
    server.ask("get u:1\r\n", "END\r\n");
    server.ask("set u:1 0 0 3\r\nnew\r\n", "STORED\r\n");
    server.reload(&before);
    server.ask("get u:1\r\n", "END\r\n");
    server.reload(&after);
    server.stop();
}

#[test]
fn a_pool_of_a_failed_reload_is_replaced() {
    let (before, after) = (rules(&[]), rules(&[rule("c", "c:")]));
    let server = Reloaded::new(cache(Cache::builder().memory(ByteSize::mib(32)), &before), &before);
    server.cache.add_pool(&PoolOptions::named("c")).expect("a pool");
    server.reload(&after);
    server.ask("set c:1 0 0 1\r\n1\r\n", "STORED\r\n");
    assert!(server.cache.pool("c").expect("a pool").get(b"c:1").is_hit());
    server.stop();
}

/// The sweep gives it up, and ends.
#[test]
fn what_flash_cannot_read_does_not_come_back() {
    let (before, after) = (rules(&[]), rules(&[rule("u", "u:")]));
    let build = |device: &Arc<FaultyDevice>, rules: &[PoolRule]| {
        let options = FlashOptions { rewrite_threshold: 1, ..FlashOptions::default() };
        let builder = Cache::builder().memory(ByteSize::mib(8)).max_value(ByteSize::kib(64));
        cache(builder.flash_device(device.clone()).flash_options(options), rules)
    };
    for reloads in [false, true] {
        let first = Arc::new(FaultyDevice::new(DEVICE_BYTES, 7, Delivery::Later { queue_depth: 8 }));
        let old = build(&first, &before);
        old.insert(b"u:1", &[1; 3000]).apply().expect("stored");
        old.close().expect("a clean close");
        let second = Arc::new(first.killed(8));
        let changed = build(&second, &after);
        assert!(changed.is_rerouting());
        // All but the first block.
        second.break_range(Direction::Read, 4096..DEVICE_BYTES as u64);
        let server = Reloaded::new(changed, &after);
        server.ask("set u:1 0 0 3\r\nnew\r\n", "STORED\r\n");
        let deadline = Instant::now() + PATIENCE;
        while server.cache.flash_stats().expect("flash").tier.large.read_errors == 0 {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(5));
        }
        if reloads {
            server.reload(&before);
            server.ask("get u:1\r\n", "END\r\n");
        }
        server.stop();
        let third = Arc::new(second.killed(9));
        let back = build(&third, &before);
        assert!(!back.get(b"u:1").is_hit());
        back.close().expect("a clean close");
    }
}

/// A sweep cannot walk flash then, which serves nothing any more: but memory of all pools serves.
#[test]
fn failed_flash_leaves_nothing_old_in_memory() {
    let (before, after) = (rules(&[rule("u", "u:")]), rules(&[rule("u", "v:")]));
    let device = Arc::new(FaultyDevice::new(DEVICE_BYTES, 7, Delivery::Later { queue_depth: 8 }));
    let options = FlashOptions { rewrite_threshold: 1, ..FlashOptions::default() };
    let builder = Cache::builder().memory(ByteSize::mib(8)).max_value(ByteSize::kib(64));
    let server = Reloaded::new(cache(builder.flash_device(device.clone()).flash_options(options), &before), &before);
    server.ask("set u:1 0 0 3\r\nold\r\n", "STORED\r\n");
    for number in 0..40_000_u32 {
        server.cache.insert(&number.to_le_bytes(), &[7; 400]).apply().expect("stored");
    }
    device.break_range(Direction::Read, 0..DEVICE_BYTES as u64);
    let deadline = Instant::now() + PATIENCE;
    for number in (0..40_000_u32).cycle() {
        if server.cache.flash_health() == Some(Health::Failed) {
            break;
        }
        assert!(Instant::now() < deadline, "{:?}", server.cache.flash_health());
        server.cache.get(&number.to_le_bytes());
    }
    server.reload(&after);
    server.ask("get u:1\r\nset u:1 0 0 3\r\nnew\r\n", "END\r\nSTORED\r\n");
    server.reload(&before);
    server.ask("get u:1\r\n", "END\r\n");
    server.running.expect("it runs").stop().expect("a clean stop");
}

/// A server whose prefixes change by reloads and restarts, amid sweeps, beside a map of the last value of each key.
struct Prefixes {
    random: Random,
    folder: tempfile::TempDir,
    has_file: bool,
    has_flash: bool,
    server: Option<(Reloaded, BufReader<TcpStream>)>,
    last: HashMap<String, u64>,
    version: u64,
    hits: u64,
}

impl Prefixes {
    fn random_rules(&mut self) -> Vec<PoolRule> {
        let compact = || PoolRule {
            compact: Some(CompactSizes { key_bytes: 3, value_bytes: 8, has_ttl: true }),
            ..rule("c", "b")
        };
        match self.random.uniform(7) {
            0 => rules(&[]),
            1 => rules(&[rule("u", "a")]),
            2 => rules(&[rule("u", "b")]),
            3 => rules(&[rule("u", "a"), rule("v", "b")]),
            4 => rules(&[rule("v", "a"), rule("u", "a1")]),
            5 => rules(&[rule("v", "c"), compact()]),
            _ => rules(&[rule("u", "c"), rule("v", "a")]),
        }
    }

    fn start(&mut self) {
        let rules = self.random_rules();
        let options = FlashOptions { rewrite_threshold: 1, ..FlashOptions::default() };
        let mut builder = Cache::builder().memory(ByteSize::mib(12)).max_value(ByteSize::kib(64));
        if self.has_file {
            builder = builder.memory_file(self.folder.path().join("memory"));
        }
        if self.has_flash {
            builder = builder.flash(self.folder.path().join("flash"), ByteSize::mib(64)).flash_options(options);
        }
        let server = Reloaded::new(cache(builder, &rules), &rules);
        let stream = BufReader::new(server.connect());
        self.server = Some((server, stream));
    }

    fn stop(&mut self) {
        let (server, _) = self.server.take().expect("it runs");
        server.stop();
    }

    fn ask(&mut self, request: &[u8]) -> String {
        let stream = &mut self.server.as_mut().expect("it runs").1;
        stream.get_mut().write_all(request).expect("a write");
        let mut line = String::new();
        stream.read_line(&mut line).expect("a line");
        line
    }

    fn set(&mut self, key: String) {
        self.version += 1;
        let length = if self.random.chance(40) { 8 } else { 2500 };
        let value = format!("{:08}{}", self.version, "x".repeat(length - 8));
        let answer = self.ask(&crate::common::set(&key, value.as_bytes()));
        match &*answer {
            "STORED\r\n" => drop(self.last.insert(key, self.version)),
            _ => drop(self.last.remove(&key)),
        }
    }

    fn get(&mut self, key: &str) {
        let line = self.ask(format!("get {key}\r\n").as_bytes());
        if line == "END\r\n" {
            return;
        }
        let length: usize = line.trim_end().rsplit(' ').next().and_then(|word| word.parse().ok()).expect("a length");
        let mut value = vec![0; length + "\r\nEND\r\n".len()];
        self.server.as_mut().expect("it runs").1.read_exact(&mut value).expect("a value");
        let version: u64 = str::from_utf8(&value[..8]).ok().and_then(|text| text.parse().ok()).expect("a version");
        assert_eq!(self.last.get(key), Some(&version), "{key}");
        self.hits += 1;
    }

    fn step(&mut self) {
        let key = format!("{}{}", ["a", "b", "c"][self.random.uniform(3) as usize], self.random.uniform(40));
        match self.random.uniform(1000) {
            0..450 => self.set(key),
            450..900 => self.get(&key),
            900..940 => {
                self.ask(format!("delete {key}\r\n").as_bytes());
                self.last.remove(&key);
            }
            940..960 => {
                let filler = 0..self.random.uniform(4000) as u32;
                let cache = &self.server.as_ref().expect("it runs").0.cache;
                filler.for_each(|number| _ = cache.insert(&number.to_le_bytes(), &[1; 2000]).apply());
            }
            960..990 => {
                let rules = self.random_rules();
                let server = &self.server.as_ref().expect("it runs").0;
                if let Err(error) = server.reload.reload_pools(&rules) {
                    let reason = error.to_string();
                    assert!(
                        ["still being deleted", "another name"].iter().any(|text| reason.contains(text)),
                        "{reason}"
                    );
                }
            }
            _ => {
                self.stop();
                self.start();
            }
        }
    }
}

#[test]
fn no_change_of_prefixes_serves_older_values() {
    const OPERATIONS: u64 = 1500;
    for seed in seeds(1, 40) {
        for (has_file, has_flash) in [(true, true), (false, true), (true, false), (false, false)] {
            println!("seed {seed}, memory file {has_file}, flash {has_flash}");
            let (random, folder) = (Random::new(seed), tempfile::tempdir().expect("a folder"));
            let (last, server) = (HashMap::new(), None);
            let mut prefixes = Prefixes { random, folder, has_file, has_flash, server, last, version: 0, hits: 0 };
            prefixes.start();
            (0..OPERATIONS).for_each(|_| prefixes.step());
            prefixes.stop();
            assert!(prefixes.hits > OPERATIONS / 50, "{} hits", prefixes.hits);
        }
    }
}
