//! The engines behind one trait.

mod ebbtide;
mod segcache;
mod slabs;

use ::ebbtide::Policy;
use clap::ValueEnum;
use ebbtide_slab_store::{Hyperbolic, Lhd, Sampled, SegmentedLru, SlabEviction, VictimSlab};

use crate::Replay;
use crate::measure::{self, Report};
use crate::requests::Requests;

/// A cache with the time of the trace.
pub trait Engine {
    /// Seconds since the start. The cache does maintenance that is due.
    fn advance(&mut self, now: u32);

    /// Copies the value to `out`. False on a miss.
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> bool;

    /// A refused object is counted by its later misses. A TTL of 0 is no expiry.
    fn set(&mut self, key: &[u8], value: &[u8], ttl: u32);

    fn delete(&mut self, key: &[u8]);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EngineName {
    /// Ebbtide with its default policy
    Ebbtide,
    /// Ebbtide that merges
    EbbtideMerge,
    /// Slab storage that evicts random slabs, as Pelikan
    Slab,
    /// Slab storage that evicts the slab that was used the longest time ago
    SlabLru,
    /// memcached without its crawler
    Memcached,
    /// memcached with its crawler
    MemcachedCrawler,
    /// Hyperbolic with random-sampling expiry
    Hyperbolic,
    /// LHD with random-sampling expiry
    Lhd,
    /// The crate segcache, with merging
    Segcache,
}

impl EngineName {
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Replays the requests through an engine. `memory`: bytes for each copy of the keys.
pub fn run(replay: &Replay, requests: &Requests, memory: u64) -> Result<Report, String> {
    let (bytes, largest) = (memory * u64::from(replay.copies), requests.largest_bytes());
    match replay.engine {
        EngineName::Ebbtide => {
            let engine = ebbtide::Ebbtide::new(bytes, Policy::S3Fifo)?;
            measure::run(replay, requests, memory, engine)
        }
        EngineName::EbbtideMerge => {
            measure::run(replay, requests, memory, ebbtide::Ebbtide::new(bytes, Policy::Merge)?)
        }
        EngineName::Segcache => {
            measure::run(replay, requests, memory, segcache::Segcache::new(bytes, requests, replay.copies)?)
        }
        EngineName::Slab => {
            let eviction = SlabEviction::new(VictimSlab::Random);
            measure::run(replay, requests, memory, slabs::Slabs::new(bytes, largest, eviction))
        }
        EngineName::SlabLru => {
            let eviction = SlabEviction::new(VictimSlab::LeastRecentlyUsed);
            measure::run(replay, requests, memory, slabs::Slabs::new(bytes, largest, eviction))
        }
        EngineName::Memcached | EngineName::MemcachedCrawler => {
            let eviction = SegmentedLru::new(replay.engine == EngineName::MemcachedCrawler);
            measure::run(replay, requests, memory, slabs::Slabs::new(bytes, largest, eviction))
        }
        EngineName::Hyperbolic => {
            measure::run(replay, requests, memory, slabs::Slabs::new(bytes, largest, Sampled::new(Hyperbolic)))
        }
        EngineName::Lhd => {
            let eviction = Sampled::new(Lhd::new(bytes, replay.lhd_period));
            measure::run(replay, requests, memory, slabs::Slabs::new(bytes, largest, eviction))
        }
    }
}
