//! Flash below the engine in process: what the flags ask for, and what it did.

use clap::{Args, value_parser};
use ebbtide::memcached::{
    ByteSize, CacheBuilder, FlashAdmission, FlashOptions, FlashPromotion, FlashReclaim, FlashReinsertion, FlashStats,
};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Args, Clone, Debug, Default)]
pub struct FlashArgs {
    /// File or block device for what memory has no room for; with several sizes of memory or policies a file for each,
    /// named FILE.0, FILE.1 and so on
    #[arg(long = "flash", value_name = "FILE", requires = "flash_size")]
    pub path: Option<PathBuf>,
    /// How much of it is used (for example 1g)
    #[arg(long = "flash-size", id = "flash_size", value_name = "SIZE", requires = "path")]
    pub size: Option<ByteSize>,
    /// What is written to flash: all, probability:0.5, reject-first:TIMES:KEYS or
    /// history:KEYS_PER_HOUR[:READS_PER_HOUR]; behind it, if wanted, ,budget:10m (bytes a second) or ,budget:3dwpd
    /// (drive writes a day) [default: all]
    #[arg(long = "flash-admission", value_name = "ADMISSION", requires = "path")]
    pub admission: Option<FlashAdmission>,
    /// Objects of a reclaimed region that are written again: auto (objects that were read, while copies are read more
    /// than new objects) or none [default: auto]
    #[arg(long = "flash-reinsertion", value_name = "WHICH", requires = "path")]
    pub reinsertion: Option<FlashReinsertion>,
    /// Which region is reclaimed first: lru, whose last hit is longest ago, or fifo, the oldest [default: lru]
    #[arg(long = "flash-reclaim", value_name = "ORDER", requires = "path")]
    pub reclaim: Option<FlashReclaim>,
    /// Which hits on flash come back to memory: auto (of a key that was hit there before memory turned over), always,
    /// second-hit (within a minute), never, or one-in:N of those that second-hit brings back [default: auto]
    #[arg(long = "flash-promotion", value_name = "WHICH", requires = "path")]
    pub promotion: Option<FlashPromotion>,
    /// Seconds that an object must have left to be written [default: 10]
    #[arg(long = "flash-least-ttl", value_name = "SECONDS", requires = "path")]
    pub least_ttl: Option<u32>,
    /// Percent of flash for objects under 2 KiB, 1 to 99 [default: by what comes]
    #[arg(long = "flash-small-share", value_name = "PERCENT", requires = "path", value_parser = value_parser!(u8).range(1..=99))]
    pub small_share: Option<u8>,
    /// Percent of their space for their log, 0 to 50 [default: 10]
    #[arg(long = "flash-small-log", value_name = "PERCENT", requires = "path", value_parser = value_parser!(u8).range(0..=50))]
    pub small_log: Option<u8>,
    /// Objects for which a page of them is rewritten at least, 1 to 255 [default: 2]
    #[arg(long = "flash-small-threshold", value_name = "OBJECTS", requires = "path", value_parser = value_parser!(u8).range(1..))]
    pub small_threshold: Option<u8>,
}

impl FlashArgs {
    /// Puts flash below a cache, if it was asked for; of several caches it is the one with this number. It begins with
    /// nothing, so that a run can be repeated.
    pub(crate) fn add_flash_tier(&self, builder: CacheBuilder, number: Option<usize>) -> CacheBuilder {
        let (Some(path), Some(size)) = (&self.path, self.size) else { return builder };
        let mut path = path.clone().into_os_string();
        if let Some(number) = number {
            path.push(format!(".{number}"));
        }
        let promotion = self.promotion.unwrap_or_default();
        builder.flash(path, size).flash_options(self.options()).flash_promotion(promotion)
    }

    fn options(&self) -> FlashOptions {
        let defaults = FlashOptions::default();
        let mut admission = self.admission.unwrap_or_default().0;
        admission.min_ttl_seconds = self.least_ttl.unwrap_or(admission.min_ttl_seconds);
        FlashOptions {
            admission,
            reinsertion: self.reinsertion.map_or(defaults.reinsertion, |reinsertion| reinsertion.0),
            reclaim: self.reclaim.map_or(defaults.reclaim, |reclaim| reclaim.0),
            small_share: self.small_share.map(|percent| f64::from(percent) / 100.0).or(defaults.small_share),
            log_percent: self.small_log.unwrap_or(defaults.log_percent),
            rewrite_threshold: self.small_threshold.unwrap_or(defaults.rewrite_threshold),
            warm_restart: false,
            ..defaults
        }
    }
}

/// What flash did. Its hits are among the hits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlashReport {
    pub hits: u64,
    /// Of these, those that came back to memory; the others were answered from flash.
    pub promoted: u64,
    /// Objects that were written to it, and their bytes.
    pub inserts: u64,
    pub inserted_bytes: u64,
    /// Objects that it did not take, by its admission or because the device did not keep up.
    pub refused: u64,
    pub dropped: u64,
    /// The latter by reason, those that there were.
    pub dropped_by_reason: BTreeMap<&'static str, u64>,
    /// Evicted objects that it held already.
    pub unchanged: u64,
    /// Large objects that were written again when their region was reclaimed.
    pub rewritten: u64,
    /// That reached the device, but for zeros, which are written once, ahead of the pages of small objects.
    pub written_bytes: u64,
    /// These bytes over those of the objects written; 0 if none was.
    pub write_amplification: f64,
    pub objects: u64,
    pub capacity_bytes: u64,
    /// Memory for its buffers and indexes, a part of `memory_used_bytes`.
    pub memory_bytes: u64,
}

impl FlashReport {
    pub(crate) fn new(stats: &FlashStats) -> Self {
        let tier = &stats.tier;
        let refused = &tier.admission;
        let written_bytes = tier.written.recurring();
        Self {
            hits: stats.promoted + stats.served,
            promoted: stats.promoted,
            inserts: tier.inserts,
            inserted_bytes: tier.inserted_bytes,
            refused: refused.refused_expires_soon
                + refused.refused_too_small
                + refused.refused_by_policy
                + refused.refused_by_budget
                + tier.displaced,
            dropped: tier.drops.total(),
            dropped_by_reason: tier.drops.by_reason().into_iter().filter(|&(_, count)| count > 0).collect(),
            unchanged: stats.unchanged,
            rewritten: tier.large.reinserted,
            written_bytes,
            write_amplification: tier.write_amplification(),
            objects: tier.objects,
            capacity_bytes: tier.capacity_bytes,
            memory_bytes: tier.memory_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use ebbtide::memcached::Cache;

    #[derive(Parser)]
    struct TestArgs {
        #[command(flatten)]
        flash: FlashArgs,
    }

    fn read(flag: &str, value: &str) -> Result<FlashOptions, clap::Error> {
        let line = TestArgs::try_parse_from(["", "--flash", "file", "--flash-size", "1g", flag, value]);
        line.map(|line| line.flash.options())
    }

    #[test]
    fn what_is_written_and_where_it_lies_is_chosen_as_for_the_server() {
        assert_eq!(read("--flash-least-ttl", "77").unwrap().admission.min_ttl_seconds, 77);
        assert_eq!(read("--flash-small-share", "20").unwrap().small_share, Some(0.2));
        assert_eq!(read("--flash-small-log", "0").unwrap().log_percent, 0);
        assert_eq!(read("--flash-small-threshold", "255").unwrap().rewrite_threshold, 255);
        let (unset, defaults) = (FlashArgs::default().options(), FlashOptions::default());
        assert_eq!((unset.admission, unset.small_share), (defaults.admission, defaults.small_share));
        assert_eq!((unset.log_percent, unset.rewrite_threshold), (defaults.log_percent, defaults.rewrite_threshold));
        for (flag, bad) in [
            ("--flash-small-share", "100"),
            ("--flash-small-log", "51"),
            ("--flash-small-threshold", "0"),
            ("--flash-small-threshold", "256"),
        ] {
            assert!(read(flag, bad).unwrap_err().to_string().contains(flag), "{flag} {bad}");
        }
    }

    #[test]
    fn where_nothing_was_inserted_nothing_is_amplified() {
        let folder = tempfile::tempdir().unwrap();
        let flash =
            FlashArgs { path: Some(folder.path().join("flash")), size: Some(ByteSize::mib(4)), ..FlashArgs::default() };
        let cache = flash.add_flash_tier(Cache::builder(), None).build().unwrap();
        let report = FlashReport::new(&cache.flash_stats().unwrap());
        assert!(report.written_bytes > 0, "{report:?}");
        assert_eq!((report.inserted_bytes, report.write_amplification), (0, 0.0));
    }
}
