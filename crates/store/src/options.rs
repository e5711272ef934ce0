//! The options of a store.

use crate::error::Error;
use crate::evict::{Objective, Policy};
use crate::mapping::physical_memory_bytes;
use crate::segment::{SEGMENT_SIZE_MAX, SEGMENT_SIZE_MIN, SEGMENTS_MAX, bytes_for};

/// The options of a store. Every default fits most uses.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// All the memory that the store may use: items, index, headers, spares. Default 64 MiB, as memcached.
    pub memory_bytes: u64,
    /// The limit for `resize`: address space is reserved for it at the start, which costs nothing. Default: four times
    /// the memory, or that of the machine if that is more.
    pub memory_bytes_max: Option<u64>,
    /// The memory for which segments and TTL buckets are laid out, if it is not that of the start: their sizes are
    /// those of the start for good. Default: the memory.
    pub layout_bytes: Option<u64>,
    /// Bytes of values in a segment: a power of two from 4 KiB to 1 MiB. The segment is a 64th part longer, for keys
    /// and headers, so that values of a power of two, such as pages of 4 KiB, fill it. Default: memory / 1024, because
    /// each eviction then empties a small part; at least the lesser of memory / 64 and 64 KiB, because items of a few
    /// KiB leave much of a smaller segment empty; at most 1 MiB, because slots hold offsets of 21 bits.
    pub segment_size: Option<u32>,
    /// The largest value. Default 1 MiB, as memcached.
    pub value_bytes_max: u64,
    /// The eviction policy.
    pub policy: Policy,
    /// The objective of evictions. Default the object hit ratio: most caches save requests to a backend.
    pub objective: Objective,
    /// Segments that one eviction merges into one. Default 4, which the Segcache paper found best (section 4.4).
    pub merge_run: u32,
    /// Whether a full store evicts. Without it, writes fail when the memory is full.
    pub evicts: bool,
    /// Seed of the key hash. Must be hard to guess if keys come from untrusted clients.
    pub seed: u64,
    /// Threads that write at once: a hot TTL bucket gets as many open segments. Default: the cores of the machine.
    pub writers: usize,
    /// Bytes that the owner of the store has on the heap for it: a part of the memory. Default 0.
    pub owner_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory_bytes: 64 << 20,
            memory_bytes_max: None,
            layout_bytes: None,
            segment_size: None,
            value_bytes_max: 1 << 20,
            policy: Policy::default(),
            objective: Objective::default(),
            merge_run: 4,
            evicts: true,
            seed: 0,
            writers: std::thread::available_parallelism().map_or(1, usize::from),
            owner_bytes: 0,
        }
    }
}

/// Less memory does not hold an index, a segment per TTL bucket in use, and spare segments.
pub const MEMORY_BYTES_MIN: u64 = 256 << 10;
/// More is a mistake: the tables alone would exceed most machines.
/// The largest memory of a store.
pub const MEMORY_BYTES_MAX: u64 = 4 << 40;
/// Address space that can be reserved: four times the largest memory.
const MEMORY_CEILING_BYTES_MAX: u64 = 4 * MEMORY_BYTES_MAX;
/// The largest value of any store.
pub const VALUE_BYTES_LIMIT: u64 = 1 << 30;
/// Smaller segments waste much space on items of several KiB.
const ROOMY_SEGMENT_BYTES: u64 = 64 << 10;
/// The memory of a start holds this many segments.
pub(crate) const SEGMENTS_AT_START: u64 = 32;
/// The largest number of segments that a merge takes.
pub const MERGE_RUN_MAX: u32 = 64;

impl Options {
    /// Refuses options that cannot work; the error names the option.
    pub fn validate(&self) -> Result<(), Error> {
        let refuse =
            |option, value: u64, reason: String| Err(Error::Options { option, value: value.to_string(), reason });
        if self.memory_bytes < MEMORY_BYTES_MIN {
            return refuse("memory", self.memory_bytes, format!("at least {MEMORY_BYTES_MIN} bytes are needed"));
        }
        if self.memory_bytes > MEMORY_BYTES_MAX {
            return refuse(
                "memory",
                self.memory_bytes,
                format!("at most {MEMORY_BYTES_MAX} bytes, 4 TiB, can be used"),
            );
        }
        if let Some(max) = self.memory_bytes_max
            && max < self.memory_bytes
        {
            return refuse("memory_ceiling", max, format!("less than the memory, {} bytes", self.memory_bytes));
        }
        if let Some(max) = self.memory_bytes_max
            && max > MEMORY_CEILING_BYTES_MAX
        {
            let reason = format!("at most {MEMORY_CEILING_BYTES_MAX} bytes, 16 TiB, can be reserved");
            return refuse("memory_ceiling", max, reason);
        }
        if self.writers == 0 {
            return refuse("writers", 0, "at least one thread writes".into());
        }
        if self.value_bytes_max > VALUE_BYTES_LIMIT {
            return refuse("max_value", self.value_bytes_max, format!("values have at most {VALUE_BYTES_LIMIT} bytes"));
        }
        if self.value_bytes_max > self.memory_bytes / 2 {
            let half = self.memory_bytes / 2;
            let reason = format!(
                "a value may take at most half of the memory, {half} bytes: increase memory or lower max_value"
            );
            return refuse("max_value", self.value_bytes_max, reason);
        }
        if let Some(bytes) = self.segment_size
            && !(bytes.is_power_of_two() && (SEGMENT_SIZE_MIN..=SEGMENT_SIZE_MAX).contains(&bytes))
        {
            let reason = format!("a power of two from {SEGMENT_SIZE_MIN} to {SEGMENT_SIZE_MAX} is needed");
            return refuse("segment_size", bytes.into(), reason);
        }
        let laid_out = self.layout_bytes.map(|_| self.effective_segment_size());
        if let Some(bytes) = self.segment_size.or(laid_out)
            && u64::from(bytes) * SEGMENTS_AT_START > self.memory_bytes
        {
            let reason = format!("the memory must hold at least {SEGMENTS_AT_START} times as much");
            return refuse("segment_size", bytes.into(), reason);
        }
        if let Some(bytes) = self.segment_size
            && self.memory_bytes / u64::from(bytes_for(bytes)) > SEGMENTS_MAX.into()
        {
            let reason = format!("the memory would have more than {SEGMENTS_MAX} segments: choose a larger size");
            return refuse("segment_size", bytes.into(), reason);
        }
        if !(2..=MERGE_RUN_MAX).contains(&self.merge_run) {
            return refuse("merge_run", self.merge_run.into(), format!("from 2 to {MERGE_RUN_MAX} segments"));
        }
        Ok(())
    }

    /// The limit for `resize`, also where the options leave it to the machine.
    pub fn effective_memory_bytes_max(&self) -> u64 {
        let by_machine = || self.memory_bytes.saturating_mul(4).max(physical_memory_bytes().unwrap_or(0));
        self.memory_bytes_max.unwrap_or_else(|| by_machine().min(MEMORY_CEILING_BYTES_MAX))
    }

    /// The memory for which segments and TTL buckets are laid out.
    pub fn layout_bytes(&self) -> u64 {
        self.layout_bytes.unwrap_or(self.memory_bytes)
    }

    /// The size of a segment that is used, before the part for keys and headers.
    pub fn effective_segment_size(&self) -> u32 {
        self.segment_size.unwrap_or_else(|| {
            let memory_bytes = self.layout_bytes();
            let ideal = (memory_bytes / 1024).max(ROOMY_SEGMENT_BYTES.min(memory_bytes / 64)).max(1);
            let rounded = 1u64 << ideal.ilog2();
            rounded.clamp(SEGMENT_SIZE_MIN.into(), SEGMENT_SIZE_MAX.into()) as u32
        })
    }

    /// Bytes of a segment.
    pub fn segment_bytes(&self) -> u32 {
        bytes_for(self.effective_segment_size())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::item::{EXTENSION_BYTES_MAX, ITEM_HEADER_BYTES};

    fn refused(options: Options) -> &'static str {
        match options.validate() {
            Err(Error::Options { option, .. }) => option,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn impossible_options_are_refused_by_name() {
        let base = Options::default();
        assert_eq!(base.validate(), Ok(()));
        for memory_bytes in [1000, (4 << 40) + 1, u64::MAX] {
            assert_eq!(refused(Options { memory_bytes, ..base.clone() }), "memory");
        }
        assert_eq!(refused(Options { value_bytes_max: 33 << 20, ..base.clone() }), "max_value");
        assert_eq!(refused(Options { segment_size: Some(5000), ..base.clone() }), "segment_size");
        assert_eq!(refused(Options { segment_size: Some(2 << 20), ..base.clone() }), "segment_size");
        let many = Options { segment_size: Some(4 << 10), memory_bytes: 40 << 30, ..base.clone() };
        assert_eq!(refused(many), "segment_size");
        for memory_bytes_max in [Some(32 << 20), Some((16 << 40) + 1), Some(u64::MAX)] {
            assert_eq!(refused(Options { memory_bytes_max, ..base.clone() }), "memory_ceiling");
        }
        assert_eq!(refused(Options { writers: 0, ..base.clone() }), "writers");
        assert_eq!(refused(Options { merge_run: 1, ..base }), "merge_run");
    }

    #[test]
    fn power_of_two_values_fill_segments_with_keys() {
        for size_log in 12..=20 {
            let options = Options { segment_size: Some(1 << size_log), memory_bytes: 64 << 20, ..Options::default() };
            for value_log in 12..size_log {
                let item_bytes = (1 << value_log) + ITEM_HEADER_BYTES + EXTENSION_BYTES_MAX + 40;
                assert!(options.segment_bytes() / item_bytes >= 1 << (size_log - value_log), "2^{value_log} bytes");
            }
        }
    }

    #[test]
    fn the_segment_size_follows_the_memory() {
        let bytes = |memory_bytes| Options { memory_bytes, ..Options::default() }.effective_segment_size();
        assert_eq!(bytes(256 << 10), 4 << 10);
        assert_eq!(bytes(1 << 20), 16 << 10);
        assert_eq!(bytes(64 << 20), 64 << 10);
        assert_eq!(bytes(300 << 20), 256 << 10);
        assert_eq!(bytes(1 << 40), 1 << 20);
    }
}
