//! Gets, hits and sets by key prefix, from the keys that the workers note, and evictions by prefix.

use std::cell::Cell;
use std::sync::{Arc, Mutex};

use ebbtide::memcached::{Cause, Removal};

use super::CommandKind;
use super::groups::{GroupSketch, prefix_of};

/// Accesses, gets, hits, sets. Half of a count is left after ten seconds.
pub type TrafficSketch = GroupSketch<4>;

/// What an access adds to the sketch of its worker. `is_hit` is of gets.
pub fn traffic_counts(command: CommandKind, is_hit: Option<bool>, weight: f64) -> [f64; 4] {
    let of = |is_counted: bool| if is_counted { weight } else { 0.0 };
    let is_get = matches!(command, CommandKind::Get | CommandKind::GetAndTouch) && is_hit.is_some();
    [weight, of(is_get), of(is_hit == Some(true)), of(command == CommandKind::Set)]
}

/// Evictions, those of objects that were never read, and the seconds since the last use of all of them together.
pub type EvictionSketch = GroupSketch<3>;

/// Evictions by prefix, from the pools' listeners.
#[derive(Debug, Default)]
pub struct EvictionSamples {
    pub groups: Mutex<EvictionSketch>,
}

/// Evictions that a thread notes one by one; of more it notes one of [`SAMPLED`].
const COUNTED: u32 = 4096;
const SAMPLED: u32 = 64;

thread_local! {
    static SEEN: Cell<u32> = const { Cell::new(0) };
}

impl EvictionSamples {
    /// Notes a removal, if it is an eviction and sampled. Called by the evicting thread, so it never waits.
    pub fn note(self: &Arc<Self>, removal: &Removal<'_>, delimiter: u8) {
        if !matches!(removal.cause(), Cause::Memory | Cause::IndexFull) {
            return;
        }
        let seen = SEEN.get();
        SEEN.set(seen.saturating_add(1).min(COUNTED + SAMPLED));
        let weight = match seen {
            0..COUNTED => 1.0,
            _ if seen < COUNTED + SAMPLED - 1 => return,
            _ => {
                SEEN.set(COUNTED);
                f64::from(SAMPLED)
            }
        };
        let unread = if removal.was_used() { 0.0 } else { weight };
        if let Ok(mut groups) = self.groups.try_lock() {
            let idle = removal.idle().as_secs_f64() * weight;
            groups.add(prefix_of(removal.key(), delimiter), [weight, unread, idle]);
        }
    }
}
