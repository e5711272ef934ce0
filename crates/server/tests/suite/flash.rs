//! Commands on keys that only flash has: answered as if memory had them, and in order.

use crate::common::flash_server::{FlashServer, objects, read};
use crate::common::packet::{self, ADD, APPEND, GET, INCREMENT, OK, Packet, SET, request};
use crate::common::{PATIENCE, TestServer, assert_bytes, hit, options, read_exactly, read_to_end, set, value};
use ebbtide::memcached::{ByteSize, Cache, FlashPromotion};
use ebbtide_server::ServerOptions;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

const TOUCH: u8 = 0x1C;
const NOT_FOUND: u16 = 1;
const EXISTS: u16 = 2;
/// Clients beside one that never rests.
const CROWD: usize = 12;
/// A command without an answer.
const SILENT: &[u8] = b"set near 0 0 1 noreply\r\nx\r\n";

#[test]
fn pipelined_gets_from_every_tier_keep_order() {
    let mut flash_objects = objects("small", 300, 100);
    flash_objects.extend(objects("large", 40, 9000));
    let FlashServer { server, folder: _folder } = FlashServer::new(&flash_objects);
    let mut stream = server.connect();
    let mut expected = Vec::new();
    let mut input = Vec::new();
    for (number, (key, value)) in flash_objects.iter().enumerate() {
        let near = format!("near{number}");
        input.extend(set(&near, key.as_bytes()));
        expected.extend(b"STORED\r\n");
        input.extend(format!("get {near} {key} nowhere{number}\r\nmg {key} v\r\nget nowhere\r\n").into_bytes());
        expected.extend([hit(&near, key.as_bytes()), hit(key, value), b"END\r\n".to_vec()].concat());
        expected.extend([format!("VA {}\r\n", value.len()).as_bytes(), value, b"\r\nEND\r\n"].concat());
    }
    std::thread::scope(|scope| {
        let mut writer = stream.try_clone().expect("a clone");
        scope.spawn(move || writer.write_all(&input).expect("a write"));
        let answer = read_exactly(&mut stream, expected.len());
        assert_bytes(&answer, &expected);
    });
    let flash = server.cache.flash_stats().expect("flash");
    // While the device is behind, hits are answered and stay on flash.
    assert!(flash.promoted + flash.promotions_refused >= 300, "{flash:?}");
}

#[test]
fn many_reads_are_under_way_at_once() {
    let flash_objects = objects("key", 1000, 300);
    let FlashServer { server, folder: _folder } = FlashServer::new(&flash_objects);
    let mut streams: Vec<_> = flash_objects.chunks(50).map(|chunk| (server.connect(), chunk)).collect();
    for (stream, chunk) in &mut streams {
        let keys: Vec<&str> = chunk.iter().map(|(key, _)| key.as_str()).collect();
        stream.write_all(format!("get {}\r\n", keys.join(" ")).as_bytes()).expect("a write");
    }
    for (stream, chunk) in &mut streams {
        let mut expected: Vec<u8> = chunk.iter().flat_map(|(key, value)| hit(key, value)).collect();
        expected.extend(b"END\r\n");
        let answer = read_exactly(stream, expected.len());
        assert_bytes(&answer, &expected);
    }
}

#[test]
fn commands_on_values_find_them_on_flash() {
    let names = [
        "append", "prepend", "add", "replace", "touch", "gat", "incr", "decr", "ma", "ms", "mg", "md", "me", "cas",
        "long",
    ];
    let flash_objects: Vec<_> = names.iter().map(|name| (name.to_string(), b"10".to_vec())).collect();
    let FlashServer { server, folder: _folder } = FlashServer::new(&flash_objects);
    let long = value(200_000);
    let exchanges: Vec<(Vec<u8>, Vec<u8>)> = vec![
        (
            b"append append 0 0 1\r\n1\r\nget append\r\n".into(),
            [&b"STORED\r\n"[..], &hit("append", b"101"), b"END\r\n"].concat(),
        ),
        (
            b"prepend prepend 0 0 1\r\n1\r\nget prepend\r\n".into(),
            [&b"STORED\r\n"[..], &hit("prepend", b"110"), b"END\r\n"].concat(),
        ),
        (b"add add 0 0 1\r\n1\r\n".into(), b"NOT_STORED\r\n".into()),
        (b"replace replace 0 0 1\r\n1\r\n".into(), b"STORED\r\n".into()),
        (b"touch touch 100\r\nmg touch t\r\n".into(), b"TOUCHED\r\nHD t100\r\n".into()),
        (b"gat 100 gat nowhere\r\n".into(), [hit("gat", b"10"), b"END\r\n".to_vec()].concat()),
        (b"incr incr 5\r\n".into(), b"15\r\n".into()),
        (b"decr decr 5\r\n".into(), b"5\r\n".into()),
        (b"ma ma v\r\n".into(), b"VA 2\r\n11\r\n".into()),
        (b"ms ms 1 MA\r\n7\r\nmg ms v\r\n".into(), b"HD\r\nVA 3\r\n107\r\n".into()),
        (b"mg mg s v N30 t\r\n".into(), b"VA 2 s2 t-1\r\n10\r\n".into()),
        (b"md md C1\r\n".into(), b"EX\r\n".into()),
        (b"cas cas 0 0 1 1\r\n1\r\n".into(), b"EXISTS\r\n".into()),
        // A value that comes in pieces.
        ([b"add long 0 0 200000\r\n", &long[..], b"\r\n"].concat(), b"NOT_STORED\r\n".into()),
    ];
    for (input, expected) in exchanges {
        assert_bytes(&server.talk(&input), &expected);
    }
    assert!(server.talk(b"me me\r\n").starts_with(b"ME me exp=-1 "));
}

#[test]
fn binary_commands_find_what_is_on_flash() {
    let mut flash_objects = objects("key", 100, 300);
    flash_objects.extend(["add", "touch", "number", "pieces", "joined"].map(|name| (name.to_string(), b"10".to_vec())));
    let FlashServer { server, folder: _folder } = FlashServer::new(&flash_objects);
    let mut stream = server.connect();
    let mut input = Vec::new();
    for (key, _) in &flash_objects[..100] {
        input.extend(request(GET, b"", key.as_bytes(), b""));
        input.extend(request(GET, b"", b"nowhere", b""));
    }
    input.extend(request(ADD, &[0; 8], b"add", b"1"));
    input.extend(request(TOUCH, &[0, 0, 0, 100], b"touch", b""));
    let counted = [&5_u64.to_be_bytes()[..], &[0; 8], &[0xff; 4]].concat();
    input.extend(request(INCREMENT, &counted, b"number", b""));
    // Values that come in pieces.
    let long = value(200_000);
    input.extend(request(ADD, &[0; 8], b"pieces", &long));
    input.extend(request(APPEND, b"", b"joined", &long));
    input.extend(request(GET, b"", b"joined", b""));
    let mut writer = stream.try_clone().expect("a clone");
    let written = std::thread::spawn(move || writer.write_all(&input).expect("a write"));
    for (key, value) in &flash_objects[..100] {
        let found = packet::read(&mut stream);
        assert_eq!((found.status, &found.value), (OK, value), "{key}");
        assert_eq!(packet::read(&mut stream).status, NOT_FOUND);
    }
    assert_eq!(packet::read(&mut stream).status, EXISTS);
    assert_eq!(packet::read(&mut stream).status, OK);
    assert_eq!(packet::read(&mut stream).value, 15_u64.to_be_bytes());
    assert_eq!(packet::read(&mut stream).status, EXISTS);
    assert_eq!(packet::read(&mut stream).status, OK);
    assert!(packet::read(&mut stream).value == [b"10", &long[..]].concat(), "it is joined");
    written.join().expect("all is written");
}

#[test]
fn a_stop_answers_what_waits_for_flash() {
    let flash_objects = objects("key", 200, 300);
    let options = ServerOptions { stop_timeout: PATIENCE, ..options() };
    let FlashServer { mut server, folder: _folder } =
        FlashServer::with(&flash_objects, FlashPromotion::Always, options);
    let mut stream = server.connect();
    let keys: Vec<&str> = flash_objects.iter().map(|(key, _)| key.as_str()).collect();
    stream.write_all(format!("get {}\r\n", keys.join(" ")).as_bytes()).expect("a write");
    // The first of them are answered: the others are under way, or done.
    let mut expected: Vec<u8> = flash_objects.iter().flat_map(|(key, value)| hit(key, value)).collect();
    expected.extend(b"END\r\n");
    let mut answer = read_exactly(&mut stream, 1);
    server.running().stop().expect("a clean stop");
    answer.extend(read_to_end(&mut stream));
    assert_bytes(&answer, &expected);
}

#[test]
fn clients_that_do_not_read_release_read_buffers() {
    let flash_objects = objects("key", 21, 60_000);
    let FlashServer { server, folder } = FlashServer::new(&flash_objects);
    // More than the socket's buffer, and less than the output limit of a connection.
    let big = value(250_000);
    server.cache.insert(b"big", &big).apply().expect("stored");
    let mut deaf = Vec::new();
    for (key, _) in &flash_objects[1..] {
        let mut stream = UnixStream::connect(folder.path().join("socket")).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("an option");
        stream.write_all(format!("get big\r\ngat 0 {key}\r\n").as_bytes()).expect("a write");
        deaf.push(stream);
    }
    server.wait_for("an answer that is not taken", || {
        let conns = server.talk(b"stats conns\r\n");
        String::from_utf8_lossy(&conns).matches("conn_mwrite").count() == deaf.len()
    });
    let (key, value) = &flash_objects[0];
    assert_bytes(&server.talk(format!("get {key}\r\n").as_bytes()), &[hit(key, value), b"END\r\n".to_vec()].concat());
    for (stream, (key, value)) in deaf.iter_mut().zip(&flash_objects[1..]) {
        let expected = [hit("big", &big), b"END\r\n".to_vec(), hit(key, value), b"END\r\n".to_vec()].concat();
        let mut answer = vec![0; expected.len()];
        stream.read_exact(&mut answer).expect("all bytes of the answer");
        assert_bytes(&answer, &expected);
    }
}

#[test]
fn long_answers_do_not_repeat_flash_reads() {
    let flash_objects = objects("key", 6, 8000);
    let FlashServer { server, folder: _folder } = FlashServer::new(&flash_objects);
    // More than the output limit of a connection.
    let big = value(270_000);
    server.cache.insert(b"big", &big).apply().expect("stored");
    let found = || server.cache.flash_stats().expect("flash").tier.hits_large;
    let before = found();
    let mut line = String::from("get");
    let mut expected = Vec::new();
    for (key, value) in &flash_objects {
        line += &format!(" {key} big");
        expected.extend([hit(key, value), hit("big", &big)].concat());
    }
    expected.extend(b"END\r\n");
    assert_bytes(&server.talk(format!("{line}\r\n").as_bytes()), &expected);
    let reads = found() - before;
    assert!(reads < 2 * flash_objects.len() as u64, "{reads} reads");
}

#[test]
fn flash_serves_plain_gets_and_promotes_for_others() {
    let mut flash_objects = objects("key", 60, 300);
    flash_objects.extend(objects("long", 3, 100_000));
    flash_objects.extend(["token", "tells", "packet"].map(|name| (name.to_string(), b"10".to_vec())));
    let FlashServer { server, folder: _folder } = FlashServer::with_promotion(&flash_objects, FlashPromotion::Never);
    let counts = || server.cache.flash_stats().map(|flash| (flash.promoted, flash.served)).expect("flash");
    let mut line = String::from("get near");
    let mut expected = hit("near", b"0");
    for (key, value) in &flash_objects[..63] {
        line += &format!(" {key} near");
        expected.extend([hit(key, value), hit("near", b"0")].concat());
    }
    expected.extend(b"END\r\n");
    server.talk(&set("near", b"0"));
    assert_bytes(&server.talk(format!("{line}\r\n").as_bytes()), &expected);
    assert_eq!(counts(), (0, 63));
    assert_bytes(
        &server.talk(b"mg tells k f v s t O9 q\r\nmg tells\r\nmn\r\n"),
        b"VA 2 ktells f0 s2 t-1 O9\r\n10\r\nHD\r\nMN\r\n",
    );
    assert_eq!(counts(), (0, 65));
    let gets = b"gets token\r\nmg tells h\r\n";
    let answer = String::from_utf8(server.talk(gets)).expect("a text");
    let token = answer.lines().next().and_then(|line| line.rsplit(' ').next()).expect("a token");
    assert_eq!(counts(), (2, 65));
    assert_bytes(&server.talk(format!("cas token 0 0 1 {token}\r\n1\r\n").as_bytes()), b"STORED\r\n");
    // Every answer of the binary protocol has a token: that of a value on flash is none's.
    let mut stream = server.connect();
    let mut put = |stored: u16| {
        stream.write_all(&request(GET, b"", b"packet", b"")).expect("a write");
        let found = packet::read(&mut stream);
        assert_eq!((found.status, &found.value[..]), (OK, &b"10"[..]));
        assert_ne!(found.cas, 0, "which would ask for nothing");
        let put = Packet { opcode: SET, extras: &[0; 8], key: b"packet", value: b"2", cas: found.cas, opaque: 0 };
        assert_eq!(packet::ask(&mut stream, &put.bytes()).status, stored);
    };
    put(EXISTS);
    put(OK);
    assert_eq!(counts(), (3, 66));
}

/// Maximum number of these values that can be held, starting with the first.
fn max_held(cache: &Cache, flash_objects: &[(String, Vec<u8>)]) -> usize {
    let keys: Vec<&[u8]> = flash_objects.iter().map(|(key, _)| key.as_bytes()).collect();
    read(cache, &keys).found()
}

#[test]
fn a_busy_client_releases_unneeded_read_buffers() {
    let flash_objects = objects("key", 60, 60_000);
    let FlashServer { server, folder } = FlashServer::new(&flash_objects);
    let held = max_held(&server.cache, &flash_objects);
    let connect = || UnixStream::connect(folder.path().join("socket")).expect("a connection");
    let mut restless = connect();
    let (mut input, mut expected) = (Vec::new(), String::new());
    // The second get of each key hits memory, so its completed read is left over. Together the reads fill all buffers.
    for (key, value) in &flash_objects[..held] {
        input.extend(format!("mg {key} s\r\nmg {key} s\r\n").into_bytes());
        input.extend(SILENT.repeat(1 << 12));
        expected += &format!("HD s{}\r\n", value.len()).repeat(2);
    }
    let mut writer = restless.try_clone().expect("a clone");
    let is_over = AtomicBool::new(false);
    let write_on = |stream: &mut UnixStream| {
        let silent = SILENT.repeat(1 << 15);
        while !is_over.load(Ordering::Relaxed) {
            stream.write_all(&silent).expect("a write");
        }
    };
    std::thread::scope(|scope| {
        // More input of the client arrives before the worker serves it again.
        (0..CROWD).for_each(|_| _ = scope.spawn(|| write_on(&mut connect())));
        scope.spawn(|| {
            writer.write_all(&input).expect("a write");
            write_on(&mut writer);
        });
        let (key, value) = &flash_objects[held];
        let answer = catch_unwind(AssertUnwindSafe(|| {
            let mut answer = vec![0; expected.len()];
            restless.read_exact(&mut answer).expect("all bytes of the answer");
            assert_bytes(&answer, expected.as_bytes());
            server.talk(format!("get {key}\r\n").as_bytes())
        }));
        is_over.store(true, Ordering::Relaxed);
        assert_bytes(&answer.expect("an answer"), &[hit(key, value), b"END\r\n".to_vec()].concat());
    });
}

#[test]
fn settings_say_that_unread_objects_are_dropped() {
    let folder = tempfile::tempdir().expect("a folder");
    let builder = Cache::builder().flash(folder.path().join("flash"), ByteSize::mib(64));
    let server = TestServer::around(builder.build().expect("a cache"), options());
    let settings = String::from_utf8(server.talk(b"stats settings\r\n")).expect("text");
    assert!(settings.contains("STAT ext_drop_unread yes\r\n"), "{settings}");
}
