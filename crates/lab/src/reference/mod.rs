//! Reference policies, object by object, as their papers and libCacheSim have them: what an engine's curve is measured
//! by.
//!
//! An object takes its key and its value, and nothing else: no index, no fragmentation. A get that misses inserts the
//! object if the policy takes it at all; it takes none that is larger than the cache, some take none larger than their
//! smallest queue.
//!
//! | name | policy | parameters |
//! |---|---|---|
//! | `fifo`, `lru` | by arrival, by recency | |
//! | `clock` | FIFO in which a used object goes round once more | one bit |
//! | `sieve` | SIEVE (Zhang and others, NSDI'24) | one bit |
//! | `slru` | segmented LRU (Karedla and others, 1994) | four equal segments |
//! | `2q` | 2Q (Johnson, Shasha, VLDB'94) | in 25 %, out 50 % |
//! | `s3fifo` | S3-FIFO (Yang and others, SOSP'23) | small 10 %, ghost 90 %, two uses to move on |
//! | `arc` | ARC (Megiddo, Modha, FAST'03) | |
//! | `lirs` | LIRS (Jiang, Zhang, SIGMETRICS'02) | 1 % resident HIR; at most twice the cache not resident |
//! | `w-tinylfu` | W-TinyLFU (Einziger and others, 2017) | window 1 %, main SLRU of 1:4, exact counts that are halved |
//! | `lhd` | LHD (Beckmann and others, NSDI'18) | 32 candidates |
//! | `gdsf` | GreedyDual-Size-Frequency (Cherkasova, 1998) | cost 1 |
//! | `belady` | the object used furthest in the future (Belady, 1966) | knows the future |

mod adaptive;
mod frequency;
mod lirs;
mod priority;
mod queues;
mod segmented;
mod simple;

/// A cache under a policy.
pub trait Cache: Send {
    /// Asks for an object, which is inserted if it is not there. `next` is the number of the request that asks for the
    /// key again, `u64::MAX` if none does; only clairvoyant policies may look at it. True for a hit.
    fn get(&mut self, key: u64, bytes: u64, next: u64) -> bool;

    /// Removes an object that died.
    fn remove(&mut self, key: u64);

    /// Size of an object that is there.
    fn bytes_of(&self, key: u64) -> Option<u64>;
}

/// A reference policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    Fifo,
    Lru,
    Clock,
    Sieve,
    Slru,
    TwoQ,
    S3Fifo,
    Arc,
    Lirs,
    WTinyLfu,
    Lhd,
    Gdsf,
    Belady,
}

impl Reference {
    pub const ALL: [(&'static str, Self); 13] = [
        ("fifo", Self::Fifo),
        ("lru", Self::Lru),
        ("clock", Self::Clock),
        ("sieve", Self::Sieve),
        ("slru", Self::Slru),
        ("2q", Self::TwoQ),
        ("s3fifo", Self::S3Fifo),
        ("arc", Self::Arc),
        ("lirs", Self::Lirs),
        ("w-tinylfu", Self::WTinyLfu),
        ("lhd", Self::Lhd),
        ("gdsf", Self::Gdsf),
        ("belady", Self::Belady),
    ];

    /// The name on a command line.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, policy)| *policy == self).expect("all are in the list").0
    }

    /// The policy of this name, in any case; `None` if there is none.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|&(_, policy)| policy)
    }

    /// An empty cache of this many bytes.
    pub fn cache(self, bytes: u64) -> Box<dyn Cache> {
        match self {
            Self::Fifo => Box::new(simple::Simple::new(bytes, simple::Order::Fifo)),
            Self::Lru => Box::new(simple::Simple::new(bytes, simple::Order::Lru)),
            Self::Clock => Box::new(simple::Simple::new(bytes, simple::Order::Clock)),
            Self::Sieve => Box::new(simple::Simple::new(bytes, simple::Order::Sieve)),
            Self::Slru => Box::new(segmented::Slru::new(bytes, &[1, 1, 1, 1])),
            Self::TwoQ => Box::new(segmented::TwoQ::new(bytes)),
            Self::S3Fifo => Box::new(segmented::S3Fifo::new(bytes)),
            Self::Arc => Box::new(adaptive::Arc::new(bytes)),
            Self::Lirs => Box::new(lirs::Lirs::new(bytes)),
            Self::WTinyLfu => Box::new(frequency::WTinyLfu::new(bytes)),
            Self::Lhd => Box::new(priority::Lhd::new(bytes)),
            Self::Gdsf => Box::new(priority::Ranked::new(bytes, priority::Rank::Gdsf)),
            Self::Belady => Box::new(priority::Ranked::new(bytes, priority::Rank::Belady)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_keeps_within_its_memory_and_finds_what_it_keeps() {
        for (name, policy) in Reference::ALL {
            assert_eq!((policy.name(), Reference::from_name(name)), (name, Some(policy)));
            let mut cache = policy.cache(1000);
            let mut seed = 1u64;
            let mut hits = 0;
            for number in 0..20_000u64 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let uniform = (seed >> 40) as f64 / (1u64 << 24) as f64;
                let key = (uniform * uniform * 400.0) as u64;
                let there = cache.bytes_of(key).is_some();
                let hit = cache.get(key, 1 + key % 9, number + 1 + key);
                assert_eq!(hit, there, "{name}: request {number} of {key}");
                hits += u32::from(hit);
                if (seed >> 20).is_multiple_of(16) {
                    cache.remove(key);
                    assert_eq!(cache.bytes_of(key), None, "{name}");
                }
            }
            let kept: u64 = (0..400).filter_map(|key| cache.bytes_of(key)).sum();
            assert!(kept <= 1000 && kept > 500, "{name} keeps {kept} bytes");
            assert!(hits > 8000, "{name}: {hits}");
            assert!(!cache.get(9999, 1001, u64::MAX) && cache.bytes_of(9999).is_none(), "{name}: it never fits");
        }
        assert_eq!(Reference::from_name("best"), None);
    }
}
