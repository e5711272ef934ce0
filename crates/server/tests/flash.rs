//! Commands on keys that only flash has: answered as if memory had them, and in order.

mod common;

use common::packet::{self, ADD, GET, INCREMENT, OK, request};
use common::{PATIENCE, TestServer, assert_bytes, hit, options, read_exactly, read_to_end, set, value};
use ebbtide::{ByteSize, Cache, Fetch, Fetched, FlashOptions, Policy, WhenBusy};
use ebbtide_server::ServerOptions;
use std::io::Write;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// What fills memory several times over.
const FILLERS: u32 = 4000;

const TOUCH: u8 = 0x1C;
const NOT_FOUND: u16 = 1;
const EXISTS: u16 = 2;

/// Between a few writes: what no device falls behind of.
const PACE: Duration = Duration::from_millis(5);

struct Below {
    server: TestServer,
    /// Gone after the server.
    _folder: tempfile::TempDir,
}

impl Below {
    /// A server that has these on flash only.
    fn new(objects: &[(String, Vec<u8>)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        // No object is dropped for being alone in its page.
        let flash_options = FlashOptions { move_threshold: 1, ..FlashOptions::default() };
        // What was stored first is evicted first.
        let builder = Cache::builder().memory(ByteSize::mib(8)).max_value(ByteSize::mib(1)).policy(Policy::Fifo);
        let builder = builder.flash(folder.path().join("flash"), ByteSize::mib(128)).flash_options(flash_options);
        let cache = builder.build().expect("a cache");
        put_below(&cache, objects);
        let server = TestServer::around(cache, ServerOptions { threads: 1, ..options() });
        Self { server, _folder: folder }
    }
}

/// Stores these, and then so much that memory has none of them; again what flash was too slow for.
fn put_below(cache: &Cache, objects: &[(String, Vec<u8>)]) {
    let deadline = Instant::now() + 2 * PATIENCE;
    for round in 0.. {
        let missing: Vec<_> = objects.iter().filter(|(key, _)| !is_below(cache, key)).collect();
        if missing.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "{} do not get to flash: {:?}", missing.len(), cache.flash_stats());
        for (key, value) in missing {
            cache.delete(key.as_bytes());
            cache.insert(key.as_bytes(), value).apply().expect("stored");
        }
        for number in 0..FILLERS {
            cache.insert(format!("filler{round} {number}").as_bytes(), &[1; 4000]).apply().expect("stored");
            if number.is_multiple_of(20) {
                std::thread::sleep(PACE);
            }
        }
    }
}

/// Whether flash has it, and memory has not.
fn is_below(cache: &Cache, key: &str) -> bool {
    let (sender, receiver) = channel();
    let landing = Box::new(move |fetched: Fetched| sender.send(fetched.is_hit()).expect("it is waited for"));
    !cache.peek(key.as_bytes()).is_hit()
        && cache.fetch(key.as_bytes(), WhenBusy::Queue, landing) == Fetch::UnderWay
        && receiver.recv().expect("it lands")
}

fn objects(name: &str, count: usize, bytes: usize) -> Vec<(String, Vec<u8>)> {
    (0..count).map(|number| (format!("{name}{number}"), value(bytes + number))).collect()
}

#[test]
fn pipelined_gets_of_memory_flash_and_nothing_are_answered_in_order() {
    let mut below = objects("small", 300, 100);
    below.extend(objects("large", 40, 9000));
    let Below { server, _folder } = Below::new(&below);
    let mut stream = server.connect();
    let mut expected = Vec::new();
    let mut input = Vec::new();
    for (number, (key, value)) in below.iter().enumerate() {
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
    assert!(flash.promoted >= 300, "{flash:?}");
}

#[test]
fn many_reads_are_under_way_at_once() {
    let below = objects("key", 1000, 300);
    let Below { server, _folder } = Below::new(&below);
    let mut streams: Vec<_> = below.chunks(50).map(|chunk| (server.connect(), chunk)).collect();
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
fn commands_that_need_a_value_find_it_on_flash() {
    let names = [
        "append", "prepend", "add", "replace", "touch", "gat", "incr", "decr", "ma", "ms", "mg", "md", "me", "cas",
        "long",
    ];
    let below: Vec<_> = names.iter().map(|name| (name.to_string(), b"10".to_vec())).collect();
    let Below { server, _folder } = Below::new(&below);
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
    let mut below = objects("key", 100, 300);
    below.extend(["add", "touch", "number"].map(|name| (name.to_string(), b"10".to_vec())));
    let Below { server, _folder } = Below::new(&below);
    let mut stream = server.connect();
    let mut input = Vec::new();
    for (key, _) in &below[..100] {
        input.extend(request(GET, b"", key.as_bytes(), b""));
        input.extend(request(GET, b"", b"nowhere", b""));
    }
    input.extend(request(ADD, &[0; 8], b"add", b"1"));
    input.extend(request(TOUCH, &[0, 0, 0, 100], b"touch", b""));
    let counted = [&5_u64.to_be_bytes()[..], &[0; 8], &[0xff; 4]].concat();
    input.extend(request(INCREMENT, &counted, b"number", b""));
    stream.write_all(&input).expect("a write");
    for (key, value) in &below[..100] {
        let found = packet::read(&mut stream);
        assert_eq!((found.status, &found.value), (OK, value), "{key}");
        assert_eq!(packet::read(&mut stream).status, NOT_FOUND);
    }
    assert_eq!(packet::read(&mut stream).status, EXISTS);
    assert_eq!(packet::read(&mut stream).status, OK);
    assert_eq!(packet::read(&mut stream).value, 15_u64.to_be_bytes());
}

#[test]
fn a_stop_answers_what_waits_for_flash() {
    let below = objects("key", 200, 300);
    let Below { mut server, _folder } = Below::new(&below);
    let mut stream = server.connect();
    let keys: Vec<&str> = below.iter().map(|(key, _)| key.as_str()).collect();
    stream.write_all(format!("get {}\r\n", keys.join(" ")).as_bytes()).expect("a write");
    // The first of them are answered: the others are under way, or done.
    let mut expected: Vec<u8> = below.iter().flat_map(|(key, value)| hit(key, value)).collect();
    expected.extend(b"END\r\n");
    let mut answer = read_exactly(&mut stream, 1);
    server.running().stop().expect("a clean stop");
    answer.extend(read_to_end(&mut stream));
    assert_bytes(&answer, &expected);
}
