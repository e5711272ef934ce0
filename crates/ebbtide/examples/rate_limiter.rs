//! A rate limiter: calls of a client are counted in windows, and a window's counter expires by its TTL.
//!
//! `cargo run --example rate_limiter`

use ebbtide::{ByteSize, Cache, Clock, Error, InsertOptions};
use std::time::Duration;

const WINDOW: Duration = Duration::from_secs(60);
const MAX_CALLS: u64 = 100;

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
    cache.maintain(WINDOW);
    assert!(allow(&cache, "10.0.0.1")?, "the window is over");
    println!("{allowed} of 250 calls were allowed");
    Ok(())
}
