//! Commands whose answer depends on the presence of a key, over flash. Memory's knowledge of flash is approximate: keys
//! that may be on flash must be answered correctly, whether present or absent.

use crate::common::flash_server::is_on_flash_only;
use crate::common::packet::{self, ADD, APPEND, DECREMENT, DELETE, INCREMENT, OK, Packet, SET};
use crate::common::{PATIENCE, TestServer, assert_bytes, options, read_exactly};
use ebbtide::memcached::{ByteSize, Cache, Error, FlashOptions, FlashPromotion, FlashReads, Mode, Policy, Stored, Ttl};
use std::io::Write;
use std::time::{Duration, Instant};

/// Keys of each command that are nowhere, and of each that are on flash only.
const ABSENT: usize = 2000;
const PRESENT: usize = 100;
const STORED: u32 = 60_000;
/// Of these on flash only: for all commands, and for filters that fit other keys.
const ENOUGH: usize = 30 * PRESENT;
const VALUE: &[u8] = b"7";

const REPLACE: u8 = 0x03;
const PREPEND: u8 = 0x0F;
const DELETE_QUIETLY: u8 = 0x14;
const TOUCH: u8 = 0x1C;
const GET_AND_TOUCH: u8 = 0x1D;
const NOT_FOUND: u16 = 1;
const EXISTS: u16 = 2;
const NOT_STORED: u16 = 5;
const NO_MEMORY: u16 = 0x82;

/// A server whose flash has enough small objects in pages that the filters of many pages fit other keys, too.
struct Full {
    server: TestServer,
    /// Keys on flash only that no command has named.
    present: std::vec::IntoIter<String>,
    _folder: tempfile::TempDir,
}

impl Full {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let flash =
            FlashOptions { small_share: Some(0.9), log_percent: 2, rewrite_threshold: 1, ..FlashOptions::default() };
        let builder = Cache::builder().memory(ByteSize::mib(8)).policy(Policy::Fifo).flash_options(flash);
        let builder = builder.flash(folder.path().join("flash"), ByteSize::mib(64));
        // A slow device delays evicted objects, and loses none.
        let builder = builder.flash_promotion(FlashPromotion::Never).flash_demotion_wait(PATIENCE);
        let cache = builder.build().expect("a cache");
        let keys: Vec<String> =
            (0..STORED).map(|number| format!("stored {number} {:150}", "").replace(' ', "_")).collect();
        let deadline = Instant::now() + PATIENCE;
        let mut present = Vec::new();
        // Repeats it for objects that the device dropped.
        while present.len() < ENOUGH {
            assert!(Instant::now() < deadline, "only {} are on flash: {:?}", present.len(), cache.flash_stats());
            for (number, key) in keys.iter().enumerate() {
                cache.insert(key.as_bytes(), VALUE).apply().expect("stored");
                if number.is_multiple_of(200) {
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
            present = keys.iter().filter(|key| is_on_flash_only(&cache, key)).cloned().collect();
        }
        Self { server: TestServer::around(cache, options()), present: present.into_iter(), _folder: folder }
    }

    /// Keys that are nowhere, and of which flash says "perhaps".
    fn absent(&self, name: &str) -> Vec<String> {
        let keys = (0..1_000_000).map(|number| format!("{name}{number}"));
        let keys: Vec<_> = keys
            .filter(|key| self.server.cache.probe_flash(&FlashReads::default(), key.as_bytes()).is_some())
            .take(ABSENT)
            .collect();
        assert_eq!(keys.len(), ABSENT, "keys of which flash says perhaps");
        keys
    }

    fn present(&mut self) -> Vec<String> {
        let keys: Vec<_> = self.present.by_ref().take(PRESENT).collect();
        assert_eq!(keys.len(), PRESENT);
        keys
    }

    /// Asks the same of all keys, one behind the other, in one go.
    fn ask(&self, keys: &[String], command: &str, answer: &str) {
        let of = |text: &str| keys.iter().map(|key| text.replace('@', key)).collect::<String>();
        let answers = self.server.talk(of(command).as_bytes());
        let (answers, expected) = (String::from_utf8(answers).expect("text"), of(answer));
        let wrong = answers.lines().zip(expected.lines()).filter(|(answer, expected)| answer != expected).count();
        assert_eq!(wrong, 0, "{command:?}: of {} answers", keys.len());
        assert_bytes(answers.as_bytes(), expected.as_bytes());
    }

    /// Checks the answer of each command for an absent key, and for a key on flash.
    fn ask_of_all(&mut self, cases: &[(&str, &str, &str)]) {
        for (number, (command, of_absent, of_present)) in cases.iter().enumerate() {
            self.ask(&self.absent(&format!("case{number}-")), command, of_absent);
            let present = self.present();
            self.ask(&present, command, of_present);
        }
    }
}

#[test]
fn text_commands_tell_absent_keys_from_flash_keys() {
    let mut full = Full::new();
    full.ask_of_all(&[
        ("delete @\r\ndelete @\r\n", "NOT_FOUND\r\nNOT_FOUND\r\n", "DELETED\r\nNOT_FOUND\r\n"),
        ("delete @ noreply\r\ndelete @\r\n", "NOT_FOUND\r\n", "NOT_FOUND\r\n"),
        ("touch @ 100\r\n", "NOT_FOUND\r\n", "TOUCHED\r\n"),
        ("touch @ -1\r\nget @\r\n", "NOT_FOUND\r\nEND\r\n", "TOUCHED\r\nEND\r\n"),
        ("incr @ 1\r\n", "NOT_FOUND\r\n", "8\r\n"),
        ("decr @ 1\r\n", "NOT_FOUND\r\n", "6\r\n"),
        ("append @ 0 0 1\r\nx\r\n", "NOT_STORED\r\n", "STORED\r\n"),
        ("prepend @ 0 0 1\r\nx\r\n", "NOT_STORED\r\n", "STORED\r\n"),
        ("replace @ 0 0 1\r\nx\r\n", "NOT_STORED\r\n", "STORED\r\n"),
        ("cas @ 0 0 1 1\r\nx\r\n", "NOT_FOUND\r\n", "EXISTS\r\n"),
        ("gat 100 @\r\n", "END\r\n", "VALUE @ 0 1\r\n7\r\nEND\r\n"),
        ("add @ 0 0 1\r\nx\r\n", "STORED\r\n", "NOT_STORED\r\n"),
        ("add @ 0 -1 1\r\nx\r\nget @\r\n", "STORED\r\nEND\r\n", "NOT_STORED\r\nVALUE @ 0 1\r\n7\r\nEND\r\n"),
    ]);
}

#[test]
fn waits_behind_refused_values_execute_no_value() {
    const REFUSAL: &str = "CLIENT_ERROR bad command line format\r\n";
    let mut full = Full::new();
    full.server.cache.insert(b"kept", b"v").apply().expect("stored");
    let refused = [
        ("set refused x 0 11\r\nflush_all\r\n\r\n".to_owned(), REFUSAL),
        (format!("set {} 0 0 13\r\ndelete kept\r\n\r\n", "k".repeat(251)), REFUSAL),
        ("ms refused 11 y\r\nflush_all\r\n\r\n".to_owned(), "CLIENT_ERROR invalid flag\r\n"),
    ];
    for (refused, refusal) in refused {
        for (command, answer) in [
            ("touch @ 0\r\n", "TOUCHED\r\n"),
            ("incr @ 1\r\n", "8\r\n"),
            ("delete @\r\nset other 0 0 1\r\nx\r\n", "DELETED\r\nSTORED\r\n"),
            ("add @ 0 0 1\r\nx\r\nadd @ 0 0 1\r\nx\r\n", "NOT_STORED\r\nNOT_STORED\r\n"),
        ] {
            for key in full.present().into_iter().take(10) {
                let input = [&refused, &command.replace('@', &key)[..]].concat();
                assert_bytes(&full.server.talk(input.as_bytes()), [refusal, answer].concat().as_bytes());
                assert_bytes(&full.server.talk(b"get kept\r\n"), b"VALUE kept 0 1\r\nv\r\nEND\r\n");
            }
        }
    }
    // The rest of a refused line that arrives with its end in another read.
    for key in full.present().into_iter().take(10) {
        let mut stream = full.server.connect();
        stream.write_all(&[b"get ", &[b'x'; 2100][..]].concat()).expect("a write");
        assert_bytes(&read_exactly(&mut stream, REFUSAL.len()), REFUSAL.as_bytes());
        stream.write_all(format!("flush_all\r\ntouch {key} 0\r\n").as_bytes()).expect("a write");
        assert_bytes(&read_exactly(&mut stream, 9), b"TOUCHED\r\n");
        assert_bytes(&full.server.talk(b"get kept\r\n"), b"VALUE kept 0 1\r\nv\r\nEND\r\n");
    }
}

#[test]
fn meta_commands_tell_absent_keys_from_flash_keys() {
    let mut full = Full::new();
    full.ask_of_all(&[
        ("md @\r\nmd @\r\n", "NF\r\nNF\r\n", "HD\r\nNF\r\n"),
        ("md @ O1 k\r\n", "NF O1 k@\r\n", "HD O1 k@\r\n"),
        ("md @ C5\r\n", "NF\r\n", "EX\r\n"),
        ("md @ I T30\r\n", "NF\r\n", "HD\r\n"),
        ("mg @ s v\r\n", "EN\r\n", "VA 1 s1\r\n7\r\n"),
        ("mg @ h\r\n", "EN\r\n", "HD h0\r\n"),
        ("mg @ N30 s\r\n", "HD s0 W\r\n", "HD s1\r\n"),
        ("mg @ T30 t\r\n", "EN\r\n", "HD t30\r\n"),
        ("ma @ v\r\n", "NF\r\n", "VA 1\r\n8\r\n"),
        ("ma @ MD v\r\n", "NF\r\n", "VA 1\r\n6\r\n"),
        ("ma @ N0 J5 v\r\n", "VA 1\r\n5\r\n", "VA 1\r\n8\r\n"),
        ("ms @ 1 ME\r\nx\r\n", "HD\r\n", "NS\r\n"),
        ("ms @ 1 MR\r\nx\r\n", "NS\r\n", "HD\r\n"),
        ("ms @ 1 MA\r\nx\r\n", "NS\r\n", "HD\r\n"),
        ("ms @ 1 MP\r\nx\r\n", "NS\r\n", "HD\r\n"),
        ("ms @ 1 C5\r\nx\r\n", "NF\r\n", "EX\r\n"),
        ("ms @ 1 C5 I\r\nx\r\n", "NF\r\n", "HD\r\n"),
    ]);
}

#[test]
fn binary_commands_tell_absent_keys_from_flash_keys() {
    let mut full = Full::new();
    let mut stream = full.server.connect();
    let delta = [&1_u64.to_be_bytes()[..], &[0; 8], &[0xff; 4]].concat();
    let packet = Packet::default();
    for (name, packet, of_absent, of_present) in [
        ("delete", Packet { opcode: DELETE, ..packet.clone() }, NOT_FOUND, OK),
        ("delete-cas", Packet { opcode: DELETE, cas: 5, ..packet.clone() }, NOT_FOUND, EXISTS),
        ("touch", Packet { opcode: TOUCH, extras: &[0, 0, 0, 99], ..packet.clone() }, NOT_FOUND, OK),
        ("gat", Packet { opcode: GET_AND_TOUCH, extras: &[0, 0, 0, 99], ..packet.clone() }, NOT_FOUND, OK),
        ("incr", Packet { opcode: INCREMENT, extras: &delta, ..packet.clone() }, NOT_FOUND, OK),
        ("decr", Packet { opcode: DECREMENT, extras: &delta, ..packet.clone() }, NOT_FOUND, OK),
        ("append", Packet { opcode: APPEND, value: b"x", ..packet.clone() }, NOT_STORED, OK),
        ("prepend", Packet { opcode: PREPEND, value: b"x", ..packet.clone() }, NOT_STORED, OK),
        ("replace", Packet { opcode: REPLACE, extras: &[0; 8], value: b"x", ..packet.clone() }, NOT_FOUND, OK),
        ("cas", Packet { opcode: SET, extras: &[0; 8], value: b"x", cas: 5, ..packet.clone() }, NOT_FOUND, EXISTS),
        ("add", Packet { opcode: ADD, extras: &[0; 8], value: b"x", ..packet.clone() }, OK, EXISTS),
    ] {
        for (keys, status) in [(full.absent(name), of_absent), (full.present(), of_present)] {
            let input: Vec<u8> =
                keys.iter().flat_map(|key| Packet { key: key.as_bytes(), ..packet.clone() }.bytes()).collect();
            stream.write_all(&input).expect("a write");
            let wrong = keys.iter().filter(|_| packet::read(&mut stream).status != status).count();
            assert_eq!(wrong, 0, "{name}: of {} answers", keys.len());
        }
    }
    // A quiet delete answers only for absent keys.
    let (absent, present) = (full.absent("quiet"), full.present());
    for key in absent.iter().chain(&present) {
        stream.write_all(&packet::request(DELETE_QUIETLY, b"", key.as_bytes(), b"")).expect("a write");
    }
    stream.write_all(&packet::request(packet::NOOP, b"", b"", b"")).expect("a write");
    let answers = (0..=ABSENT).map(|_| packet::read(&mut stream));
    let statuses: Vec<_> = answers.map(|answer| (answer.opcode, answer.status)).collect();
    assert!(statuses[..ABSENT].iter().all(|answer| *answer == (DELETE_QUIETLY, NOT_FOUND)));
    assert_eq!(statuses[ABSENT], (packet::NOOP, OK));
}

#[test]
fn the_library_tells_absent_keys_from_flash_keys() {
    let mut full = Full::new();
    let cache = full.server.cache.clone();
    let add = |key: &[u8]| cache.insert(key, b"x").mode(Mode::Add).apply() == Ok(Stored::NotStored);
    let replace = |key: &[u8]| cache.insert(key, b"x").mode(Mode::Replace).apply() == Ok(Stored::Stored);
    let append = |key: &[u8]| cache.insert(key, b"x").mode(Mode::Append).apply() == Ok(Stored::Stored);
    let cas = |key: &[u8]| cache.insert(key, b"x").mode(Mode::Cas(5)).apply() == Ok(Stored::Exists);
    /// A command on a key; returns whether the key was present.
    type Command<'c> = &'c dyn Fn(&[u8]) -> bool;
    let commands: [(&str, Command<'_>); 8] = [
        ("delete", &|key| cache.delete(key)),
        ("contains", &|key| cache.contains(key)),
        ("touch", &|key| cache.touch(key, Ttl::seconds(9)).expect("space")),
        ("increment", &|key| cache.increment(key, 1).expect("space").is_some()),
        ("add", &add),
        ("replace", &replace),
        ("append", &append),
        ("cas", &cas),
    ];
    for (name, finds) in commands {
        let absent = full.absent(name);
        assert_eq!(absent.iter().filter(|key| finds(key.as_bytes())).count(), 0, "{name} of absent keys");
        let present = full.present();
        assert_eq!(present.iter().filter(|key| finds(key.as_bytes())).count(), PRESENT, "{name} of present keys");
    }
    let deleted = full.present();
    deleted.iter().for_each(|key| assert!(cache.delete(key.as_bytes()) && !cache.delete(key.as_bytes())));
}

#[test]
fn keys_without_memory_space_are_not_absent() {
    let folder = tempfile::tempdir().expect("a folder");
    let build = |evicts| {
        let flash = FlashOptions { small_share: Some(0.1), ..FlashOptions::default() };
        let builder = Cache::builder().memory(ByteSize::mib(8)).policy(Policy::Fifo).flash_options(flash).evict(evicts);
        let builder = builder.flash(folder.path().join("flash"), ByteSize::mib(128));
        builder.flash_promotion(FlashPromotion::Never).flash_demotion_wait(PATIENCE).build().expect("a cache")
    };
    let value = vec![b'7'; 9000];
    let keys: Vec<String> = (0..2000).map(|number| format!("key{number}")).collect();
    let cache = build(true);
    for (number, key) in keys.iter().enumerate() {
        cache.insert(key.as_bytes(), &value).apply().expect("stored");
        if number.is_multiple_of(50) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    cache.close_flash();
    drop(cache);
    let cache = build(false);
    let filled = (0..2000).find(|number| cache.insert(format!("filler{number}").as_bytes(), &value).apply().is_err());
    assert!(filled.is_some(), "memory is not full");
    let mut present = keys.into_iter().filter(|key| is_on_flash_only(&cache, key));
    let server = TestServer::around(cache.clone(), options());
    let long = "x".repeat(9000);
    let (storing, refused) = ("SERVER_ERROR out of memory storing object\r\n", "SERVER_ERROR out of memory\r\n");
    let hit = format!("VALUE @ 0 9000\r\n{}\r\nEND\r\n", "7".repeat(9000));
    for (command, answer) in [
        ("replace @ 0 0 1\r\nx\r\n", storing),
        ("append @ 0 0 1\r\nx\r\n", storing),
        ("add @ 0 0 1\r\nx\r\n", storing),
        (&format!("add @ 0 0 9000\r\n{long}\r\n"), storing),
        ("cas @ 0 0 1 5\r\nx\r\n", storing),
        ("ms @ 1 MR\r\nx\r\n", storing),
        ("touch @ 100\r\n", refused),
        ("incr @ 1\r\n", refused),
        ("touch @ 100 noreply\r\nmn\r\n", "MN\r\n"),
        ("ma @\r\n", refused),
        ("md @ I\r\n", refused),
        ("gat 100 @\r\n", "SERVER_ERROR out of memory writing get response\r\n"),
        ("get @\r\n", &hit),
        ("delete @\r\ndelete @\r\n", "DELETED\r\nNOT_FOUND\r\n"),
        ("md @\r\nmd @\r\n", "HD\r\nNF\r\n"),
    ] {
        let key = present.next().expect("one more on flash");
        assert_bytes(&server.talk(command.replace('@', &key).as_bytes()), answer.replace('@', &key).as_bytes());
    }
    let mut stream = server.connect();
    for (opcode, extras, value) in [(REPLACE, &[0; 8][..], &long[..]), (APPEND, &[], "x"), (TOUCH, &[0, 0, 0, 99], "")]
    {
        let key = present.next().expect("one more on flash");
        let packet = packet::request(opcode, extras, key.as_bytes(), value.as_bytes());
        assert_eq!(packet::ask(&mut stream, &packet).status, NO_MEMORY, "{opcode}");
    }
    let key = present.next().expect("one more on flash");
    let full = |error: &Error| matches!(error, Error::OutOfMemory { .. });
    assert!(cache.touch(key.as_bytes(), Ttl::seconds(9)).is_err_and(|error| full(&error)));
    let append = cache.insert(key.as_bytes(), b"x").mode(Mode::Append).apply();
    assert!(append.is_err_and(|error| full(&error)));
    assert!(cache.delete_if(key.as_bytes(), 5).is_err_and(|error| full(&error)));
    assert!(cache.delete(key.as_bytes()) && !cache.delete(key.as_bytes()));
}
