//! Options of the tier.

use crate::KeyRouting;
use crate::admission::AdmissionOptions;
use crate::device::DiskOptions;
use crate::large::{Reclaim, Reinsertion};
use std::path::PathBuf;

#[derive(Clone, Debug)]
pub struct TierOptions {
    /// Which objects are written.
    pub admission: AdmissionOptions,
    /// How paths are read and written; only for [`super::Tier::open`].
    pub disk: DiskOptions,
    /// Share of the capacity for small objects, whose record has [`crate::small::MAX_RECORD_BYTES`] bytes at most; 0.01
    /// to 0.99. By default none: the share is chosen by the objects that arrive, since the workload is not known
    /// before.
    pub small_share: Option<f64>,
    /// Maximum bytes of RAM for indexes, filters and buffers, without the buffers of pending reads. By default no
    /// bound: the caller knows the machine.
    pub memory_bytes: u64,
    /// Bytes by which `memory_bytes` may be increased ([`crate::Tier::grow_memory`]) when an index is near its bound.
    /// If large objects are rare, small objects get an area for which the increased memory is enough. By default 0.
    pub memory_growth_bytes: u64,
    /// Maximum length of a value. If the log has too few buffers for the parts of two such values, they may be in RAM
    /// beyond the bound until the device has them. By default 1 MiB.
    pub max_value_bytes: u64,
    /// Maximum bytes of a region of large objects, a power of two from 64 KiB to 16 MiB. Regions are smaller where the
    /// capacity or the memory is small. By default 16 MiB: the drive then erases flash without moving live data.
    pub region_bytes: usize,
    /// Which region of large objects is reclaimed when space is needed. By default as in [`crate::large::Options`].
    pub reclaim: Reclaim,
    /// Which objects of that region are written again. By default as in [`crate::large::Options`].
    pub reinsertion: Reinsertion,
    /// Whether reclaimed regions are discarded on the device. By default they are not: they are written again soon, and
    /// many drives discard slowly.
    pub discard: bool,
    /// Seconds after which an open region is written even if it is not full. By default 600: objects that are only in
    /// RAM are lost in a crash, and a short region wastes space.
    pub seal_seconds: u32,
    /// Percent of the space for small objects that their log takes, 0 to 50. By default 10: a larger log needs fewer
    /// page writes, and costs four bytes of RAM for each object in it.
    pub log_percent: u8,
    /// Minimum number of objects, or of 300-byte units, for which a full page of small objects is rewritten. By default
    /// 2: for one object alone, 4 KiB would be written for a few hundred bytes.
    pub rewrite_threshold: u8,
    /// Whether a start finds the objects of the last run. By default it does. Otherwise flash starts empty, nothing is
    /// kept for another start, and no removal is logged.
    pub warm_restart: bool,
    /// The file for the deletion log, without which a start after a crash is empty. By default beside the first path
    /// with `.removals` at its end, if that path is a file; for a block device it must be named.
    pub deletion_log: Option<PathBuf>,
    /// The rules by which the caller divides keys among pools. By default none.
    pub key_routing: KeyRouting,
    /// Maximum bytes that are read after a crash to find small objects. If their area is larger, they are dropped. By
    /// default 64 GiB, a minute at 1 GB/s.
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
            deletion_log: None,
            key_routing: KeyRouting::default(),
            scan_bytes: 64 << 30,
        }
    }
}
