//! Gets, hits and sets by key prefix, from the keys that the workers note; evictions by prefix, pool, size and TTL.

use std::cell::Cell;
use std::sync::Mutex;

use ebbtide::memcached::Removal;

use super::CommandKind;
use super::groups::{GroupSketch, prefix_name, prefix_of, size_class};
use super::headline::MissedPrefix;

/// Accesses, gets, hits, sets. Half of a count is left after 40 seconds.
pub type TrafficSketch = GroupSketch<4>;

/// Counts that an access adds to the sketch of its worker. `is_hit`: the result of a get.
pub fn traffic_counts(command: CommandKind, is_hit: Option<bool>, weight: f64) -> [f64; 4] {
    let of = |is_counted: bool| if is_counted { weight } else { 0.0 };
    let is_get = matches!(command, CommandKind::Get | CommandKind::GetAndTouch) && is_hit.is_some();
    [weight, of(is_get), of(is_hit == Some(true)), of(command == CommandKind::Set)]
}

/// The prefix with the most misses.
pub fn missed_prefix(traffic: &TrafficSketch) -> Option<MissedPrefix> {
    let misses = |[_, gets, hits, _]: [f64; 4]| gets - hits;
    let prefix = traffic.prefixes().max_by(|a, b| misses(traffic.get(a)).total_cmp(&misses(traffic.get(b))))?;
    let (own, all) = (traffic.get(prefix), traffic.total());
    let ([_, gets, hits, _], [_, all_gets, all_hits, _]) = (own, all);
    Some(MissedPrefix {
        name: prefix_name(prefix),
        miss_share: misses(own) / misses(all).max(f64::MIN_POSITIVE),
        hit_ratio: hits / gets.max(f64::MIN_POSITIVE),
        hit_ratio_of_others: (all_hits - hits) / (all_gets - gets).max(f64::MIN_POSITIVE),
    })
}

/// Evictions of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EvictionCounts {
    pub evicted: f64,
    /// Of objects without a counted read since their write.
    pub unread: f64,
    /// Seconds since the last use of all of them together.
    pub idle_seconds_sum: f64,
    /// Evictions of objects whose time of write is known, and the seconds since then of all of these.
    pub aged: f64,
    pub age_seconds_sum: f64,
}

impl EvictionCounts {
    pub fn unread_share(&self) -> Option<f64> {
        (self.evicted > 0.0).then(|| self.unread / self.evicted)
    }

    /// Mean time between the last use and the eviction.
    pub fn idle_seconds(&self) -> Option<f64> {
        (self.evicted > 0.0).then(|| self.idle_seconds_sum / self.evicted)
    }

    /// Mean time between the write and the eviction, of objects evicted for the first time.
    pub fn age_seconds(&self) -> Option<f64> {
        (self.aged > 0.0).then(|| self.age_seconds_sum / self.aged)
    }

    fn to_array(self) -> [f64; 5] {
        let Self { evicted, unread, idle_seconds_sum, aged, age_seconds_sum } = self;
        [evicted, unread, idle_seconds_sum, aged, age_seconds_sum]
    }
}

impl From<[f64; 5]> for EvictionCounts {
    fn from([evicted, unread, idle_seconds_sum, aged, age_seconds_sum]: [f64; 5]) -> Self {
        Self { evicted, unread, idle_seconds_sum, aged, age_seconds_sum }
    }
}

/// The fields of `EvictionCounts` by a group.
pub type EvictionSketch = GroupSketch<5>;

/// Sampled evictions, half of which are left after 40 seconds.
#[derive(Clone, Debug, Default)]
pub struct EvictionGroups {
    pub prefixes: EvictionSketch,
    /// By the name of the pool.
    pub pools: EvictionSketch,
    /// By `size_group`.
    pub sizes: EvictionSketch,
    /// By `ttl_group`.
    pub ttls: EvictionSketch,
}

/// A range of TTLs as a group: the shortest and the longest, big-endian; empty for objects that do not expire.
pub fn ttl_group(range: Option<(u32, u32)>) -> Vec<u8> {
    range.map_or(Vec::new(), |(min, max)| [min.to_be_bytes(), max.to_be_bytes()].concat())
}

/// The range of a group.
pub fn ttl_of_group(group: &[u8]) -> Option<(u32, u32)> {
    let (min, max) = group.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*min), u32::from_be_bytes(*max.first_chunk()?)))
}

impl EvictionGroups {
    pub fn decay(&mut self, factor: f64) {
        for groups in [&mut self.prefixes, &mut self.pools, &mut self.sizes, &mut self.ttls] {
            groups.decay(factor);
        }
    }

    /// All evictions.
    pub fn total(&self) -> EvictionCounts {
        self.prefixes.total().into()
    }
}

/// Evictions by group, from the pools' listeners.
#[derive(Debug, Default)]
pub struct EvictionSamples {
    pub groups: Mutex<EvictionGroups>,
}

/// Evictions that a thread notes one by one; of more it notes one of [`SAMPLED`].
const COUNTED: u32 = 4096;
const SAMPLED: u32 = 64;

thread_local! {
    static SEEN: Cell<u32> = const { Cell::new(0) };
}

/// The weight of this thread's next eviction; `None` for one that is not sampled.
fn next_weight() -> Option<f64> {
    let seen = SEEN.get();
    SEEN.set(seen.saturating_add(1).min(COUNTED + SAMPLED));
    match seen {
        0..COUNTED => Some(1.0),
        _ if seen < COUNTED + SAMPLED - 1 => None,
        _ => {
            SEEN.set(COUNTED);
            Some(f64::from(SAMPLED))
        }
    }
}

impl EvictionSamples {
    /// Notes an eviction, if it is sampled. Called by the evicting thread, so it never waits.
    pub fn note(&self, removal: &Removal<'_>, pool: &str, delimiter: u8) {
        let Some(weight) = next_weight() else { return };
        let age = removal.age();
        let counts = EvictionCounts {
            evicted: weight,
            unread: if removal.is_unread() { weight } else { 0.0 },
            idle_seconds_sum: removal.idle().as_secs_f64() * weight,
            aged: if age.is_some() { weight } else { 0.0 },
            age_seconds_sum: age.unwrap_or_default().as_secs_f64() * weight,
        };
        let counts = counts.to_array();
        if let Ok(mut groups) = self.groups.try_lock() {
            groups.prefixes.add(prefix_of(removal.key(), delimiter), counts);
            groups.pools.add(pool.as_bytes(), counts);
            groups.sizes.add(&[size_class(removal.stored_bytes())], counts);
            groups.ttls.add(&ttl_group(removal.ttl_range_seconds()), counts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_ttls_are_groups() {
        for range in [None, Some((0, 8)), Some((1 << 20, u32::MAX))] {
            assert_eq!(ttl_of_group(&ttl_group(range)), range);
        }
    }

    #[test]
    fn means_need_evictions() {
        let counts = EvictionCounts::from([4.0, 1.0, 40.0, 2.0, 60.0]);
        assert_eq!((counts.unread_share(), counts.idle_seconds()), (Some(0.25), Some(10.0)));
        assert_eq!(counts.age_seconds(), Some(30.0));
        assert_eq!(EvictionCounts::from(counts.to_array()), counts);
        let none = EvictionCounts::default();
        assert_eq!((none.unread_share(), none.idle_seconds(), none.age_seconds()), (None, None, None));
    }
}
