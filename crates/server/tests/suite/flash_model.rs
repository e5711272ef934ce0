//! Random commands on keys in memory, on flash, on both and nowhere, during constant evictions, against a model. A
//! cache may lose a value, but must not answer a wrong one, and must not lose or double an answer.

use crate::common::{PATIENCE, TestServer, options, value};
use ebbtide::memcached::{ByteSize, Cache, FlashOptions, Policy};
use ebbtide_server::ServerOptions;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const CLIENTS: u64 = 3;
/// Of each client.
const KEYS: u64 = 60;
const ROUNDS: u32 = 30;
const COMMANDS: u64 = 40;
/// Of the values; the largest have several parts on flash.
const LENGTHS: [usize; 7] = [1, 10, 100, 300, 2500, 9000, 150_000];
/// Minimum number of objects that are promoted from flash or served from it.
const FOUND: u64 = 200;
/// Between a few evictions.
const PACE: Duration = Duration::from_millis(2);

/// A generator of random numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn flash_objects(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) % end
    }
}

/// Flags and value.
type Entry = (u32, Vec<u8>);

/// Change of an existing entry by a command.
#[derive(Clone)]
enum Change {
    Replace(Entry),
    Append(Vec<u8>),
    Prepend(Vec<u8>),
    Add(u64),
}

enum Command {
    /// A gat of one key or two.
    Get(Vec<String>),
    /// The key, an opaque, and whether nothing is said of a miss.
    Meta(String, u64, bool),
    NoOp,
    Set(String, Entry),
    Insert(String, Entry),
    Change(String, Change),
    Touch(String),
    Delete(String),
    /// With a token that no entry has.
    DeleteIf(String),
    Unheard(Box<Command>),
}

/// Possible entries of each key; the key may also be absent.
struct Model(HashMap<String, Vec<Entry>>);

impl Change {
    fn apply(&self, (flags, value): &Entry) -> Option<Entry> {
        match self {
            Self::Replace(entry) => Some(entry.clone()),
            Self::Append(end) => Some((*flags, [value, &end[..]].concat())),
            Self::Prepend(begin) => Some((*flags, [&begin[..], value].concat())),
            Self::Add(delta) => {
                let number: u64 = std::str::from_utf8(value).ok()?.parse().ok()?;
                Some((*flags, number.wrapping_add(*delta).to_string().into_bytes()))
            }
        }
    }
}

impl Model {
    fn may_have(&mut self, key: &str) -> &mut Vec<Entry> {
        self.0.entry(key.to_owned()).or_default()
    }

    /// A value was answered.
    fn see(&mut self, key: &str, seen: Entry) {
        let known = self.may_have(key);
        let lengths: Vec<_> = known.iter().map(|(flags, value)| (*flags, value.len())).collect();
        assert!(known.contains(&seen), "{key} has {:?} bytes, flags {}, of {lengths:?}", seen.1.len(), seen.0);
        *known = vec![seen];
    }
}

impl Command {
    fn random(random: &mut Random, client: u64, number: u64) -> Self {
        let mut key = || format!("client{client}key{}", random.flash_objects(KEYS));
        let (key, other) = (key(), key());
        let length = LENGTHS[random.flash_objects(LENGTHS.len() as u64) as usize];
        let mut new = b"0".to_vec();
        if length > 1 {
            new = format!("value {client} {number} {} ", random.0).into_bytes();
            new.extend(value(length));
        }
        let entry = (random.flash_objects(1 << 30) as u32, new);
        match random.flash_objects(25) {
            0..=1 => Self::Get(vec![key]),
            2 => Self::Get(vec![other, key]),
            3..=5 => Self::Get(vec![key.clone(), other, key]),
            6 => Self::Get((0..KEYS + 10).map(|number| format!("client{client}key{number}")).collect()),
            7..=8 => Self::Meta(key, number, false),
            9..=10 => Self::Meta(key, number, true),
            11 => Self::NoOp,
            12..=14 => Self::Set(key, entry),
            15 => Self::Insert(key, entry),
            16 => Self::Change(key, Change::Replace(entry)),
            17 => Self::Change(key, Change::Append(format!("after {number}").into_bytes())),
            18 => Self::Change(key, Change::Prepend(format!("before {number} ").into_bytes())),
            19 => Self::Change(key, Change::Add(number)),
            20 => Self::Touch(key),
            21 => Self::Delete(key),
            22 => Self::DeleteIf(key),
            _ => match Self::random(random, client, number) {
                command @ (Self::Set(..) | Self::Insert(..) | Self::Change(..) | Self::Touch(_) | Self::Delete(_)) => {
                    Self::Unheard(Box::new(command))
                }
                command => command,
            },
        }
    }

    fn write(&self, end: &str, input: &mut Vec<u8>) {
        let mut store = |verb: &str, key: &str, flags: u32, value: &[u8]| {
            input.extend(format!("{verb} {key} {flags} 0 {}{end}\r\n", value.len()).into_bytes());
            input.extend([value, b"\r\n"].concat());
        };
        match self {
            Self::Set(key, (flags, value)) => store("set", key, *flags, value),
            Self::Insert(key, (flags, value)) => store("add", key, *flags, value),
            Self::Change(key, Change::Replace((flags, value))) => store("replace", key, *flags, value),
            Self::Change(key, Change::Append(value)) => store("append", key, 0, value),
            Self::Change(key, Change::Prepend(value)) => store("prepend", key, 0, value),
            Self::Change(key, Change::Add(delta)) => input.extend(format!("incr {key} {delta}{end}\r\n").into_bytes()),
            Self::Get(keys) if keys.len() <= 2 => input.extend(format!("gat 0 {}\r\n", keys.join(" ")).into_bytes()),
            Self::Get(keys) => input.extend(format!("get {}\r\n", keys.join(" ")).into_bytes()),
            Self::Meta(key, opaque, quiet) => {
                let quiet = if *quiet { " q" } else { "" };
                input.extend(format!("mg {key} f v O{opaque}{quiet}\r\n").into_bytes());
            }
            Self::NoOp => input.extend(b"mn\r\n"),
            Self::Touch(key) => input.extend(format!("touch {key} 0{end}\r\n").into_bytes()),
            Self::Delete(key) => input.extend(format!("delete {key}{end}\r\n").into_bytes()),
            Self::DeleteIf(key) => input.extend(format!("md {key} C1\r\n").into_bytes()),
            Self::Unheard(command) => command.write(" noreply", input),
        }
    }
}

/// Answers, and the line that was read last.
struct Answers {
    stream: BufReader<TcpStream>,
    line: String,
}

impl Answers {
    fn next(&mut self) -> Vec<String> {
        self.line.clear();
        self.stream.read_line(&mut self.line).expect("a line");
        assert!(self.line.ends_with("\r\n"), "an answer is missing: {:?}", self.line);
        self.line.split_whitespace().map(str::to_owned).collect()
    }

    fn value(&mut self, length: &str) -> Vec<u8> {
        let mut value = vec![0; length.parse::<usize>().expect("a length") + 2];
        self.stream.read_exact(&mut value).expect("a value");
        assert_eq!(value.split_off(value.len() - 2), b"\r\n");
        value
    }

    /// Reads the answer of a command; `words` is its first line.
    fn check(&mut self, command: &Command, model: &mut Model) {
        match command {
            Command::Get(keys) => self.check_get(keys, model),
            Command::Meta(_, _, true) => unreachable!("what is quiet is checked with what comes behind"),
            Command::Meta(key, opaque, false) => {
                let words = self.next();
                if words != ["EN".to_owned(), format!("O{opaque}")] {
                    self.see_meta(&words, key, *opaque, model);
                }
            }
            Command::NoOp => assert_eq!(self.next(), ["MN"]),
            Command::Set(key, entry) => {
                assert_eq!(self.next(), ["STORED"]);
                *model.may_have(key) = vec![entry.clone()];
            }
            Command::Insert(key, entry) => match self.next()[0].as_str() {
                "STORED" => *model.may_have(key) = vec![entry.clone()],
                line => assert!(line == "NOT_STORED" && !model.may_have(key).is_empty(), "{line} {key}"),
            },
            Command::Change(key, change) => {
                let known = model.may_have(key);
                let changed: Vec<_> = known.iter().filter_map(|entry| change.apply(entry)).collect();
                match (self.next()[0].as_str(), change) {
                    ("NOT_STORED", _) | ("NOT_FOUND", Change::Add(_)) => {}
                    ("CLIENT_ERROR", Change::Add(_)) => known.retain(|entry| change.apply(entry).is_none()),
                    ("STORED", _) => *known = changed,
                    (number, _) => {
                        *known = changed.into_iter().filter(|(_, value)| value == number.as_bytes()).collect()
                    }
                }
                let is_there = !matches!(self.line.trim_end(), "NOT_STORED" | "NOT_FOUND");
                assert!(!is_there || !known.is_empty(), "{} {key}", self.line);
            }
            Command::Touch(key) => match self.next()[0].as_str() {
                "TOUCHED" => assert!(!model.may_have(key).is_empty(), "{key}"),
                line => assert_eq!(line, "NOT_FOUND"),
            },
            // Memory has approximate knowledge of flash.
            Command::Delete(key) => {
                assert!(matches!(self.next()[0].as_str(), "DELETED" | "NOT_FOUND"), "{}", self.line);
                model.may_have(key).clear();
            }
            Command::DeleteIf(key) => match self.next()[0].as_str() {
                "EX" => assert!(!model.may_have(key).is_empty(), "{key}"),
                line => assert_eq!(line, "NF"),
            },
            Command::Unheard(command) => match &**command {
                Command::Set(key, entry) => *model.may_have(key) = vec![entry.clone()],
                Command::Insert(key, entry) => model.may_have(key).push(entry.clone()),
                Command::Change(key, change) => {
                    let known = model.may_have(key);
                    known.extend(known.clone().iter().filter_map(|entry| change.apply(entry)));
                }
                Command::Delete(key) => model.may_have(key).clear(),
                _ => {}
            },
        }
    }

    fn check_get(&mut self, keys: &[String], model: &mut Model) {
        let mut left = keys.iter();
        loop {
            let words = self.next();
            match &words[..] {
                [end] if end == "END" => return,
                [verb, key, flags, length] if verb == "VALUE" => {
                    assert!(left.any(|asked| asked == key), "{} is not an answer to {keys:?}", self.line);
                    let value = self.value(length);
                    model.see(key, (flags.parse().expect("flags"), value));
                }
                _ => panic!("{} is not an answer to {keys:?}", self.line),
            }
        }
    }

    fn see_meta(&mut self, words: &[String], key: &str, opaque: u64, model: &mut Model) {
        let [verb, length, flags, reflected] = words else { panic!("{} is not an answer to mg {key}", self.line) };
        assert_eq!((verb.as_str(), reflected.as_str()), ("VA", format!("O{opaque}").as_str()), "{key}");
        let value = self.value(length);
        model.see(key, (flags[1..].parse().expect("flags"), value));
    }

    /// Reads answers of quiet commands, which may have none, up to that of the one behind them.
    fn check_quiet(&mut self, quiet: &[&Command], model: &mut Model) {
        let mut left = quiet.iter();
        loop {
            let words = self.next();
            if words == ["MN"] {
                return;
            }
            let opaque = words.last().expect("a word")[1..].parse::<u64>();
            let asked = left.find_map(|command| match command {
                Command::Meta(key, number, _) => (Ok(*number) == opaque).then_some(key),
                _ => None,
            });
            let key = asked.unwrap_or_else(|| panic!("{} is not an answer of a quiet mg", self.line));
            self.see_meta(&words, key, opaque.expect("an opaque"), model);
        }
    }
}

/// A client that requests keys of others, and disconnects before the answer.
fn hang_up(server: &TestServer, random: &mut Random) {
    let client = random.flash_objects(CLIENTS);
    let keys: Vec<_> = (0..KEYS).map(|number| format!("client{client}key{number}")).collect();
    server.connect().write_all(format!("get {}\r\n", keys.join(" ")).as_bytes()).expect("a write");
}

/// One client, on keys of its own.
fn drive(server: &TestServer, seed: u64, client: u64, is_over: impl Fn(u32) -> bool) {
    let random = &mut Random(seed ^ client << 32 | 1);
    let mut model = Model(HashMap::new());
    let stream = server.connect();
    let mut answers = Answers { stream: BufReader::new(stream.try_clone().expect("a clone")), line: String::new() };
    let mut number = 0;
    for round in 0.. {
        if is_over(round) {
            return;
        }
        let mut commands = Vec::new();
        for _ in 0..COMMANDS {
            number += 1;
            let command = Command::random(random, client, number);
            // A command with an answer follows each quiet one.
            let is_quiet = matches!(command, Command::Meta(_, _, true));
            commands.push(command);
            if is_quiet {
                commands.push(Command::NoOp);
            }
        }
        let mut input = Vec::new();
        commands.iter().for_each(|command| command.write("", &mut input));
        let mut splits: Vec<_> =
            (0..random.flash_objects(6)).map(|_| random.flash_objects(input.len() as u64) as usize).collect();
        splits.extend([0, input.len()]);
        splits.sort_unstable();
        std::thread::scope(|scope| {
            let mut stream = &stream;
            scope.spawn(move || {
                for split in splits.windows(2) {
                    stream.write_all(&input[split[0]..split[1]]).expect("a write");
                    std::thread::yield_now();
                }
            });
            let mut quiet = Vec::new();
            for command in &commands {
                match command {
                    Command::Meta(_, _, true) => quiet.push(command),
                    Command::NoOp if !quiet.is_empty() => answers.check_quiet(&std::mem::take(&mut quiet), &mut model),
                    command => answers.check(command, &mut model),
                }
            }
        });
    }
}

#[test]
fn random_commands_are_answered_as_a_model_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let flash_options = FlashOptions { rewrite_threshold: 1, small_share: Some(0.3), ..FlashOptions::default() };
    let builder = Cache::builder().memory(ByteSize::mib(8)).max_value(ByteSize::mib(1)).policy(Policy::Fifo);
    let seed = RandomState::new().hash_one("seed");
    let promotion = ["auto", "always", "second-hit", "never", "one-in:2"][seed as usize % 5];
    println!("seed {seed}, promotion {promotion}");
    let builder = builder.flash(folder.path().join("flash"), ByteSize::mib(128)).flash_options(flash_options);
    let builder = builder.flash_promotion(promotion.parse().expect("a promotion"));
    let server = TestServer::around(builder.build().expect("a cache"), ServerOptions { threads: 2, ..options() });
    let (ended, deadline) = (AtomicBool::new(false), Instant::now() + 2 * PATIENCE);
    let found = || server.cache.flash_stats().map(|flash| flash.promoted + flash.served).expect("flash");
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let is_over = |round| round >= ROUNDS && (found() >= FOUND || Instant::now() > deadline);
                let server = &server;
                scope.spawn(move || drive(server, seed, client, is_over))
            })
            .collect();
        let evictions = scope.spawn(|| {
            for number in 0_u32.. {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                if number.is_multiple_of(500) {
                    hang_up(&server, &mut Random(seed ^ u64::from(number) | 1));
                }
                let length = if number.is_multiple_of(4) { 500 } else { 4000 };
                server
                    .cache
                    .insert(format!("filler{number}").as_bytes(), &[1; 4000][..length])
                    .apply()
                    .expect("stored");
                if number.is_multiple_of(16) {
                    std::thread::sleep(PACE);
                }
            }
        });
        let outcomes: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        ended.store(true, Ordering::Relaxed);
        evictions.join().expect("evictions");
        outcomes.into_iter().for_each(|outcome| outcome.expect("a client as the model says"));
    });
    println!("{:?}", server.cache.flash_stats());
    assert!(found() >= FOUND, "{:?}", server.cache.flash_stats());
}
