//! CAS tokens over flash: an unchanged value keeps the token that a client got, whatever moves or evicts it. A changed
//! value has another token.

use crate::common::flash_server::{FlashServer, is_on_flash_only, objects};
use crate::common::packet::{self, GET, OK, Packet, SET};
use crate::common::{PATIENCE, assert_bytes, options, set};
use ebbtide::memcached::{ByteSize, Cache, FlashPromotion, Ttl};
use std::time::{Duration, Instant};

/// The table of tokens has 455 sets of 8 places here: a set of these overflows in one of a million runs.
const KEYS: usize = 200;
/// Keys of each kind of answer.
const QUARTER: usize = KEYS / 4;
const EXISTS: u16 = 2;

fn server(objects: &[(String, Vec<u8>)]) -> FlashServer {
    FlashServer::of_size(ByteSize::mib(32), objects, FlashPromotion::Always, options())
}

/// Has memory evict these.
fn evict(cache: &Cache, keys: &[String]) {
    let deadline = Instant::now() + PATIENCE;
    for number in 0.. {
        // The last segment of each TTL stays in memory.
        let ttl = [Ttl::Never, Ttl::seconds(1000)][number % 2];
        cache.insert(format!("pusher{number}").as_bytes(), &[1; 4000]).ttl(ttl).apply().expect("stored");
        if number % 20 == 0 {
            // A rate of writes that every device sustains.
            std::thread::sleep(Duration::from_millis(2));
        }
        if number % 1000 == 0 && keys.iter().all(|key| is_on_flash_only(cache, key)) {
            return;
        }
        assert!(Instant::now() < deadline, "they do not get to flash: {:?}", cache.flash_stats());
    }
}

/// The tokens that a command answers, at the end of its first line.
fn tokens(flash_objects: &FlashServer, keys: &[String], command: &str) -> Vec<u64> {
    let of_key = |key: &String| {
        let answer = flash_objects.server.talk(command.replace('@', key).as_bytes());
        let line = answer.split(|byte| *byte == b'\r').next().expect("a line");
        let word = String::from_utf8_lossy(line.rsplit(|byte| *byte == b' ').next().expect("a word")).into_owned();
        word.trim_start_matches('c').parse().unwrap_or_else(|_| panic!("no token in {word}"))
    };
    keys.iter().map(of_key).collect()
}

#[test]
fn unchanged_objects_keep_their_token_on_flash() {
    let objects = objects("key", KEYS, 300);
    let keys: Vec<String> = objects.iter().map(|(key, _)| key.clone()).collect();
    let flash_objects = server(&objects);
    let cache = &flash_objects.server.cache;
    let handed = tokens(&flash_objects, &keys, "gets @\r\n");
    for _ in 0..2 {
        evict(cache, &keys);
        assert_eq!(tokens(&flash_objects, &keys, "gets @\r\n"), handed);
    }
    assert_eq!(tokens(&flash_objects, &keys, "mg @ c\r\n"), handed);
    evict(cache, &keys);
    // Each kind of command that is bound to a token.
    let of_kind = |kind: usize| keys.iter().zip(&handed).skip(kind).step_by(5);
    let talk = |line: String, answer: &[u8]| assert_bytes(&flash_objects.server.talk(line.as_bytes()), answer);
    of_kind(0).for_each(|(key, token)| talk(format!("cas {key} 0 0 1 {token}\r\nx\r\n"), b"STORED\r\n"));
    of_kind(1).for_each(|(key, token)| talk(format!("ms {key} 1 C{token}\r\nx\r\n"), b"HD\r\n"));
    of_kind(2).for_each(|(key, token)| talk(format!("ms {key} 1 MA C{token}\r\nx\r\n"), b"HD\r\n"));
    of_kind(3).for_each(|(key, token)| talk(format!("md {key} C{token}\r\n"), b"HD\r\n"));
    of_kind(4).for_each(|(key, token)| talk(format!("md {key} C{token} I\r\n"), b"HD\r\n"));
    // And none of them a second time.
    keys.iter().zip(&handed).enumerate().for_each(|(number, (key, token))| {
        let answer: &[u8] = if number % 5 == 3 { b"NOT_FOUND\r\n" } else { b"EXISTS\r\n" };
        talk(format!("cas {key} 0 0 1 {token}\r\nx\r\n"), answer);
    });
    assert_eq!(flash_objects.server.cache.flash_stats().expect("flash").unknown_tokens, 0);
}

/// Values that stay on flash: a binary get has the token that a client got before, and makes none.
#[test]
fn served_packets_have_the_token_that_is_kept() {
    let flash_objects = objects("key", 2 * QUARTER, 300);
    let keys: Vec<String> = flash_objects.iter().map(|(key, _)| key.clone()).collect();
    let flash_objects = FlashServer::of_size(ByteSize::mib(32), &flash_objects, FlashPromotion::Never, options());
    let (known, unknown) = keys.split_at(QUARTER);
    let handed = tokens(&flash_objects, known, "gets @\r\n");
    evict(&flash_objects.server.cache, known);
    let served = || flash_objects.server.cache.flash_stats().expect("flash").served;
    let before = served();
    let mut stream = flash_objects.server.connect();
    let mut get = |key: &String| packet::ask(&mut stream, &packet::request(GET, b"", key.as_bytes(), b"")).cas;
    assert_eq!(known.iter().map(&mut get).collect::<Vec<_>>(), handed);
    let mut found: Vec<(&String, u64, bool)> = known.iter().zip(handed).map(|(key, cas)| (key, cas, true)).collect();
    found.extend(unknown.iter().map(|key| (key, get(key), false)));
    assert_eq!(served() - before, 2 * QUARTER as u64);
    for (key, cas, is_kept) in found {
        for status in [if is_kept { OK } else { EXISTS }, EXISTS] {
            let put = Packet { opcode: SET, extras: &[0; 8], key: key.as_bytes(), value: b"2", cas, opaque: 0 };
            assert_eq!(packet::ask(&mut stream, &put.bytes()).status, status, "{key}");
        }
    }
}

#[test]
fn changed_objects_get_another_token_across_flash() {
    let objects = objects("key", KEYS, 300);
    let keys: Vec<String> = objects.iter().map(|(key, _)| key.clone()).collect();
    let flash_objects = server(&objects);
    let handed = tokens(&flash_objects, &keys, "gets @\r\n");
    let change = |key: &str, kind: usize| match kind {
        0 => set(key, b"7"),
        1 => format!("append {key} 0 0 1\r\nx\r\n").into_bytes(),
        2 => format!("delete {key}\r\nadd {key} 0 0 1\r\n7\r\n").into_bytes(),
        _ => format!("set {key} 0 0 1\r\n7\r\nincr {key} 1\r\nincr {key} 1\r\ndecr {key} 2\r\n").into_bytes(),
    };
    for (number, key) in keys.iter().enumerate() {
        flash_objects.server.talk(&change(key, number % 4));
    }
    evict(&flash_objects.server.cache, &keys);
    for (key, token) in keys.iter().zip(&handed) {
        let cas = format!("cas {key} 0 0 1 {token}\r\nx\r\n");
        assert_bytes(&flash_objects.server.talk(cas.as_bytes()), b"EXISTS\r\n");
    }
    assert_eq!(flash_objects.server.cache.flash_stats().expect("flash").unknown_tokens, KEYS as u64);
    let stats = flash_objects.server.talk(b"stats ebbtide\r\n");
    assert!(String::from_utf8_lossy(&stats).contains(&format!("flash_unknown_tokens {KEYS}\r\n")));
}

#[test]
fn numbers_keep_their_token_until_the_next_incr() {
    let keys: Vec<String> = (0..KEYS).map(|number| format!("number{number}")).collect();
    let flash_objects = server(&[]);
    for key in &keys {
        flash_objects.server.talk(&[set(key, b"100"), format!("incr {key} 1\r\n").into_bytes()].concat());
    }
    let handed = tokens(&flash_objects, &keys, "gets @\r\n");
    evict(&flash_objects.server.cache, &keys);
    for (number, (key, token)) in keys.iter().zip(&handed).enumerate() {
        let count = if number % 2 == 0 { format!("incr {key} 1\r\nincr {key} 1\r\n") } else { String::new() };
        flash_objects.server.talk(count.as_bytes());
        let answer: &[u8] = if number % 2 == 0 { b"EXISTS\r\n" } else { b"STORED\r\n" };
        assert_bytes(&flash_objects.server.talk(format!("cas {key} 0 0 1 {token}\r\n7\r\n").as_bytes()), answer);
    }
}

#[test]
fn tokens_from_writes_and_packets_survive_flash() {
    let keys: Vec<String> = (0..KEYS).map(|number| format!("key{number}")).collect();
    let flash_objects = server(&[]);
    let mut stream = flash_objects.server.connect();
    let mut handed = tokens(&flash_objects, &keys[..QUARTER], "ms @ 3 c\r\nabc\r\n");
    for key in &keys[QUARTER..2 * QUARTER] {
        handed.push(packet::ask(&mut stream, &packet::set(key.as_bytes(), b"abc")).cas);
    }
    for key in &keys[2 * QUARTER..3 * QUARTER] {
        packet::ask(&mut stream, &packet::set(key.as_bytes(), b"abc"));
        flash_objects.server.talk(format!("touch {key} 1000\r\n").as_bytes());
        handed.push(packet::ask(&mut stream, &packet::request(GET, b"", key.as_bytes(), b"")).cas);
    }
    for key in &keys[3 * QUARTER..] {
        flash_objects.server.talk(&set(key, b"abc"));
    }
    handed.extend(tokens(&flash_objects, &keys[3 * QUARTER..], "mg @ c T1000\r\n"));
    evict(&flash_objects.server.cache, &keys);
    for (key, cas) in keys.iter().zip(handed) {
        for status in [OK, EXISTS] {
            let put = Packet { opcode: SET, extras: &[0; 8], key: key.as_bytes(), value: b"2", cas, opaque: 0 };
            assert_eq!(packet::ask(&mut stream, &put.bytes()).status, status, "{key}");
        }
    }
}
