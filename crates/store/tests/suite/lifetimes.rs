//! The lifetime of items, with any time of a lookup and any kind of write.

use crate::common::StoreSubject;
use ebbtide_store::{Mode, Options, Stored, Ttl, Write};

const NOW_MS: u64 = 5000;
const KEY: &[u8] = b"k";

fn write(subject: &StoreSubject, value: &[u8], ttl: Ttl, mode: Mode, token: Option<u64>) -> Stored {
    let write = Write { key: KEY, hash: subject.store.hash(KEY), value, flags: 0.into(), ttl, mode, token };
    let store = &subject.store;
    let written = subject.retry_with_eviction(NOW_MS, || store.write(&subject.participant, &write, NOW_MS));
    written.expect("there is space").stored
}

#[test]
fn an_older_time_shows_no_longer_lifetime() {
    let subject = StoreSubject::new(Options::default());
    write(&subject, b"v", Ttl::Seconds(100), Mode::Set, None);
    let store = &subject.store;
    let item = store.get(&subject.participant, KEY, store.hash(KEY), NOW_MS - 1).expect("it was stored");
    assert_eq!(item.remaining_ms(), Some(100_000));
}

#[test]
fn an_absolute_expiry_ends_at_its_second() {
    let subject = StoreSubject::new(Options::default());
    let second = NOW_MS / 1000;
    for until in [second + 1, second + 2, second + 127] {
        write(&subject, b"v", Ttl::Until(until), Mode::Set, None);
        assert!(subject.get(KEY, NOW_MS).is_some(), "{until}");
        let store = &subject.store;
        let item = store.get(&subject.participant, KEY, store.hash(KEY), NOW_MS).expect("it was stored");
        assert_eq!(item.expiry_seconds(), Some(until));
    }
    for over in [0, second - 1, second] {
        write(&subject, b"v", Ttl::Until(second + 9), Mode::Set, None);
        write(&subject, b"w", Ttl::Until(over), Mode::Set, None);
        assert!(subject.get(KEY, NOW_MS).is_none(), "{over}");
    }
    // No lifetime is longer than a TTL can express.
    write(&subject, b"v", Ttl::Until(u64::MAX), Mode::Set, None);
    assert!(subject.get(KEY, NOW_MS).is_some());
    let end_ms = NOW_MS + u64::from(u32::MAX) * 1000;
    assert!(subject.get(KEY, end_ms).is_none());
    subject.store.verify(&subject.participant, end_ms);
}

#[test]
fn an_expired_ttl_permits_stale_values() {
    let subject = StoreSubject::new(Options::default());
    let store = &subject.store;
    for length in [1, 1 << 20] {
        let value = vec![7; length];
        assert_eq!(write(&subject, b"old", Ttl::Seconds(100), Mode::Set, Some(9)), Stored::Stored);
        assert_eq!(write(&subject, &value, Ttl::Expired, Mode::CasOrStale(8), Some(10)), Stored::Stored);
        let item = store.get(&subject.participant, KEY, store.hash(KEY), NOW_MS).expect("it is stored as stale");
        assert!(item.len() == length && item.extension().stale && item.token() == 10);
        assert_eq!(item.remaining_ms(), Some(100_000));
        drop(item);
        assert_eq!(write(&subject, &value, Ttl::Expired, Mode::CasOrStale(10), None), Stored::Stored);
        assert!(subject.get(KEY, NOW_MS).is_none(), "it replaced the value, and is over");
        store.verify(&subject.participant, NOW_MS);
    }
}

#[test]
fn a_touch_in_a_shared_segment_ends() {
    let subject = StoreSubject::new(Options { memory_bytes: 4 << 20, ..Options::default() });
    let store = &subject.store;
    // More TTLs than may have open segments: the longer ones of an octave pair share those of the shorter.
    for ttl in [10, 300, 5000, 80_000, 1_000_000] {
        write(&subject, b"v", Ttl::Seconds(ttl), Mode::Set, None);
    }
    let hash = store.hash(KEY);
    for ttl in [601, 10_001, 160_001] {
        let before = store.stats().segments_free;
        assert_eq!(store.touch(&subject.participant, KEY, hash, Ttl::Seconds(ttl), NOW_MS), Ok(true));
        let touched = store.get_and_touch(&subject.participant, KEY, hash, Ttl::Seconds(ttl), NOW_MS).unwrap();
        let left_ms = touched.expect("it is there").remaining_ms().unwrap();
        let rounded_ms = u64::from(ttl) * 1000 - left_ms;
        assert!(rounded_ms * 128 <= u64::from(ttl) * 1000, "{ttl} s: in the finer unit, at most a 128th too early");
        assert!(before - store.stats().segments_free <= 1, "{ttl} s: one copy");
    }
    store.verify(&subject.participant, NOW_MS);
}

#[test]
fn a_callers_clock_ends_lives_earlier() {
    let subject = StoreSubject::new(Options::default());
    let (store, participant) = (&subject.store, &subject.participant);
    let end = NOW_MS / 1000 + 100;
    write(&subject, b"v", Ttl::Until(end), Mode::Set, None);
    let target = (KEY, store.hash(KEY));
    for (second, is_found) in [(end - 1, true), (end, false)] {
        let has_ended = |expiry: Option<u64>| expiry.is_some_and(|expiry| expiry <= second);
        let before = store.stats().expired_found;
        assert_eq!(store.get_alive(participant, target, NOW_MS, has_ended, |item| item.is_some()), is_found);
        store.get_batch(participant, &[KEY], NOW_MS, has_ended, |_, item| {
            assert_eq!(item.is_some(), is_found);
            std::ops::ControlFlow::Continue(())
        });
        assert_eq!(store.stats().expired_found - before, if is_found { 0 } else { 2 });
    }
}
