//! Keys that get other pools: values of before are never served again, also where a reload, a value that arrives or
//! flash fails half-way.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::packet::{self, Packet, SET};
use crate::common::{PATIENCE, assert_bytes, options, read_exactly, value};
use ebbtide::flash::{Delivery, Direction, FaultyDevice, Health};
use ebbtide::memcached::{ByteSize, Cache, CacheBuilder, FlashOptions, PoolOptions};
use ebbtide_server::{PoolRule, ReloadHandle, Running, Server, ServerOptions};

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

#[test]
fn what_flash_cannot_read_does_not_come_back() {
    let (before, after) = (rules(&[]), rules(&[rule("u", "u:")]));
    let build = |device: &Arc<FaultyDevice>, rules: &[PoolRule]| {
        let options = FlashOptions { rewrite_threshold: 1, ..FlashOptions::default() };
        let builder = Cache::builder().memory(ByteSize::mib(8)).max_value(ByteSize::kib(64));
        cache(builder.flash_device(device.clone()).flash_options(options), rules)
    };
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
    while server.cache.flash_stats().expect("flash").tier.large.read_errors < 2 {
        assert!(server.cache.is_rerouting() && Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(server.reload.reload_pools(&before).is_err(), "it goes on");
    server.stop();
    let third = Arc::new(second.killed(9));
    let back = build(&third, &before);
    assert!(!back.get(b"u:1").is_hit());
    back.close().expect("a clean close");
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
