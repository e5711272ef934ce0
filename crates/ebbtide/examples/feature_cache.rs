//! A feature cache for a model server: the features of a user are a map, so that a stream of events changes single
//! features, and a prediction reads only those that the model needs.
//!
//! `cargo run --example feature_cache`

use ebbtide::structured::Map;
use ebbtide::{ByteSize, Cache, Error, InsertOptions};
use std::time::Duration;

const LIFE: Duration = Duration::from_secs(3600);
/// The features of the model, and its weights.
const MODEL: [(&str, f32); 3] = [("clicks_1h", 0.5), ("purchases_30d", 2.0), ("age_days", 0.01)];

fn features(cache: &Cache, user: u32) -> Map<String, f32> {
    cache.map(format!("features:{user}"))
}

/// Writes all features of a user as one operation, as a batch job does.
fn refresh(cache: &Cache, user: u32, rows: &[(String, f32)]) -> Result<(), Error> {
    let entries = rows.iter().map(|(name, value)| (name, value));
    features(cache, user).insert_many(entries, InsertOptions::new().ttl(LIFE))
}

/// Counts an event. Nothing is done for a user whose features are not in the cache: the batch job brings them.
fn count(cache: &Cache, user: u32, name: &str) -> Result<(), Error> {
    let counted = |old: Option<f32>| (Some(old.unwrap_or(0.0) + 1.0), ());
    features(cache, user).update(&name.to_owned(), counted).map(drop)
}

/// The score of a user; `None` if the features are not in the cache. All are from one moment.
fn predict(cache: &Cache, user: u32) -> Result<Option<f32>, Error> {
    let Some(features) = features(cache, user).snapshot()? else { return Ok(None) };
    let mut score = 0.0;
    for (name, weight) in MODEL {
        score += weight * features.get(&name.to_owned())?.unwrap_or(0.0);
    }
    Ok(Some(score))
}

pub fn main() -> Result<(), Error> {
    let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    assert_eq!(predict(&cache, 42)?, None);
    count(&cache, 42, "clicks_1h")?;
    assert_eq!(predict(&cache, 42)?, None, "an event alone makes no features");
    // Many features, of which the model reads three.
    let others = (0..500).map(|number| (format!("other_{number}"), number as f32));
    let rows: Vec<(String, f32)> =
        others.chain([("purchases_30d".to_owned(), 3.0), ("age_days".to_owned(), 100.0)]).collect();
    refresh(&cache, 42, &rows)?;
    for _ in 0..10 {
        count(&cache, 42, "clicks_1h")?;
    }
    assert_eq!(predict(&cache, 42)?, Some(0.5 * 10.0 + 2.0 * 3.0 + 0.01 * 100.0));
    println!("user 42 scores {:?}", predict(&cache, 42)?);
    Ok(())
}
