//! The cost of a live profile: throughput of look-aside gets with a profile of the cache and without, in turn.
//!
//! ```text
//! cargo run --release -p ebbtide --example profile_cost -- [ROUNDS] [MILLISECONDS]
//! ```
//! Keys by a power law over four times as many as fit, values of 11 to 4096 bytes (mostly short, as in Facebook's ETC
//! pool). Each round measures both ways on the same cache; the ratio is of the same round. Not measured: more threads,
//! the dashboard.

use std::hint::black_box;
use std::time::{Duration, Instant};

use ebbtide::memcached::{ByteSize, Cache, CacheProfile, Lookup};

const KEYS: f64 = 800_000.0;
/// All keys are sampled until the first update, a second after the start.
const SETTLING: Duration = Duration::from_millis(2200);
const VALUE: [u8; 4096] = [7; 4096];

/// A uniform number of [0, 1), and the state after it.
fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 11) as f64 / (1u64 << 53) as f64
}

/// Requests a second for this time. A profile is updated every second, as in the server.
fn measure(cache: &Cache, mut profile: Option<&mut CacheProfile>, time: Duration, state: &mut u64) -> f64 {
    let (began, mut updated, mut requests) = (Instant::now(), Instant::now(), 0u64);
    while began.elapsed() < time {
        for _ in 0..4096 {
            let key = (KEYS.powf(uniform(state)) as u64).to_le_bytes();
            match cache.get(&key) {
                Lookup::Hit(item) => _ = black_box(item.len()),
                Lookup::Miss => {
                    let bytes = 11 + (4085.0 * uniform(state).powi(4)) as usize;
                    cache.insert(&key, &VALUE[..bytes]).apply().expect("the value fits");
                }
            }
            requests += 1;
        }
        if updated.elapsed() > Duration::from_secs(1) {
            updated = Instant::now();
            profile.iter_mut().for_each(|profile| profile.update());
        }
    }
    requests as f64 / began.elapsed().as_secs_f64()
}

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>().expect("ROUNDS and MILLISECONDS"));
    let (rounds, milliseconds) = (numbers.next().unwrap_or(15), numbers.next().unwrap_or(2000));
    let cache = Cache::builder().memory(ByteSize::mib(64)).build().expect("64 MiB");
    let (time, mut state) = (Duration::from_millis(milliseconds), 7);
    measure(&cache, None, time, &mut state);
    println!("| round | without, requests/s | with a profile | ratio |\n|---|---|---|---|");
    let mut ratios = Vec::new();
    for round in 0..rounds {
        let with = |state: &mut u64| {
            let mut profile = CacheProfile::of(&cache);
            measure(&cache, Some(&mut profile), SETTLING, state);
            measure(&cache, Some(&mut profile), time, state)
        };
        // The one that runs first takes turns.
        let (without, with) = match round % 2 {
            0 => {
                let without = measure(&cache, None, time, &mut state);
                (without, with(&mut state))
            }
            _ => {
                let with = with(&mut state);
                (measure(&cache, None, time, &mut state), with)
            }
        };
        ratios.push(with / without);
        println!("| {round} | {without:.0} | {with:.0} | {:.4} |", with / without);
    }
    ratios.sort_by(f64::total_cmp);
    println!(
        "\nmedian of the ratios {:.4}, from {:.4} to {:.4}",
        ratios[ratios.len() / 2],
        ratios[0],
        ratios[ratios.len() - 1]
    );
}
