//! Sizes of a plan as flags of the server.
//!
//! `-m` takes whole MiB, and the server refuses memory of which two of its largest values, or the indexes and buffers
//! of flash, leave too little. A program that embeds the cache has no such limits: so a plan has its own sizes, too.

use std::fmt;

use ebbtide::memcached::{ByteSize, Cache, MEMORY_BYTES_MAX, MEMORY_BYTES_MIN};
use serde::{Serialize, Serializer};

/// The least memory of a cache.
pub(super) const MIN_DRAM: f64 = MEMORY_BYTES_MIN as f64;
/// The least memory of a cache with flash, which may take half of it.
pub(super) const MIN_DRAM_WITH_FLASH: f64 = 2.0 * MIN_DRAM;
const MIB: u64 = 1 << 20;
/// Largest value of a server by default (`-I`): its memory must hold two of them.
const MAX_VALUE: u64 = MIB;
/// Memory of a cache in the library is tried in steps of this.
const STEP: u64 = 64 << 10;
/// The largest memory of a cache.
pub(super) const MAX_DRAM: u64 = MEMORY_BYTES_MAX;
/// Memory and flash of this many bytes or more are of no server.
const MAX_BYTES: f64 = (1_u64 << 50) as f64;
/// No flash needs more memory than its own size and this.
const MEMORY_BESIDE: u64 = 64 * MIB;

/// Flags of a server with some memory, and with flash or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SizeFlags {
    memory_mib: u64,
    /// 0 without flash.
    flash_mib: u64,
}

impl SizeFlags {
    /// The smallest sizes of a server that are at least these; `None` beyond all servers.
    pub fn at_least(dram_bytes: f64, flash_bytes: f64) -> Option<Self> {
        if dram_bytes.max(flash_bytes) >= MAX_BYTES || dram_bytes > MAX_DRAM as f64 {
            return None;
        }
        let (dram_bytes, flash_bytes) = (dram_bytes.ceil() as u64, flash_bytes.ceil() as u64);
        let flash_mib = flash_bytes.div_ceil(MIB);
        let fits =
            |bytes: u64| left_beside(bytes, flash_mib * MIB, MAX_VALUE).is_some_and(|left| left / 2 >= MAX_VALUE);
        let memory_bytes = smallest(dram_bytes.max(2 * MAX_VALUE), MIB, flash_mib * MIB, fits)?;
        (memory_bytes <= MAX_DRAM).then_some(Self { memory_mib: memory_bytes / MIB, flash_mib })
    }

    /// The largest sizes of a server that are at most these; `None` if a server needs more.
    pub fn at_most(dram_bytes: f64, flash_bytes: f64) -> Option<Self> {
        let whole = |bytes: f64| (bytes as u64 / MIB * MIB) as f64;
        let flags = Self::at_least(whole(dram_bytes), whole(flash_bytes))?;
        (flags.memory_mib as f64 * MIB as f64 <= dram_bytes).then_some(flags)
    }
}

/// The least memory of a cache with this flash that is at least `dram_bytes`; `None` beyond all servers.
pub(super) fn dram_beside_flash(dram_bytes: f64, flash_bytes: f64) -> Option<f64> {
    if dram_bytes.max(flash_bytes) >= MAX_BYTES {
        return None;
    }
    let (dram_bytes, flash_bytes) = (dram_bytes.max(MIN_DRAM_WITH_FLASH) as u64, flash_bytes.ceil() as u64);
    let fits = |bytes: u64| {
        left_beside(bytes, flash_bytes, MAX_VALUE.min(bytes / 4)).is_some_and(|left| left >= MEMORY_BYTES_MIN)
    };
    // A size that fits stays as it is.
    if fits(dram_bytes) {
        Some(dram_bytes as f64)
    } else {
        smallest(dram_bytes, STEP, flash_bytes, fits).map(|bytes| bytes as f64)
    }
}

/// Memory that flash leaves; `None` if it needs more.
fn left_beside(memory_bytes: u64, flash_bytes: u64, max_value: u64) -> Option<u64> {
    if flash_bytes == 0 {
        return Some(memory_bytes);
    }
    let builder = Cache::builder().memory(ByteSize::bytes(memory_bytes)).max_value(ByteSize::bytes(max_value));
    let flash = builder.flash_memory_of(ByteSize::bytes(flash_bytes)).ok()?;
    memory_bytes.checked_sub(flash.planned.as_bytes())
}

/// The smallest multiple of `step` from `bytes` up that fits.
fn smallest(bytes: u64, step: u64, flash_bytes: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
    let max_steps = bytes.saturating_add(flash_bytes).saturating_add(MEMORY_BESIDE) / step;
    let (mut too_little, mut enough) = (bytes.div_ceil(step).saturating_sub(1), bytes.div_ceil(step));
    while !fits(enough * step) {
        (too_little, enough) = (enough, enough * 2);
        if enough > max_steps {
            return None;
        }
    }
    while enough - too_little > 1 {
        let middle = u64::midpoint(too_little, enough);
        *(if fits(middle * step) { &mut enough } else { &mut too_little }) = middle;
    }
    Some(enough * step)
}

impl fmt::Display for SizeFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "-m {}", self.memory_mib)?;
        if self.flash_mib > 0 { write!(f, " --flash PATH:{}m", self.flash_mib) } else { Ok(()) }
    }
}

impl Serialize for SizeFlags {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: f64 = MIB as f64;

    fn at_least(dram: f64, flash: f64) -> String {
        SizeFlags::at_least(dram * M, flash * M).unwrap().to_string()
    }

    #[test]
    fn flags_are_whole_mebibytes_that_hold_two_values() {
        assert_eq!([0.25, 2.0, 2.1, 4096.0].map(|dram| at_least(dram, 0.0)), ["-m 2", "-m 2", "-m 3", "-m 4096"]);
        assert_eq!(at_least(64.0, 99.5), "-m 64 --flash PATH:100m");
        // Indexes and buffers of flash leave less than two values of 2 MiB.
        assert_eq!(at_least(2.0, 4.0), "-m 3 --flash PATH:4m");
        assert_eq!([(M, f64::MAX), (f64::MAX, M)].map(|(dram, flash)| SizeFlags::at_least(dram, flash)), [None; 2]);
        let tib = 1_048_576.0;
        assert_eq!(at_least(4.0 * tib, 0.0), "-m 4194304");
        assert_eq!([4.1, 19.5].map(|dram| SizeFlags::at_least(dram * tib * M, 0.0)), [None; 2]);
    }

    #[test]
    fn flash_needs_memory_for_its_indexes() {
        let needed = dram_beside_flash(M, 1024.0 * M).unwrap();
        assert!(needed > 8.0 * M && needed < 16.0 * M, "{needed}");
        assert!(SizeFlags::at_least(M, 1024.0 * M).unwrap().memory_mib as f64 * M >= needed);
        assert_eq!(dram_beside_flash(needed, 1024.0 * M), Some(needed));
        assert_eq!([(M, f64::MAX), (f64::MAX, M)].map(|(dram, flash)| dram_beside_flash(dram, flash)), [None; 2]);
        assert_eq!(dram_beside_flash(100.0 * M + 7.0, 64.0 * M), Some(100.0 * M + 7.0));
    }

    #[test]
    fn a_budget_buys_no_more_than_its_flags() {
        let at_most = |dram: f64, flash: f64| SizeFlags::at_most(dram * M, flash * M).map(|flags| flags.to_string());
        assert_eq!(at_most(5.9, 0.0).as_deref(), Some("-m 5"));
        assert_eq!(at_most(64.9, 99.5).as_deref(), Some("-m 64 --flash PATH:99m"));
        assert_eq!((at_most(1.9, 0.0), at_most(4.0, 1024.0)), (None, None));
    }
}
