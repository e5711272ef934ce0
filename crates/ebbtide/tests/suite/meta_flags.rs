//! State beside a value: the stale mark, the won mark, and a CAS token that a client gave.

use ebbtide::memcached::{
    ByteSize, Cache, Change, Changed, Clock, Count, MetaFlags, MetaFlagsChange, MetaFlagsLookup, MetaFlagsOutcome,
    Mode, Stored, Ttl,
};
use std::time::Duration;

fn cache() -> Cache {
    Cache::builder().memory(ByteSize::mib(4)).seed(1).clock(Clock::Manual).build().unwrap()
}

const LOOK: MetaFlagsLookup = MetaFlagsLookup { create: None, counts: true };

fn mark(cache: &Cache, key: &[u8], mark: MetaFlags) -> bool {
    let change = MetaFlagsChange { ttl: None, flags: mark };
    !matches!(cache.update_meta_flags(key, LOOK, |_| Some(change)).unwrap(), MetaFlagsOutcome::Absent)
}

fn make_stale(cache: &Cache, key: &[u8]) {
    assert!(mark(cache, key, MetaFlags::Stale { token: None }));
}

/// Whether an entry is stale, and won.
fn marks(cache: &Cache, key: &[u8]) -> (bool, bool) {
    let item = cache.peek(key).hit().expect("it is there");
    (item.is_stale(), item.is_won())
}

fn token(cache: &Cache, key: &[u8]) -> u64 {
    cache.peek(key).hit().unwrap().cas()
}

fn value(cache: &Cache, key: &[u8]) -> Vec<u8> {
    cache.peek(key).hit().unwrap().to_vec()
}

#[test]
fn marks_survive_touches_and_end_with_values() {
    let cache = cache();
    let short = b"value".to_vec();
    let long = vec![9; 700_000];
    for value in [short, long] {
        cache.insert(b"k", &value).flags(7).apply().unwrap();
        make_stale(&cache, b"k");
        assert_eq!(marks(&cache, b"k"), (true, false));
        assert!(mark(&cache, b"k", MetaFlags::Won));
        assert_eq!(marks(&cache, b"k"), (true, true));
        cache.touch(b"k", Ttl::seconds(50)).unwrap();
        cache.get_and_touch(b"k", Ttl::seconds(70)).unwrap();
        assert_eq!(marks(&cache, b"k"), (true, true));
        let item = cache.peek(b"k").hit().unwrap();
        assert!(item.to_vec() == value && item.flags() == 7);
        drop(item);
        make_stale(&cache, b"k");
        assert_eq!(marks(&cache, b"k"), (true, false), "it can be won again");
        cache.insert(b"k", b"x").mode(Mode::Append).apply().unwrap();
        assert_eq!(marks(&cache, b"k"), (false, false));
        make_stale(&cache, b"k");
        cache.insert(b"k", &value).apply().unwrap();
        assert_eq!(marks(&cache, b"k"), (false, false));
        cache.verify();
    }
}

#[test]
fn numbers_keep_marks_until_their_width_grows() {
    let cache = cache();
    cache.insert(b"n", b"10").apply().unwrap();
    make_stale(&cache, b"n");
    for (delta, expected) in [(1, 11), (80, 91)] {
        assert_eq!(cache.increment(b"n", delta), Ok(Some(expected)));
        assert_eq!(marks(&cache, b"n"), (true, false));
    }
    assert_eq!(cache.increment(b"n", 9), Ok(Some(100)));
    assert_eq!(marks(&cache, b"n"), (false, false));
    cache.verify();
}

#[test]
fn an_absent_entry_is_made_once() {
    let cache = cache();
    let create = MetaFlagsLookup { create: Some(Ttl::seconds(30).into()), counts: true };
    let MetaFlagsOutcome::Created { token } = cache.update_meta_flags(b"k", create, |_| None).unwrap() else {
        panic!("it was absent");
    };
    let MetaFlagsOutcome::Found { item, token: same } = cache.update_meta_flags(b"k", create, |_| None).unwrap() else {
        panic!("it is there");
    };
    assert_eq!((same, item.len(), item.is_won(), item.is_stale()), (token, 0, true, false));
    drop(item);
    let stored = cache.insert(b"k", b"v").mode(Mode::Cas(token)).apply();
    assert_eq!((stored, marks(&cache, b"k")), (Ok(Stored::Stored), (false, false)));
    let past = MetaFlagsLookup { create: Some(Ttl::Expired.into()), counts: true };
    assert!(matches!(cache.update_meta_flags(b"p", past, |_| None), Ok(MetaFlagsOutcome::Created { .. })));
    assert!(!cache.contains(b"p"));
    cache.verify();
}

#[test]
fn lookups_return_the_item_and_change_flags() {
    let cache = cache();
    cache.insert(b"k", b"v").ttl(Ttl::seconds(20)).apply().unwrap();
    let before = token(&cache, b"k");
    let look = |change: MetaFlagsChange| {
        let MetaFlagsOutcome::Found { item, token } = cache.update_meta_flags(b"k", LOOK, |_| Some(change)).unwrap()
        else {
            panic!("it is there");
        };
        (item.ttl(), item.is_stale(), token)
    };
    assert_eq!(look(MetaFlagsChange::default()), (Some(Duration::from_secs(20)), false, before), "nothing changes");
    let (_, was_stale, after) =
        look(MetaFlagsChange { ttl: Some(Ttl::seconds(60)), flags: MetaFlags::Stale { token: None } });
    assert!(!was_stale && after > before && after == token(&cache, b"k"));
    assert_eq!(look(MetaFlagsChange::default()), (Some(Duration::from_secs(60)), true, after));
    look(MetaFlagsChange { ttl: Some(Ttl::Expired), flags: MetaFlags::Unchanged });
    assert!(!cache.contains(b"k"));
    cache.verify();
}

#[test]
fn only_looks_that_count_are_uses() {
    let cache = cache();
    cache.insert(b"k", b"v").apply().unwrap();
    for look in [LOOK, MetaFlagsLookup { counts: false, ..LOOK }] {
        assert!(matches!(cache.update_meta_flags(b"k", look, |_| None), Ok(MetaFlagsOutcome::Found { .. })));
        cache.maintain(Duration::from_secs(1));
    }
    let was_used = |key: &[u8]| cache.peek(key).hit().unwrap().was_used();
    assert!(was_used(b"k"));
    cache.insert(b"unused", b"v").apply().unwrap();
    assert!(!was_used(b"unused") && !was_used(b"unused"));
    cache.maintain(Duration::from_secs(6));
    let idle = cache.peek(b"unused").hit().unwrap().idle();
    assert!((4..=6).contains(&idle.as_secs()), "written at second 2 into a segment of second 0: {idle:?}");
}

#[test]
fn client_tokens_stay_until_the_value_changes() {
    let cache = cache();
    let put = |mode, given| cache.insert(b"k", b"5").mode(mode).token(given).apply_with_token().unwrap();
    assert_eq!(put(Mode::Set, Some(42)).token, 42);
    assert_eq!(token(&cache, b"k"), 42);
    cache.touch(b"k", Ttl::seconds(100)).unwrap();
    assert!(mark(&cache, b"k", MetaFlags::Won));
    assert_eq!(token(&cache, b"k"), 42, "touches and wins are no changes");
    assert_eq!(put(Mode::Cas(41), None).stored, Stored::Exists);
    assert_eq!(put(Mode::Cas(42), Some(0)).token, 0);
    assert_eq!(put(Mode::AppendIf(0), Some(44)).token, 44);
    assert!(matches!(cache.change(b"k", Change::Add(1), Some(43)), Ok(Changed::Exists)));
    let count = Count { expected: Some(44), token: Some(45), ..Count::plain(Change::Add(1)) };
    for (count, expected) in [(count, 45), (Count { expected: Some(45), token: Some(46), ..count }, 46)] {
        let Changed::Done(number) = cache.count(b"k", &count).unwrap() else { panic!("it has that token") };
        assert_eq!((number.token, token(&cache, b"k")), (expected, expected));
    }
    cache.increment(b"k", 1).unwrap();
    assert!(token(&cache, b"k") > 1000, "a change has taken the token away");
    assert!(mark(&cache, b"k", MetaFlags::Stale { token: Some(50) }));
    assert_eq!((token(&cache, b"k"), value(&cache, b"k")), (50, b"58".to_vec()));
    assert_eq!(cache.delete_if(b"k", 49), Ok(Changed::Exists));
    assert_eq!(cache.delete_if(b"k", 50), Ok(Changed::Done(())));
    let long = vec![1; 700_000];
    cache.insert(b"long", &long).token(Some(77)).apply().unwrap();
    assert_eq!(token(&cache, b"long"), 77);
    cache.verify();
}

#[test]
fn an_older_token_stores_as_stale() {
    let cache = cache();
    let long = vec![7; 700_000];
    for new in [&b"new"[..], &long] {
        cache.insert(b"k", b"old").ttl(Ttl::seconds(30)).token(Some(10)).apply().unwrap();
        let put =
            |expected| cache.insert(b"k", new).ttl(Ttl::seconds(90)).mode(Mode::CasOrStale(expected)).apply().unwrap();
        let life = || cache.peek(b"k").hit().unwrap().ttl();
        assert_eq!(put(11), Stored::Exists);
        assert_eq!(value(&cache, b"k"), b"old");
        assert_eq!(put(9), Stored::Stored);
        assert!(value(&cache, b"k") == new);
        assert_eq!((marks(&cache, b"k"), life()), ((true, false), Some(Duration::from_secs(30))));
        mark(&cache, b"k", MetaFlags::Won);
        assert_eq!(put(token(&cache, b"k") - 1), Stored::Stored);
        assert_eq!(marks(&cache, b"k"), (true, true), "a win stays");
        assert_eq!(put(token(&cache, b"k")), Stored::Stored);
        assert_eq!((marks(&cache, b"k"), life()), ((false, false), Some(Duration::from_secs(90))));
        cache.delete(b"k");
        assert_eq!(put(1), Stored::NotFound);
        cache.verify();
    }
}

#[test]
fn counts_may_create_entries_and_set_ttls() {
    let cache = cache();
    let count = Count { initial: Some((7, Ttl::seconds(30))), ..Count::plain(Change::Add(1)) };
    let counted = |count: Count| match cache.count(b"n", &count).unwrap() {
        Changed::Done(number) => (number.value, number.is_new, cache.remaining_ttl(&number)),
        other => panic!("{other:?}"),
    };
    assert_eq!(counted(count), (7, true, Some(Duration::from_secs(30))));
    assert_eq!(counted(count), (8, false, Some(Duration::from_secs(30))));
    assert_eq!(counted(Count { ttl: Some(Ttl::seconds(60)), ..count }), (9, false, Some(Duration::from_secs(30))));
    assert_eq!(counted(Count { ttl: Some(Ttl::Expired), ..count }), (10, false, Some(Duration::from_secs(60))));
    assert!(!cache.contains(b"n"));
    cache.verify();
}

/// Values of every length around a segment's can be marked, and marked values survive merges and a smaller memory.
#[test]
fn marks_fit_all_lengths_and_survive_evictions() {
    let cache = Cache::builder().memory(ByteSize::mib(2)).max_value(ByteSize::kib(64)).seed(3).clock(Clock::Manual);
    let cache = cache.segment_size(ByteSize::kib(4)).build().unwrap();
    for length in 4040..4100 {
        let bytes = vec![3; length];
        cache.insert(b"k", &bytes).flags(1).apply().unwrap();
        assert!(mark(&cache, b"k", MetaFlags::Stale { token: Some(9) }), "{length} bytes");
        assert!(value(&cache, b"k") == bytes);
        assert_eq!((marks(&cache, b"k"), token(&cache, b"k")), ((true, false), 9));
    }
    let key = |number: u32| number.to_le_bytes();
    let mut seen = 0;
    for number in 0..20_000u32 {
        let text = if number % 3 == 0 { number.to_string() } else { "v".repeat(number as usize % 300) };
        cache.insert(&key(number), text.as_bytes()).token(Some(number.into())).apply().unwrap();
        if number % 3 == 0 {
            cache.count(&key(number), &Count { token: Some(number.into()), ..Count::plain(Change::Add(1)) }).unwrap();
        }
        mark(&cache, &key(number), MetaFlags::Won);
        if number % 100 == 0 {
            cache.maintain(Duration::from_millis(number.into()));
        }
        let old = number.saturating_sub(2000) / 7 * 7;
        if let Some(item) = cache.get(&key(old)).hit() {
            assert_eq!((item.cas(), item.is_won(), item.is_stale()), (old.into(), true, false));
            seen += u32::from(old + 1000 < number);
        }
    }
    assert!(cache.stats().survived > 1000 && seen > 1000, "{seen} seen, {:?}", cache.stats());
    cache.resize(ByteSize::mib(1)).unwrap();
    cache.verify();
}
