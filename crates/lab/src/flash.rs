//! Flash under the engine in process: flags and report.
//!
//! The flags have the server's spelling, and [`ebbtide::memcached`] reads their values for both. Flags of the server
//! that have no effect on a replay or a bench are refused, with the reason.

use clap::{Args, value_parser};
use ebbtide::memcached::{
    ByteSize, CacheBuilder, FlashAdmission, FlashOptions, FlashPromotion, FlashReclaim, FlashReinsertion,
    FlashSmallObjects, FlashStats,
};
use ebbtide::message;
use serde::Serialize;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;

#[derive(Args, Clone, Debug, Default)]
pub struct FlashArgs {
    /// File or block device for what memory cannot hold; with several sizes of memory or policies a file for each,
    /// named FILE.0, FILE.1 and so on
    #[arg(long = "flash", value_name = "FILE", requires = "flash_size")]
    pub path: Option<PathBuf>,
    /// How much of it is used (for example 1g)
    #[arg(long = "flash-size", id = "flash_size", value_name = "SIZE", requires = "path")]
    pub size: Option<ByteSize>,
    /// Admission to flash: all, probability:0.5, reject-first:TIMES:KEYS or history:KEYS_PER_HOUR[:READS_PER_HOUR];
    /// optionally followed by ,budget:10m (bytes a second) or ,budget:3dwpd (drive writes a day), and by
    /// ,min-ttl:SECONDS [default: all,min-ttl:10]
    #[arg(long = "flash-admission", value_name = "ADMISSION", requires = "path")]
    pub admission: Option<FlashAdmission>,
    /// Objects of a reclaimed region that are written again: auto (objects that were read, while copies are read more
    /// than new objects) or none [default: auto]
    #[arg(long = "flash-reinsertion", value_name = "WHICH", requires = "path")]
    pub reinsertion: Option<FlashReinsertion>,
    /// Which region is reclaimed first: lru, whose last hit is longest ago, or fifo, the oldest; with ,discard a block
    /// device is told of it [default: lru]
    #[arg(long = "flash-reclaim", value_name = "ORDER", requires = "path")]
    pub reclaim: Option<FlashReclaim>,
    /// Which hits on flash are promoted to memory: auto (of a key that was hit there before memory turned over),
    /// always, second-hit (within a minute), never, or one-in:N of those that second-hit promotes [default: auto]
    #[arg(long = "flash-promotion", value_name = "WHICH", requires = "path")]
    pub promotion: Option<FlashPromotion>,
    /// Min objects for which a page of small objects is rewritten, 1 to 255; with ,share:PERCENT of flash for objects
    /// under 2 KiB, 1 to 99, and ,log:PERCENT of that for their log, 0 to 50 [default: 2,log:10, and a share by the
    /// sizes of the objects]
    #[arg(long = "flash-small-threshold", value_name = "OBJECTS", requires = "path")]
    pub small_threshold: Option<FlashSmallObjects>,
    #[command(flatten)]
    old: OldFlashArgs,
    #[command(flatten)]
    server_only: ServerOnlyArgs,
}

/// Spellings that others have replaced. A value that the new spelling names is the one that counts.
#[derive(Args, Clone, Debug, Default)]
struct OldFlashArgs {
    #[arg(long = "flash-least-ttl", value_name = "SECONDS", requires = "path", hide = true)]
    min_ttl_seconds: Option<u32>,
    #[arg(long = "flash-small-share", value_name = "PERCENT", requires = "path", hide = true,
        value_parser = value_parser!(u8).range(1..=99))]
    small_share: Option<u8>,
    #[arg(long = "flash-small-log", value_name = "PERCENT", requires = "path", hide = true,
        value_parser = value_parser!(u8).range(0..=50))]
    small_log: Option<u8>,
}

impl OldFlashArgs {
    /// A warning for each that is used.
    fn warnings(&self) -> Vec<String> {
        let spellings = [
            (self.min_ttl_seconds.is_some(), "--flash-least-ttl", "--flash-admission POLICY,min-ttl:SECONDS"),
            (self.small_share.is_some(), "--flash-small-share", "--flash-small-threshold OBJECTS,share:PERCENT"),
            (self.small_log.is_some(), "--flash-small-log", "--flash-small-threshold OBJECTS,log:PERCENT"),
        ];
        let used = spellings.into_iter().filter(|(is_used, ..)| *is_used);
        used.map(|(_, old, new)| format!("{old} is an old spelling: write {new}")).collect()
    }
}

/// Flags of the server that a run in process cannot follow: each is refused with the reason.
#[derive(Args, Clone, Debug, Default)]
struct ServerOnlyArgs {
    #[arg(long = "flash-demotion-wait", hide = true, value_parser = refuse_demotion_wait)]
    demotion_wait: Option<Infallible>,
    #[arg(long = "flash-drain-seconds", hide = true, value_parser = refuse_drain)]
    drain: Option<Infallible>,
    #[arg(long = "flash-deletion-log", hide = true, value_parser = refuse_deletion_log)]
    deletion_log: Option<Infallible>,
    #[arg(long = "flash-endurance", hide = true, value_parser = refuse_endurance)]
    endurance: Option<Infallible>,
}

fn refuse_demotion_wait(_: &str) -> Result<Infallible, &'static str> {
    Err("no client waits here: writes wait for 50 ms as by default, and the report counts what flash drops")
}

fn refuse_drain(_: &str) -> Result<Infallible, &'static str> {
    Err("a run is not continued: memory is not written to flash at its end")
}

fn refuse_deletion_log(_: &str) -> Result<Infallible, &'static str> {
    Err("a run begins with empty flash: it keeps no log for a restart")
}

fn refuse_endurance(_: &str) -> Result<Infallible, &'static str> {
    Err("a run projects no life of a drive: take the bytes written from its report, or use ebbtide advise")
}

impl FlashArgs {
    /// Says which spellings are old. Once a command, however many caches it builds.
    pub(crate) fn warn_of_old_spellings(&self) {
        for warning in self.old.warnings() {
            message!("ebbtide: {warning}");
        }
    }

    /// Adds a flash tier to a cache, if flash is enabled. `number`: of the cache, if there are several. Flash starts
    /// empty, so that a run can be repeated.
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
        let FlashAdmission { options: mut admission, min_ttl_seconds } = self.admission.unwrap_or_default();
        admission.min_ttl_seconds = min_ttl_seconds.or(self.old.min_ttl_seconds).unwrap_or(admission.min_ttl_seconds);
        let small = self.small_threshold;
        let share_percent = small.and_then(|small| small.share_percent).or(self.old.small_share);
        let log_percent = small.and_then(|small| small.log_percent).or(self.old.small_log);
        FlashOptions {
            admission,
            reinsertion: self.reinsertion.map_or(defaults.reinsertion, |reinsertion| reinsertion.0),
            reclaim: self.reclaim.map_or(defaults.reclaim, |reclaim| reclaim.order),
            discard: self.reclaim.is_some_and(|reclaim| reclaim.discard),
            small_share: share_percent.map(|percent| f64::from(percent) / 100.0).or(defaults.small_share),
            log_percent: log_percent.unwrap_or(defaults.log_percent),
            rewrite_threshold: small.map_or(defaults.rewrite_threshold, |small| small.rewrite_threshold),
            warm_restart: false,
            ..defaults
        }
    }
}

/// Counters of flash. Its hits are included in the hits of the report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlashReport {
    pub hits: u64,
    /// Hits promoted to memory; the others were served from flash.
    pub promoted: u64,
    /// Objects written to flash, and their bytes.
    pub inserts: u64,
    pub inserted_bytes: u64,
    /// Objects refused by admission, and objects dropped because the device was behind.
    pub refused: u64,
    pub dropped: u64,
    /// Dropped objects by reason, without reasons that did not occur.
    pub dropped_by_reason: BTreeMap<&'static str, u64>,
    /// Evicted objects that it held already.
    pub unchanged: u64,
    /// Large objects that were written again when their region was reclaimed.
    pub rewritten: u64,
    /// Bytes written to the device, without zeros, which are written once, ahead of the pages of small objects.
    pub written_bytes: u64,
    /// `written_bytes` divided by the bytes of the inserted objects; 0 without inserts.
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
    use ebbtide::flash::{AdmissionPolicy, Reclaim, WriteBudget};
    use ebbtide::memcached::Cache;

    #[derive(Parser)]
    struct TestArgs {
        #[command(flatten)]
        flash: FlashArgs,
    }

    fn read(flags: &[(&str, &str)]) -> Result<FlashArgs, clap::Error> {
        let flags = flags.iter().flat_map(|(flag, value)| [*flag, *value]);
        let line = ["", "--flash", "file", "--flash-size", "1g"].into_iter().chain(flags);
        TestArgs::try_parse_from(line).map(|line| line.flash)
    }

    fn options(flag: &str, value: &str) -> FlashOptions {
        read(&[(flag, value)]).unwrap().options()
    }

    #[test]
    fn the_servers_combined_values_set_the_options() {
        let admission = options("--flash-admission", "probability:0.5,min-ttl:77,budget:10m").admission;
        assert_eq!((admission.policy, admission.min_ttl_seconds), (AdmissionPolicy::Probability(0.5), 77));
        assert_eq!(admission.budget, Some(WriteBudget::BytesPerSecond(10 << 20)));
        let reclaim = options("--flash-reclaim", "fifo,discard");
        assert_eq!((reclaim.reclaim, reclaim.discard), (Reclaim::Fifo, true));
        let small = options("--flash-small-threshold", "255,share:50,log:0");
        assert_eq!((small.rewrite_threshold, small.small_share, small.log_percent), (255, Some(0.5), 0));
        let (unset, defaults) = (FlashArgs::default().options(), FlashOptions::default());
        assert_eq!((unset.admission, unset.small_share), (defaults.admission, defaults.small_share));
        assert_eq!((unset.log_percent, unset.rewrite_threshold), (defaults.log_percent, defaults.rewrite_threshold));
        assert_eq!((unset.reclaim, unset.discard), (defaults.reclaim, defaults.discard));
        for (flag, bad) in [
            ("--flash-admission", "all,min-ttl:x"),
            ("--flash-reclaim", "lru,trim"),
            ("--flash-small-threshold", "2,share:100"),
            ("--flash-small-threshold", "256"),
            ("--flash-small-share", "100"),
            ("--flash-small-log", "51"),
        ] {
            assert!(read(&[(flag, bad)]).unwrap_err().to_string().contains(flag), "{flag} {bad}");
        }
    }

    #[test]
    fn old_spellings_work_and_warn_once() {
        let old = [("--flash-least-ttl", "77"), ("--flash-small-share", "20"), ("--flash-small-log", "0")];
        let new = [("--flash-admission", "all,min-ttl:77"), ("--flash-small-threshold", "2,share:20,log:0")];
        let (old, new) = (read(&old).unwrap(), read(&new).unwrap());
        assert_eq!(format!("{:?}", old.options()), format!("{:?}", new.options()));
        assert_eq!(new.old.warnings(), [""; 0]);
        let warnings = old.old.warnings();
        let part = |name: &str| format!("{name} is an old spelling: write --flash-");
        assert_eq!(warnings.len(), 3, "{warnings:?}");
        assert!(warnings[0].starts_with(&part("--flash-least-ttl")), "{warnings:?}");
        assert!(warnings[1].starts_with(&part("--flash-small-share")), "{warnings:?}");
        assert!(warnings[2].starts_with(&part("--flash-small-log")), "{warnings:?}");
        let both = read(&[("--flash-least-ttl", "77"), ("--flash-admission", "all,min-ttl:5")]).unwrap();
        assert_eq!(both.options().admission.min_ttl_seconds, 5);
    }

    #[test]
    fn server_only_flags_are_refused_with_the_reason() {
        for (flag, value, reason) in [
            ("--flash-demotion-wait", "50", "no client waits here"),
            ("--flash-drain-seconds", "30", "a run is not continued"),
            ("--flash-deletion-log", "file", "begins with empty flash"),
            ("--flash-endurance", "1dwpd", "projects no life"),
        ] {
            let refusal = read(&[(flag, value)]).unwrap_err().to_string();
            assert!(refusal.contains(flag) && refusal.contains(reason), "{refusal}");
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
