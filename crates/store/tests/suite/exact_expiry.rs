//! An item with an absolute expiry lives exactly until that second, after every kind of write and change.

use crate::common::StoreSubject;
use ebbtide_store::{
    Change, Count, Creation, Edit, Error, IfAbsent, MetaFlags, MetaFlagsChange, MetaFlagsLookup, Mode, Options,
    Participant, Progress, STRUCTURE_MAGIC, STRUCTURE_VERSION, Store, Ttl, Write,
};
use std::sync::Arc;

const NOW_S: u64 = 5000;
/// Seconds, with units from a second to a year.
const LIVES: [u64; 12] = [1, 127, 128, 129, 255, 1001, 3601, 86_399, 1_987_654, 8_388_607, 8_388_611, 2_147_500_001];

type Done = Result<(), Error>;

/// The store, and the arguments of an operation.
struct At<'a> {
    store: &'a Arc<Store>,
    participant: &'a Participant,
    key: &'a [u8],
    hash: u64,
    now_ms: u64,
}

impl At<'_> {
    fn write(&self, value: &[u8], ttl: Ttl, mode: Mode, token: Option<u64>) -> Done {
        let write = Write { key: self.key, hash: self.hash, value, flags: 5.into(), ttl, mode, token };
        self.store.write(self.participant, &write, self.now_ms).map(drop)
    }

    fn target(&self) -> (&[u8], u64) {
        (self.key, self.hash)
    }

    fn count(&self, count: &Count) -> Done {
        self.store.change_number(self.participant, self.target(), count, self.now_ms).map(drop)
    }

    fn edit(&self, if_absent: IfAbsent, content: Vec<u8>) -> Done {
        let stored = self.store.edit(self.participant, self.target(), if_absent, self.now_ms, |_| Edit::Store {
            content: content.clone(),
            spare: 0,
        });
        stored.map(drop)
    }

    fn change_meta(&self, create: Option<Creation>, change: MetaFlagsChange) -> Done {
        let lookup = MetaFlagsLookup { create, counts: false };
        let (store, target) = (self.store, self.target());
        store.update_meta_flags(self.participant, target, lookup, self.now_ms, |_| Some(change)).map(drop)
    }
}

/// A structured value: a log of this many bytes.
fn log(length: usize) -> Vec<u8> {
    let mut content = vec![7; length];
    content[..2].copy_from_slice(&STRUCTURE_MAGIC);
    (content[2], content[3]) = (9, STRUCTURE_VERSION);
    content
}

type Make = fn(&At<'_>, Ttl) -> Done;
type Keep = fn(&At<'_>) -> Done;

/// Each gives a key this life.
const MAKERS: [(&str, Make); 14] = [
    ("set", |at, ttl| at.write(b"v", ttl, Mode::Set, None)),
    ("add", |at, ttl| at.write(b"v", ttl, Mode::Add, None)),
    ("with a token", |at, ttl| at.write(b"v", ttl, Mode::Set, Some(77))),
    ("number", |at, ttl| at.write(b"17", ttl, Mode::Set, None)),
    ("long", |at, ttl| at.write(&[7; 200_000], ttl, Mode::Set, None)),
    ("touch", |at, ttl| {
        at.write(b"v", Ttl::Seconds(3000), Mode::Set, None)?;
        at.store.touch(at.participant, at.key, at.hash, ttl, at.now_ms).map(drop)
    }),
    ("get and touch", |at, ttl| {
        at.write(b"v", Ttl::Never, Mode::Set, None)?;
        at.store.get_and_touch(at.participant, at.key, at.hash, ttl, at.now_ms).map(drop)
    }),
    ("touch of another exact one", |at, ttl| {
        at.write(b"v", Ttl::Until(NOW_S + 777_777), Mode::Set, None)?;
        at.store.touch(at.participant, at.key, at.hash, ttl, at.now_ms).map(drop)
    }),
    ("new number", |at, ttl| at.count(&Count { initial: Some((9, ttl)), ..Count::plain(Change::Add(1)) })),
    ("touch of a number", |at, ttl| {
        at.write(b"17", Ttl::Seconds(100), Mode::Set, None)?;
        at.count(&Count { ttl: Some(ttl), ..Count::plain(Change::Add(1)) })
    }),
    ("meta touch", |at, ttl| {
        at.write(b"v", Ttl::Seconds(100), Mode::Set, None)?;
        at.change_meta(None, MetaFlagsChange { ttl: Some(ttl), flags: MetaFlags::Won })
    }),
    ("meta creation", |at, ttl| at.change_meta(Some(ttl.into()), MetaFlagsChange::default())),
    ("structured", |at, ttl| at.edit(IfAbsent::Create(ttl.into()), log(50))),
    ("allocation", |at, ttl| {
        let allocation = at.store.allocate(at.participant, at.target(), 5000, ttl, at.now_ms)?;
        allocation.expect("nothing is held").publish(at.participant, ttl, at.now_ms).map(drop)
    }),
];

/// Each changes an entry and leaves its life.
const KEEPERS: [(&str, Keep); 8] = [
    ("append", |at| ignore_kind(at.write(b"1", Ttl::Never, Mode::Append, None))),
    ("prepend with a token", |at| ignore_kind(at.write(b"1", Ttl::Never, Mode::Prepend, Some(5)))),
    ("long append", |at| ignore_kind(at.write(&[7; 100_000], Ttl::Never, Mode::Append, None))),
    ("count", |at| ignore_kind(at.count(&Count::plain(Change::Add(10_000_000))))),
    ("edit", |at| at.edit(IfAbsent::Refuse, log(90))),
    ("win", |at| at.change_meta(None, MetaFlagsChange { ttl: None, flags: MetaFlags::Won })),
    ("mark as stale", |at| {
        at.change_meta(None, MetaFlagsChange { ttl: None, flags: MetaFlags::Stale { token: Some(100) } })
    }),
    ("store as stale", |at| {
        at.change_meta(None, MetaFlagsChange { ttl: None, flags: MetaFlags::Stale { token: Some(100) } })?;
        at.write(b"v", Ttl::Never, Mode::CasOrStale(99), Some(99))
    }),
];

/// Not every value can be appended to or counted.
fn ignore_kind(done: Done) -> Done {
    if let Err(Error::Structured | Error::NotNumeric) = done { Ok(()) } else { done }
}

fn subject() -> StoreSubject {
    StoreSubject::new(Options { memory_bytes: 128 << 20, value_bytes_max: 4 << 20, ..Options::default() })
}

fn at<'a>(subject: &'a StoreSubject, key: &'a [u8], now_ms: u64) -> At<'a> {
    let (store, participant) = (&subject.store, &subject.participant);
    At { store, participant, key, hash: store.hash(key), now_ms }
}

fn expiry(subject: &StoreSubject, key: &[u8], now_ms: u64) -> Option<u64> {
    let item = subject.store.peek(&subject.participant, key, subject.store.hash(key), now_ms)?;
    Some(item.expiry_seconds().expect("it does not live for ever"))
}

fn maintain(subject: &StoreSubject, now_ms: u64) {
    while subject.store.maintain(&subject.participant, now_ms) == Progress::Working {}
    subject.store.verify(&subject.participant, now_ms);
}

/// Asserts that all keys expire at the second `until`, and that their memory is free then.
fn assert_ends(subject: &StoreSubject, keys: &[String], until: u64) {
    let end_ms = until * 1000;
    let is_served = |key: &String, now_ms| subject.get(key.as_bytes(), now_ms).is_some();
    maintain(subject, end_ms - 1);
    for key in keys {
        assert!(is_served(key, end_ms - 1), "{key}: lost before {until}");
    }
    for key in keys {
        assert!(!is_served(key, end_ms), "{key}: served after {until}");
    }
    maintain(subject, end_ms + 1000);
    assert_eq!(subject.store.stats().items, 0, "a second after {until}");
}

#[test]
fn every_write_takes_an_exact_absolute_expiry() {
    for life in LIVES {
        let (subject, until) = (subject(), NOW_S + life);
        let mut keys = Vec::new();
        for (name, make) in MAKERS {
            let key = format!("{name}, {life}");
            make(&at(&subject, key.as_bytes(), NOW_S * 1000 + 300), Ttl::Until(until)).unwrap();
            assert_eq!(expiry(&subject, key.as_bytes(), NOW_S * 1000 + 300), Some(until), "{key}");
            keys.push(key);
        }
        subject.store.verify(&subject.participant, NOW_S * 1000 + 300);
        assert_ends(&subject, &keys, until);
    }
}

#[test]
fn every_change_keeps_an_exact_absolute_expiry() {
    for life in LIVES {
        let (subject, until) = (subject(), NOW_S + life);
        let mut keys = Vec::new();
        for (kept, _) in KEEPERS {
            for (made, make) in MAKERS {
                let key = format!("{kept} after {made}, {life}");
                make(&at(&subject, key.as_bytes(), NOW_S * 1000), Ttl::Until(until)).unwrap();
                keys.push(key);
            }
        }
        // At once, and when less is left.
        for thousandths in [0, 10, 300, 900] {
            let now_ms = NOW_S * 1000 + life * thousandths;
            for (number, key) in keys.iter().enumerate() {
                let (_, keep) = KEEPERS[(number / MAKERS.len() + thousandths as usize / 300) % KEEPERS.len()];
                keep(&at(&subject, key.as_bytes(), now_ms)).unwrap_or_else(|error| panic!("{key}: {error}"));
                assert_eq!(expiry(&subject, key.as_bytes(), now_ms), Some(until), "{key}, at {now_ms} ms");
            }
        }
        assert_ends(&subject, &keys, until);
    }
}

#[test]
fn a_relative_touch_drops_the_exact_expiry() {
    let (subject, now_ms) = (subject(), NOW_S * 1000);
    let (store, participant) = (&subject.store, &subject.participant);
    let bytes = |key: &[u8]| store.peek(participant, key, store.hash(key), now_ms).unwrap().stored_bytes();
    at(&subject, b"relative", now_ms).write(b"v", Ttl::Seconds(3600), Mode::Set, None).unwrap();
    at(&subject, b"absolute", now_ms).write(b"v", Ttl::Until(NOW_S + 7201), Mode::Set, None).unwrap();
    at(&subject, b"farthest", now_ms).write(b"v", Ttl::Until(NOW_S + (1 << 23) + 1), Mode::Set, None).unwrap();
    assert_eq!((bytes(b"absolute"), bytes(b"farthest")), (bytes(b"relative") + 3, bytes(b"relative") + 5));
    for key in [b"absolute", b"farthest"] {
        store.touch(participant, key, store.hash(key), Ttl::Seconds(3600), now_ms).unwrap();
        assert_eq!(bytes(key), bytes(b"relative"));
        assert_eq!(expiry(&subject, key, now_ms), expiry(&subject, b"relative", now_ms));
    }
    // An exact expiry in the same unit is another one than the rounded one.
    store.touch(participant, b"relative", store.hash(b"relative"), Ttl::Until(NOW_S + 3600), now_ms).unwrap();
    assert_eq!(expiry(&subject, b"relative", now_ms), Some(NOW_S + 3600));
    store.verify(participant, now_ms);
}

/// Few segments: the TTLs share them, so that units are finer than those of their buckets.
#[test]
fn absolute_expiries_are_exact_in_shared_segments() {
    let subject = StoreSubject::new(Options { memory_bytes: 4 << 20, ..Options::default() });
    let mut untils = Vec::new();
    for number in 0..120_u64 {
        let until = NOW_S + 100 + number * number * number * 3 + number;
        let key = format!("{number}");
        at(&subject, key.as_bytes(), NOW_S * 1000).write(b"v", Ttl::Until(until), Mode::Set, None).unwrap();
        untils.push((until, key));
    }
    for (until, key) in untils {
        assert_eq!(expiry(&subject, key.as_bytes(), until * 1000 - 1), Some(until));
        assert_eq!(expiry(&subject, key.as_bytes(), until * 1000), None);
        maintain(&subject, until * 1000);
    }
}
