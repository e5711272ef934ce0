//! What can be chosen about the tier.

use crate::admission::AdmissionOptions;
use crate::device::DiskOptions;
use crate::large::{Reclaim, Reinsertion};
use std::path::PathBuf;

#[derive(Clone, Debug)]
pub struct TierOptions {
    /// What is written at all.
    pub admission: AdmissionOptions,
    /// How paths are read and written; only for [`super::Tier::open`].
    pub disk: DiskOptions,
    /// Share of the capacity for small objects, whose record has [`crate::small::MAX_RECORD_BYTES`] bytes at most; 0.01
    /// to 0.99. By default none: it is chosen by what comes, as what is cached is not known before.
    pub small_share: Option<f64>,
    /// Bytes of RAM for indexes, filters and buffers at most; values on their way from the device to a reader come on
    /// top. By default no bound: who composes knows the machine.
    pub memory_bytes: u64,
    /// By how much that may be increased ([`crate::Tier::grow_memory`]) when an index comes near its bound: small
    /// objects get an area for which that would be enough, if hardly any others come. By default by nothing.
    pub memory_growth_bytes: u64,
    /// The longest value that comes. Two so long may be in RAM beyond the bound, on their way to the device, where it
    /// has too few buffers for their parts. By default 1 MiB.
    pub max_value_bytes: u64,
    /// Bytes of a region of large objects at most, a power of two from 64 KiB to 16 MiB; smaller ones are taken where
    /// the capacity or the memory is small. By default 16 MiB: flash is then erased without moving what lives.
    pub region_bytes: usize,
    /// Which region of large objects is reclaimed when space is needed. By default as in [`crate::large::Options`].
    pub reclaim: Reclaim,
    /// Which objects of that region are written again. By default as in [`crate::large::Options`].
    pub reinsertion: Reinsertion,
    /// Whether the device is told of regions that were reclaimed. By default not: they are written again soon, and many
    /// drives are slow at it.
    pub discard: bool,
    /// A region that has been open for so many seconds is written as it is. By default 600: what is only in RAM is lost
    /// with a crash, and a short region wastes space.
    pub seal_seconds: u32,
    /// Percent of the space for small objects that their log has, 0 to 50. By default 10: more makes page writes rarer,
    /// and costs four bytes of RAM for each object in the log.
    pub log_percent: u8,
    /// A page of small objects is rewritten for so many of them at least, or as many times 300 bytes, as soon as it is
    /// full. By default 2: a page for one object alone is written 4 KiB for a few hundred bytes.
    pub rewrite_threshold: u8,
    /// Whether a start finds what flash held. By default it does. If not, flash starts empty, nothing is kept for
    /// another start, and no removal is logged.
    pub warm_restart: bool,
    /// The file for the log of removals, without which nothing is found after a crash. By default beside the first path
    /// with `.removals` at its end, if that path is a file; for a block device it must be named.
    pub removals: Option<PathBuf>,
    /// After a crash so many bytes are read at most to find small objects; if they have more room, they are given up.
    /// By default 64 GiB, a minute at 1 GB/s.
    pub scan_bytes: u64,
}

impl Default for TierOptions {
    fn default() -> Self {
        let (large, small) = (crate::large::Options::default(), crate::small::Options::default());
        Self {
            admission: AdmissionOptions::default(),
            disk: DiskOptions::default(),
            small_share: None,
            memory_bytes: u64::MAX,
            memory_growth_bytes: 0,
            max_value_bytes: 1 << 20,
            region_bytes: large.region_bytes,
            reclaim: large.reclaim,
            reinsertion: large.reinsertion,
            discard: large.discard,
            seal_seconds: large.seal_seconds,
            log_percent: small.log_percent,
            rewrite_threshold: small.rewrite_threshold,
            warm_restart: true,
            removals: None,
            scan_bytes: 64 << 30,
        }
    }
}
