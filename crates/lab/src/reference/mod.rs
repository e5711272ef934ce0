//! Reference policies, object by object, as their papers and libCacheSim have them: the standard for an engine's
//! curve.
//!
//! An object takes its key and its value, and nothing else: no index, no fragmentation. A get that misses inserts the
//! object if the policy takes it at all; it takes none that is larger than the cache, some take none larger than their
//! smallest queue.
//!
//! | name | policy | parameters |
//! |---|---|---|
//! | `fifo`, `lru` | by arrival, by recency | |
//! | `lru:insertion=1/2`, `1/4`, `1/8` | LRU with an insertion point (CacheLib, `MMLru`) | by bytes, not by objects |
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
mod cache;
mod frequency;
mod insertion;
mod lirs;
mod priority;
mod queues;
mod segmented;
mod simple;

pub use cache::Cache;
use ebbtide::options::InsertionPoint;

/// A reference policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    Fifo,
    Lru,
    LruInsertion(InsertionPoint),
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
    pub const ALL: [(&'static str, Self); 16] = [
        ("fifo", Self::Fifo),
        ("lru", Self::Lru),
        ("lru:insertion=1/2", Self::LruInsertion(InsertionPoint::Half)),
        ("lru:insertion=1/4", Self::LruInsertion(InsertionPoint::Quarter)),
        ("lru:insertion=1/8", Self::LruInsertion(InsertionPoint::Eighth)),
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
            Self::LruInsertion(point) => Box::new(insertion::LruInsertion::new(bytes, point)),
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
    fn every_policy_keeps_its_limit_and_finds_objects() {
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

    /// Requests for many objects, few of which are used often, with a loop now and then.
    fn requests() -> impl Iterator<Item = u64> {
        let mut seed = 1u64;
        (0..60_000u64).map(move |number| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let uniform = (seed >> 40) as f64 / (1u64 << 24) as f64;
            match number % 10_000 {
                ..2000 => 10_000 + number % 600,
                _ => (uniform * uniform * uniform * 5000.0) as u64,
            }
        })
    }

    /// Hits of libCacheSim 0.3.5 with these requests, with space for 50 and 500 objects of one byte, and for 250 and
    /// 2500 bytes of objects of 1 to 9; and the largest difference of a ratio. It is above zero where ties are broken
    /// in another way, for ARC that adapts by objects there and by bytes here, and for S3-FIFO, which has been changed
    /// there: while the cache fills, objects beyond the small queue go to the main one.
    const LIBCACHESIM: [(&str, [u64; 4], f64); 10] = [
        ("fifo", [4247, 13_764, 4274, 13_791], 0.0),
        ("lru", [4930, 15_098, 4962, 15_138], 0.0),
        ("clock", [5210, 15_608, 5223, 15_629], 0.0),
        ("sieve", [8973, 18_767, 8982, 18_930], 0.0),
        ("2q", [8394, 18_935, 8438, 18_914], 0.0),
        ("lirs", [8836, 19_853, 7740, 20_108], 0.0001),
        ("slru", [8548, 19_505, 8523, 19_838], 0.0005),
        ("gdsf", [6183, 17_257, 7325, 22_428], 0.0005),
        ("arc", [8600, 18_825, 8913, 18_962], 0.002),
        ("s3fifo", [9214, 20_077, 9289, 20_142], 0.005),
    ];

    #[test]
    fn policies_hit_as_often_as_those_of_libcachesim() {
        for (name, expected, allowed) in LIBCACHESIM {
            let policy = Reference::from_name(name).unwrap();
            for ((bytes, sizes), expected) in [(50, 1), (500, 1), (250, 9), (2500, 9)].into_iter().zip(expected) {
                let mut cache = policy.cache(bytes);
                let hits = requests().filter(|key| cache.get(*key, 1 + key % sizes, u64::MAX)).count() as u64;
                let error = hits.abs_diff(expected) as f64 / 60_000.0;
                assert!(error <= allowed, "{name} of {bytes} bytes: {hits} hits, {expected} expected");
            }
        }
    }

    #[test]
    fn hits_of_uniform_objects_ignore_their_size() {
        for (name, policy) in Reference::ALL {
            let hits = |size: u64| {
                let mut cache = policy.cache(50 * size);
                requests().filter(|key| cache.get(*key, size, u64::MAX)).count()
            };
            let (small, large) = (hits(1) as f64, hits(4096) as f64);
            assert!(
                small > 3000.0 && (small - large).abs() / 60_000.0 < 0.01,
                "{name}: {small} hits of bytes, {large} of 4 KiB"
            );
        }
    }
}
