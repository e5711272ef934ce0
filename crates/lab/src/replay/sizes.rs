//! Sizes of the memory of replays.

use std::collections::HashSet;

use ebbtide::ByteSize;

use super::ReplayArgs;
use crate::Error;
use crate::memory_size::MemorySize;
use crate::trace::STANDARD_INPUT;

/// Percent of the footprint that `auto` takes.
const AUTO_PERCENT: [f64; 4] = [1.0, 3.0, 10.0, 30.0];

impl ReplayArgs {
    /// The sizes in bytes, in the order of the arguments, each once; without any that of the configuration. A share of
    /// the footprint is at least the smallest memory of a cache. Shares read the trace once before the replays.
    ///
    /// # Errors
    /// A share of standard input, which can be read once, or of a trace without a request.
    pub(super) fn memory_sizes(&self) -> Result<Vec<ByteSize>, Error> {
        if self.memory.is_empty() {
            return self.configured_memory();
        }
        let of_footprint = self.memory.iter().any(|size| !matches!(size, MemorySize::Bytes(_)));
        let footprint_bytes = if of_footprint { self.footprint_bytes()? } else { 0 };
        let share = |percent: f64| {
            let bytes = (footprint_bytes as f64 * percent / 100.0) as u64;
            ByteSize::bytes(bytes.max(ebbtide::memcached::MEMORY_BYTES_MIN))
        };
        let mut sizes = Vec::new();
        for size in &self.memory {
            match *size {
                MemorySize::Bytes(size) => sizes.push(size),
                MemorySize::Percent(percent) => sizes.push(share(percent)),
                MemorySize::Auto => sizes.extend(AUTO_PERCENT.map(share)),
            }
        }
        let mut taken = HashSet::new();
        sizes.retain(|size| taken.insert(*size));
        Ok(sizes)
    }

    /// Bytes of all objects of the trace, each with the size that it had first.
    fn footprint_bytes(&self) -> Result<u64, Error> {
        if self.is_standard_input() {
            let reason = "standard input can be read once, and a share reads the trace twice: give bytes, or a file";
            let value = STANDARD_INPUT.to_owned();
            return Err(Error::Configuration { option: "--memory", value, reason: reason.to_owned() });
        }
        let mut reader = self.open()?;
        let (mut keys, mut bytes) = (HashSet::new(), 0);
        loop {
            match reader.next_request() {
                Ok(Some(request)) if keys.insert(request.key) => {
                    bytes += u64::from(request.key_size) + u64::from(request.value_size);
                }
                Ok(Some(_)) => (),
                Ok(None) => return Ok(bytes),
                Err(error @ Error::Malformed { .. }) if self.strict => return Err(error),
                Err(Error::Malformed { .. }) => (),
                Err(error) => return Err(error),
            }
        }
    }
}
