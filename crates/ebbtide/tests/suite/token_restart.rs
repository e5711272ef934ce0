//! CAS tokens over a restart with flash: an unchanged value keeps the token that a client got. No token is valid for
//! another value than that for which it was issued, whatever happens between the issue and the start.

use ebbtide::memcached::{
    ByteSize, Cache, CacheBuilder, Clock, FlashOptions, FlashPromotion, Mode, Policy, PoolOptions, Stored, Ttl,
};
use std::fs;
use std::path::Path;

/// Few beside the 180 sets of 8 places in the table of tokens, of which a pool has half: a set overflows in one of a
/// million runs.
const KEYS: u32 = 100;
const POOL_KEYS: u32 = 40;
const POOL: &str = "a";
/// Longer than objects of which flash drops some: those whose set is crowded, or alone in its page.
const BYTES: usize = 2500;

fn builder(folder: &Path) -> CacheBuilder {
    let options = FlashOptions { rewrite_threshold: 1, ..FlashOptions::default() };
    let builder = Cache::builder().memory(ByteSize::mib(12)).clock(Clock::Manual).policy(Policy::Fifo);
    let builder = builder.flash(folder.join("flash"), ByteSize::mib(64)).flash_options(options);
    builder.flash_promotion(FlashPromotion::Always)
}

fn key(number: u32) -> Vec<u8> {
    format!("key{number}").into_bytes()
}

fn set(cache: &Cache, number: u32, value: &[u8]) {
    assert_eq!(cache.insert(&key(number), value).apply(), Ok(Stored::Stored));
}

fn token(cache: &Cache, number: u32) -> u64 {
    cache.get_with_token(&key(number)).hit().expect("the key is there").cas()
}

fn cas(cache: &Cache, number: u32, token: u64) -> Stored {
    cache.insert(&key(number), b"by token").mode(Mode::Cas(token)).apply().expect("there is memory")
}

/// Writes other keys, until memory has held only them.
fn push_out(cache: &Cache) {
    (0..8000_u32).for_each(|number| _ = cache.insert(&number.to_le_bytes(), &[1; 2000]).apply().unwrap());
}

/// All keys with a value of its own length, half of them on flash and half in memory, and their tokens.
fn issue(cache: &Cache) -> Vec<u64> {
    (0..KEYS / 2).for_each(|number| set(cache, number, &vec![number as u8; BYTES]));
    let mut tokens: Vec<u64> = (0..KEYS / 2).map(|number| token(cache, number)).collect();
    push_out(cache);
    (KEYS / 2..KEYS).for_each(|number| set(cache, number, &vec![number as u8; BYTES]));
    tokens.extend((KEYS / 2..KEYS).map(|number| token(cache, number)));
    tokens
}

fn stop(cache: Cache) {
    cache.close().unwrap();
    cache.verify();
}

fn start(folder: &Path) -> Cache {
    let cache = builder(folder).build().unwrap();
    let notices = cache.flash_stats().unwrap().notices.join("\n");
    assert!(notices.contains("flash is warm after a stop"), "{notices}");
    cache
}

/// The answers to a `cas` of each key with its token.
fn cas_all(cache: &Cache, tokens: &[u64]) -> Vec<Stored> {
    (0..).zip(tokens).map(|(number, token)| cas(cache, number, *token)).collect()
}

fn is_refused(answer: &Stored) -> bool {
    matches!(answer, Stored::Exists | Stored::NotFound)
}

#[test]
fn unchanged_values_keep_their_token_over_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let cache = builder(folder.path()).build().unwrap();
    let tokens = issue(&cache);
    stop(cache);
    // Also through a run that does not read them, and one that promotes and evicts them.
    stop(start(folder.path()));
    let cache = start(folder.path());
    assert_eq!((0..KEYS).map(|number| token(&cache, number)).collect::<Vec<_>>(), tokens);
    push_out(&cache);
    stop(cache);
    let cache = start(folder.path());
    push_out(&cache);
    assert!(cas_all(&cache, &tokens).iter().all(|answer| *answer == Stored::Stored));
    assert!(cas_all(&cache, &tokens).iter().all(is_refused), "a token is good for one write");
    assert_eq!(cache.flash_stats().unwrap().unknown_tokens, 0);
    cache.verify();
}

#[test]
fn numbers_keep_their_token_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let cache = builder(folder.path()).build().unwrap();
    let count = |cache: &Cache, number| _ = cache.increment(&key(number), 1).unwrap();
    (0..KEYS).for_each(|number| set(&cache, number, b"100"));
    (0..KEYS).for_each(|number| count(&cache, number));
    let tokens: Vec<u64> = (0..KEYS).map(|number| token(&cache, number)).collect();
    (0..KEYS).filter(|number| number % 3 == 0).for_each(|number| count(&cache, number));
    stop(cache);
    let cache = start(folder.path());
    (0..KEYS).filter(|number| number % 3 == 1).for_each(|number| count(&cache, number));
    let mut found = 0;
    for (number, answer) in cas_all(&cache, &tokens).into_iter().enumerate() {
        found += usize::from(answer != Stored::NotFound);
        let expected = if number % 3 == 2 { Stored::Stored } else { Stored::Exists };
        assert!([expected, Stored::NotFound].contains(&answer), "{number}: {answer:?}");
    }
    assert!(found > KEYS as usize * 9 / 10, "{found}: flash may drop some small objects");
}

#[test]
fn a_changed_value_refuses_tokens_of_earlier_runs() {
    let folder = tempfile::tempdir().unwrap();
    let cache = builder(folder.path()).build().unwrap();
    let tokens = issue(&cache);
    let change = |cache: &Cache, number: u32| match number / 2 % 4 {
        0 => set(cache, number, b"new"),
        1 => _ = cache.insert(&key(number), b"!").mode(Mode::Append).apply().unwrap(),
        2 => _ = cache.delete(&key(number)),
        _ => {
            cache.delete(&key(number));
            set(cache, number, &vec![number as u8; BYTES]);
        }
    };
    // The even ones before the stop, the odd ones after the start.
    (0..KEYS).step_by(2).for_each(|number| change(&cache, number));
    push_out(&cache);
    stop(cache);
    let cache = start(folder.path());
    (1..KEYS).step_by(2).for_each(|number| change(&cache, number));
    assert!(cas_all(&cache, &tokens).iter().all(is_refused));
    push_out(&cache);
    assert!(cas_all(&cache, &tokens).iter().all(is_refused));
    cache.verify();
}

/// The state that the checkpoint has is not the last one of the cache: only the deletion log knows of later changes.
#[test]
fn changes_after_the_checkpoint_refuse_kept_tokens() {
    let change: [fn(&Cache, u32); 3] = [
        |cache, number| set(cache, number, b"new"),
        |cache, number| _ = cache.delete(&key(number)),
        |cache, _| cache.flush(std::time::Duration::ZERO),
    ];
    for (kind, change) in change.iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let cache = builder(folder.path()).build().unwrap();
        let tokens = issue(&cache);
        push_out(&cache);
        cache.close_flash();
        (0..KEYS).step_by(2).for_each(|number| change(&cache, number));
        drop(cache);
        let cache = start(folder.path());
        // Another value gets the key, in a bucket whose changes are counted from the first.
        (0..KEYS).step_by(4).for_each(|number| set(&cache, number, b"other"));
        let answers = cas_all(&cache, &tokens);
        assert!(answers.iter().step_by(2).all(is_refused), "change {kind}: {answers:?}");
        let stored = answers.iter().filter(|answer| **answer == Stored::Stored).count();
        assert!(if kind == 2 { stored == 0 } else { stored > KEYS as usize / 4 }, "change {kind}: {stored}");
    }
}

#[test]
fn tokens_of_a_removed_pool_match_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let build = || builder(folder.path()).pool(PoolOptions::named(POOL)).build().unwrap();
    let write = |cache: &Cache, number, mode| {
        cache.pool(POOL).unwrap().insert(&key(number), &[7; BYTES]).mode(mode).apply().unwrap()
    };
    let issue = |cache: &Cache, number| {
        write(cache, number, Mode::Set);
        cache.pool(POOL).unwrap().get_with_token(&key(number)).hit().unwrap().cas()
    };
    for removes in [false, true] {
        let cache = build();
        let tokens: Vec<u64> = (0..POOL_KEYS).map(|number| issue(&cache, number)).collect();
        stop(cache);
        let cache = build();
        if removes {
            cache.remove_pool(POOL).unwrap();
            cache.add_pool(&PoolOptions::named(POOL)).unwrap();
            (0..POOL_KEYS).step_by(2).for_each(|number| _ = write(&cache, number, Mode::Set));
        }
        let cas = |number: u32| write(&cache, number, Mode::Cas(tokens[number as usize]));
        let expected = |number: u32| match (removes, number % 2) {
            (false, _) => Stored::Stored,
            (true, 0) => Stored::Exists,
            (true, _) => Stored::NotFound,
        };
        (0..POOL_KEYS).for_each(|number| assert_eq!(cas(number), expected(number), "{number}, removed: {removes}"));
        stop(cache);
    }
}

#[test]
fn tokens_after_a_restart_are_higher_than_before() {
    let folder = tempfile::tempdir().unwrap();
    let mut highest = 0;
    for run in 0..5 {
        let cache = if run == 0 { builder(folder.path()).build().unwrap() } else { start(folder.path()) };
        set(&cache, 0, b"kept");
        for round in 0..50 {
            set(&cache, 1, &[round; 10]);
            let new = token(&cache, 1);
            assert!(new > highest || run == 0, "{new} in run {run}, {highest} before");
        }
        highest = highest.max(token(&cache, 1)).max(token(&cache, 0));
        stop(cache);
    }
}

#[test]
fn tokens_are_higher_if_none_was_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut highest = 0;
    for run in 0..12 {
        let cache = if run == 0 { builder(folder.path()).build().unwrap() } else { start(folder.path()) };
        set(&cache, 0, b"value");
        let new = token(&cache, 0);
        assert!(new > highest, "{new} in run {run}, {highest} before");
        // No client has a token of this value.
        assert_eq!(cas(&cache, 0, new), Stored::Stored);
        highest = new;
        stop(cache);
        // Nor does each run change something.
        (0..run % 3).for_each(|_| stop(start(folder.path())));
    }
}

/// The base of an empty memory file is random, and below that of flash after restarts.
#[test]
fn tokens_after_a_memory_file_are_higher() {
    let folder = tempfile::tempdir().unwrap();
    let with_file = || builder(folder.path()).memory_file(folder.path().join("memory"));
    let mut highest = 0;
    for round in 0..12 {
        let cache = if round == 0 { builder(folder.path()).build().unwrap() } else { start(folder.path()) };
        set(&cache, 0, b"value");
        let new = token(&cache, 0);
        assert!(new > highest, "{new} in round {round}, {highest} before");
        highest = new;
        stop(cache);
        for _ in 0..2 {
            let cache = with_file().build().unwrap();
            (0..round).for_each(|number| set(&cache, number, b"value"));
            stop(cache);
        }
        fs::remove_file(folder.path().join("memory")).unwrap();
    }
}

#[test]
fn flash_put_back_has_tokens_of_its_values() {
    let folder = tempfile::tempdir().unwrap();
    let copy = |from: &Path, to: &Path| {
        for entry in fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    };
    let cache = builder(folder.path()).build().unwrap();
    let old = issue(&cache);
    stop(cache);
    let backup = tempfile::tempdir().unwrap();
    copy(folder.path(), backup.path());
    let cache = start(folder.path());
    (0..KEYS).for_each(|number| set(&cache, number, b"newer"));
    let newer: Vec<u64> = (0..KEYS).map(|number| token(&cache, number)).collect();
    stop(cache);
    // Flash and its log together, which no start can tell: the values are old, and so are their tokens.
    copy(backup.path(), folder.path());
    let cache = start(folder.path());
    let (newer, old) = (cas_all(&cache, &newer), cas_all(&cache, &old));
    assert!(newer.iter().all(is_refused), "{newer:?}");
    // A slow device may have lost some.
    let stored = old.iter().filter(|answer| **answer == Stored::Stored).count();
    assert!(stored > KEYS as usize * 9 / 10 && !old.contains(&Stored::Exists), "{old:?}");
}

#[test]
fn a_memory_file_continues_tokens_of_flash() {
    let folder = tempfile::tempdir().unwrap();
    let with_file = || builder(folder.path()).memory_file(folder.path().join("memory"));
    let cache = with_file().build().unwrap();
    let tokens = issue(&cache);
    // The buckets of those in memory change.
    (0..2000_u32).for_each(|number| _ = cache.insert(&number.to_be_bytes(), b"neighbour").apply().unwrap());
    stop(cache);
    let cache = with_file().build().unwrap();
    assert_eq!((0..KEYS).map(|number| token(&cache, number)).collect::<Vec<_>>(), tokens);
    assert!(cas_all(&cache, &tokens).iter().all(|answer| *answer == Stored::Stored));
    assert!(cas_all(&cache, &tokens).iter().all(is_refused));
    stop(cache);
}

/// The memory file has later values than flash knew of when it was closed.
#[test]
fn a_memory_file_refuses_tokens_of_closed_flash() {
    let folder = tempfile::tempdir().unwrap();
    let with_file = || builder(folder.path()).memory_file(folder.path().join("memory"));
    let cache = with_file().build().unwrap();
    let tokens = issue(&cache);
    cache.close_flash();
    (0..KEYS).step_by(2).for_each(|number| set(&cache, number, b"new"));
    stop(cache);
    let cache = with_file().build().unwrap();
    assert_eq!(cache.get(&key(0)).hit().expect("memory is warm").to_vec(), b"new");
    let answers = cas_all(&cache, &tokens);
    assert!(answers.iter().step_by(2).all(|answer| *answer == Stored::Exists), "{answers:?}");
}

/// A memory file does not hold the base of adopted tokens, so memory that starts empty beside it adopts none.
#[test]
fn an_empty_memory_file_adopts_no_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let cache = builder(folder.path()).build().unwrap();
    let tokens = issue(&cache);
    stop(cache);
    let cache = builder(folder.path()).memory_file(folder.path().join("memory")).build().unwrap();
    assert!(cas_all(&cache, &tokens).iter().all(is_refused));
    assert!(cache.flash_stats().unwrap().unknown_tokens >= u64::from(KEYS) / 2);
    set(&cache, 0, b"value");
    let of_file = token(&cache, 0);
    stop(cache);
    let cache = builder(folder.path()).memory_file(folder.path().join("memory")).build().unwrap();
    assert_eq!(cas(&cache, 0, of_file), Stored::Stored);
    assert!(cache.touch(&key(1), Ttl::seconds(100)).unwrap());
}
