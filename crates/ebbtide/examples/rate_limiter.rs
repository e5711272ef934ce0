//! A rate limiter: calls of a client are counted in windows, and a window's counter expires by its TTL. The second one
//! limits calls and bytes together, and counts what it refuses, in one value of several fields.
//!
//! `cargo run --example rate_limiter`

use ebbtide::{ByteSize, Cache, Clock, Error, InsertOptions};
use std::time::Duration;

const WINDOW: Duration = Duration::from_secs(60);
const MAX_CALLS: u64 = 100;

const MAX_BYTES: u64 = 1 << 20;

ebbtide::counters! {
    /// The use of one client in a window.
    struct Usage(1) { calls, bytes, refused }
}

/// Counts a call of `bytes`, if both limits allow it. All fields change together.
fn allow_bytes(cache: &Cache, client: &str, bytes: u64) -> Result<bool, Error> {
    let usage = cache.typed_handle::<Usage>(format!("usage:{client}"));
    usage.edit_or_create(&Usage::default(), InsertOptions::new().ttl(WINDOW), |usage| {
        let is_allowed = usage.calls < MAX_CALLS && usage.bytes + bytes <= MAX_BYTES;
        match is_allowed {
            true => (usage.calls, usage.bytes) = (usage.calls + 1, usage.bytes + bytes),
            false => usage.refused += 1,
        }
        is_allowed
    })
}

/// Counts a call. Whether it is within the limit.
fn allow(cache: &Cache, client: &str) -> Result<bool, Error> {
    // The first call creates the counter, and with it the window. Later ones keep its TTL.
    let calls = cache.increment_or_insert(client, 1, 1, InsertOptions::new().ttl(WINDOW))?;
    Ok(calls <= MAX_CALLS)
}

pub fn main() -> Result<(), Error> {
    // A manual clock, so that the example does not wait for a minute.
    let cache = Cache::builder().memory(ByteSize::mib(16)).clock(Clock::Manual).build()?;
    let mut allowed = 0;
    for _ in 0..250 {
        allowed += u64::from(allow(&cache, "10.0.0.1")?);
    }
    assert_eq!(allowed, MAX_CALLS);
    assert!(allow(&cache, "10.0.0.2")?, "another client has a counter of its own");
    for _ in 0..20 {
        allow_bytes(&cache, "10.0.0.1", 100_000)?;
    }
    let usage = cache.typed_handle::<Usage>("usage:10.0.0.1").get()?;
    assert_eq!(usage, Some(Usage { calls: 10, bytes: 1_000_000, refused: 10 }));
    cache.maintain(WINDOW);
    assert!(allow_bytes(&cache, "10.0.0.1", 1)?, "the window is over");
    assert!(allow(&cache, "10.0.0.1")?, "the window is over");
    println!("{allowed} of 250 calls were allowed");
    Ok(())
}
