//! CAS tokens that come with writes, and changes that are bound to one.

use ebbtide::memcached::{ByteSize, Cache, Change, Changed, Clock, Mode, Stored, Ttl, Written};

fn cache() -> Cache {
    Cache::builder().memory(ByteSize::mib(4)).seed(1).clock(Clock::Manual).build().unwrap()
}

fn token(cache: &Cache, key: &[u8]) -> u64 {
    cache.get(key).hit().unwrap().cas()
}

fn value(cache: &Cache, key: &[u8]) -> Vec<u8> {
    cache.get(key).hit().unwrap().to_vec()
}

/// A token that the entry has had, and has no more.
fn stale(cache: &Cache, key: &[u8]) -> u64 {
    let stale = token(cache, key);
    cache.insert(key, b"0").apply().unwrap();
    stale
}

#[test]
fn tokens_begin_as_small_as_clients_expect() {
    for seed in 0..100 {
        let cache = Cache::builder().memory(ByteSize::mib(4)).seed(seed).clock(Clock::Manual).build().unwrap();
        cache.insert(b"k", b"v").apply().unwrap();
        assert!(token(&cache, b"k") < 1 << 31, "seed {seed}: {}", token(&cache, b"k"));
    }
}

#[test]
fn every_write_returns_its_items_token() {
    let cache = cache();
    let long = vec![7; 300_000];
    for first in [&b"v"[..], &long] {
        let mut mode = Mode::Set;
        for next in [Mode::Replace, Mode::Append, Mode::Prepend, Mode::Set, Mode::Add] {
            let written = cache.insert(b"k", first).mode(mode).apply_with_token().unwrap();
            assert_eq!(written, Written { stored: Stored::Stored, token: token(&cache, b"k") }, "{mode:?}");
            mode = next;
        }
        let refused = cache.insert(b"k", first).mode(Mode::Add).apply_with_token().unwrap();
        assert_eq!(refused, Written { stored: Stored::NotStored, token: 0 });
        let mut upload = cache.upload(b"k", first.len() as u64, 0, Ttl::Never, Mode::Set).unwrap();
        upload.write(first).unwrap();
        assert_eq!(upload.finish_with_token().unwrap().token, token(&cache, b"k"));
        let written = cache.insert(b"k", first).mode(Mode::Cas(token(&cache, b"k"))).apply_with_token().unwrap();
        assert_eq!(written.token, token(&cache, b"k"));
    }
    cache.verify();
}

#[test]
fn an_expired_writes_token_matches_nothing() {
    let cache = cache();
    for mode in [Mode::Set, Mode::Add] {
        let written = cache.insert(b"k", b"v").ttl(Ttl::Expired).mode(mode).apply_with_token().unwrap();
        assert_eq!(written.stored, Stored::Stored);
        assert_ne!(written.token, 0);
        let cas = |cache: &Cache| cache.insert(b"k", b"w").mode(Mode::Cas(written.token)).apply();
        assert_eq!(cas(&cache), Ok(Stored::NotFound));
        cache.insert(b"k", b"v").apply().unwrap();
        assert_eq!(cas(&cache), Ok(Stored::Exists));
        cache.delete(b"k");
    }
    cache.verify();
}

#[test]
fn appends_and_prepends_may_require_a_token() {
    let cache = cache();
    let put = |bytes: &[u8], mode| cache.insert(b"k", bytes).mode(mode).apply().unwrap();
    assert_eq!(put(b"x", Mode::AppendIf(1)), Stored::NotStored);
    put(b"v", Mode::Set);
    assert_eq!(put(b"b", Mode::AppendIf(token(&cache, b"k"))), Stored::Stored);
    assert_eq!(put(b"a", Mode::PrependIf(token(&cache, b"k"))), Stored::Stored);
    assert_eq!(value(&cache, b"k"), b"avb");
    let stale = stale(&cache, b"k");
    assert_eq!(put(b"x", Mode::AppendIf(stale)), Stored::Exists);
    assert_eq!(put(b"x", Mode::PrependIf(stale)), Stored::Exists);
    assert_eq!(value(&cache, b"k"), b"0");
    cache.verify();
}

#[test]
fn deletes_may_be_bound_to_a_token() {
    let cache = cache();
    assert_eq!(cache.delete_if(b"k", 1), Ok(Changed::Absent));
    assert_eq!(cache.delete_if(b"", 1), Ok(Changed::Absent));
    cache.insert(b"k", b"v").apply().unwrap();
    assert_eq!(cache.delete_if(b"k", stale(&cache, b"k")), Ok(Changed::Exists));
    assert!(cache.contains(b"k"));
    assert_eq!(cache.delete_if(b"k", token(&cache, b"k")), Ok(Changed::Done(())));
    assert!(!cache.contains(b"k"));
    cache.verify();
}

#[test]
fn counts_may_require_and_return_a_token() {
    let cache = cache();
    let change = |by, expected| cache.change(b"n", by, expected).unwrap();
    assert_eq!(change(Change::Add(1), Some(1)), Changed::Absent);
    // First a text that becomes a number, then in place, then with one more digit.
    cache.insert(b"n", b"7").apply().unwrap();
    for (by, expected) in [(Change::Add(1), 8), (Change::Subtract(5), 3), (Change::Add(20), 23)] {
        for bound in [Some(token(&cache, b"n")), None] {
            let Changed::Done(number) = change(by, bound) else {
                panic!("{bound:?} is no reason");
            };
            assert_eq!(number.token, token(&cache, b"n"));
            if bound.is_some() {
                assert_eq!(number.value, expected);
                let back = if let Change::Add(delta) = by { Change::Subtract(delta) } else { Change::Add(5) };
                change(back, None);
            }
        }
    }
    assert_eq!(change(Change::Add(1), Some(stale(&cache, b"n"))), Changed::Exists, "of a text");
    change(Change::Add(1), None);
    let stale = token(&cache, b"n");
    change(Change::Add(1), None);
    assert_eq!(change(Change::Add(1), Some(stale)), Changed::Exists, "of a number");
    assert_eq!(value(&cache, b"n"), b"2");
    cache.verify();
}
