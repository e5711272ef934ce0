//! Flash: `--flash` and related flags, and memcached's spelling, `-o ext_path`.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use ebbtide_server::ebbtide::flash::{DiskOptions, Reclaim};
use ebbtide_server::ebbtide::memcached::{
    FlashAdmission, FlashOptions, FlashPromotion, FlashReclaim, FlashReinsertion, FlashSmallObjects,
};
use ebbtide_server::{Endurance, FlashRating};

use super::values;
use crate::error::Error;

/// Maximum number of threads of a pool.
const MAX_POOL_THREADS: u64 = 256;
/// Clients usually time out before this.
const DEMOTION_WAIT_MAX_MS: u64 = 10_000;
/// No service manager waits for a stop for longer than an hour.
const DRAIN_SECONDS_MAX: u64 = 3600;

/// Flash settings from flags; `None` selects the default of flash.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlashFlags {
    /// Each with its bytes.
    pub paths: Vec<(PathBuf, u64)>,
    threads: Option<usize>,
    admission: Option<FlashAdmission>,
    reinsertion: Option<FlashReinsertion>,
    reclaim: Option<Reclaim>,
    discard: bool,
    promotion: Option<FlashPromotion>,
    min_ttl_seconds: Option<u32>,
    demotion_wait: Option<Duration>,
    drain_limit: Option<Duration>,
    min_value_bytes: u32,
    max_idle_seconds: Option<u32>,
    small_share_percent: Option<u8>,
    small_log_percent: Option<u8>,
    small_threshold: Option<u8>,
    deletion_log: Option<PathBuf>,
    rating: FlashRating,
    /// The first flag that is about flash and names no path.
    detail: Option<String>,
}

impl FlashFlags {
    /// The paths of devices and of the deletion log.
    /// All paths, each with its flag.
    pub fn named_paths(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let devices = self.paths.iter().map(|(path, _)| ("--flash", path.as_path()));
        devices.chain(self.deletion_log.as_deref().map(|path| ("--flash-deletion-log", path)))
    }

    pub fn paths_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        self.paths.iter_mut().map(|(path, _)| path).chain(&mut self.deletion_log)
    }

    /// Takes a flag of ours. `long` is its name in the table, `name` the same for messages.
    pub fn set(&mut self, long: &str, name: &str, value: &str) -> Result<(), Error> {
        if long == "flash" {
            self.paths.push(path(name, value)?);
            return Ok(());
        }
        match long {
            "flash-admission" => {
                let admission: FlashAdmission = words(name, value)?;
                self.min_ttl_seconds = admission.min_ttl_seconds.or(self.min_ttl_seconds);
                self.admission = Some(admission);
            }
            "flash-reinsertion" => self.reinsertion = Some(words(name, value)?),
            "flash-reclaim" => {
                let FlashReclaim { order, discard } = words(name, value)?;
                self.discard |= discard;
                self.reclaim = Some(order);
            }
            "flash-discard" => self.discard = true,
            "flash-promotion" => self.promotion = Some(words(name, value)?),
            "flash-least-ttl" => {
                self.min_ttl_seconds = Some(values::number(name, value, 0..=u32::MAX.into())? as u32);
            }
            "flash-demotion-wait" => {
                let ms = values::number(name, value, 0..=DEMOTION_WAIT_MAX_MS)?;
                self.demotion_wait = Some(Duration::from_millis(ms));
            }
            "flash-drain-seconds" => {
                let seconds = values::number(name, value, 0..=DRAIN_SECONDS_MAX)?;
                self.drain_limit = Some(Duration::from_secs(seconds));
            }
            "flash-small-threshold" => {
                let small: FlashSmallObjects = words(name, value)?;
                self.small_threshold = Some(small.rewrite_threshold);
                self.small_share_percent = small.share_percent.or(self.small_share_percent);
                self.small_log_percent = small.log_percent.or(self.small_log_percent);
            }
            "flash-small-share" => {
                self.small_share_percent = Some(percent(name, value, FlashSmallObjects::SHARE_PERCENTS)?);
            }
            "flash-small-log" => {
                self.small_log_percent = Some(percent(name, value, FlashSmallObjects::LOG_PERCENTS)?);
            }
            "flash-deletion-log" | "flash-removals" => self.deletion_log = Some(value.into()),
            "flash-endurance" => {
                let (rating, spare) = without_part(value, "spare");
                spare.map_or(Ok(()), |spare| self.set_spare(name, spare))?;
                self.rating.endurance = endurance(name, &rating)?;
            }
            "flash-spare" => self.set_spare(name, value)?,
            other => unreachable!("{other} is in the table as a flag of flash"),
        }
        self.detail.get_or_insert_with(|| name.to_owned());
        Ok(())
    }

    fn set_spare(&mut self, name: &str, value: &str) -> Result<(), Error> {
        self.rating.spare_percent = values::number(name, value, 1..=900)? as f64;
        Ok(())
    }

    /// Takes an option of `-o` that has a counterpart here.
    pub fn set_extended(&mut self, option: &str, value: &str) -> Result<(), Error> {
        let name = format!("-o {option}");
        match option {
            "ext_path" => self.paths.push(path_with_bucket(&name, value)?),
            "ext_threads" => {
                self.threads = Some(values::number(&name, value, 1..=MAX_POOL_THREADS)? as usize);
                self.detail.get_or_insert(name);
            }
            "ext_item_size" => {
                self.min_value_bytes = values::number(&name, value, 0..=u32::MAX.into())? as u32;
                self.detail.get_or_insert(name);
            }
            "ext_item_age" => {
                let seconds = values::number(&name, value, 0..=u32::MAX.into())? as u32;
                // memcached's default, which is never.
                self.max_idle_seconds = Some(seconds).filter(|seconds| *seconds != u32::MAX);
                self.detail.get_or_insert(name);
            }
            "ext_low_ttl" => {
                self.min_ttl_seconds = Some(values::number(&name, value, 0..=u32::MAX.into())? as u32);
                self.detail.get_or_insert(name);
            }
            "ext_recache_rate" => {
                let rate = values::number(&name, value, 0..=u32::MAX.into())? as u32;
                self.promotion = Some(FlashPromotion::from_recache_rate(rate));
                self.detail.get_or_insert(name);
            }
            other => unreachable!("{other} is in the table as an option of flash"),
        }
        Ok(())
    }

    pub fn warning(&self) -> Option<String> {
        let name = self.detail.as_ref().filter(|_| self.paths.is_empty())?;
        Some(format!("{name} changes nothing without flash; --flash <path:size> has the cache use some"))
    }

    pub fn promotion(&self) -> FlashPromotion {
        self.promotion.unwrap_or_default()
    }

    /// `None` for the default of the library.
    pub fn demotion_wait(&self) -> Option<Duration> {
        self.demotion_wait
    }

    /// `None` for the default of the library.
    pub fn drain_limit(&self) -> Option<Duration> {
        self.drain_limit
    }

    /// After how many seconds without a read values go to flash before their memory is needed.
    pub fn max_idle_seconds(&self) -> Option<u32> {
        self.max_idle_seconds
    }

    pub fn rating(&self) -> FlashRating {
        self.rating
    }

    pub fn options(&self) -> FlashOptions {
        let defaults = FlashOptions::default();
        let mut admission = self.admission.unwrap_or_default().options;
        admission.min_value_bytes = self.min_value_bytes;
        if let Some(seconds) = self.min_ttl_seconds {
            admission.min_ttl_seconds = seconds;
        }
        let pool_threads = self.threads.unwrap_or(defaults.disk.pool_threads);
        let disk = DiskOptions { pool_threads, ..defaults.disk };
        let small_share = self.small_share_percent.map(|percent| f64::from(percent) / 100.0);
        FlashOptions {
            admission,
            disk,
            small_share: small_share.or(defaults.small_share),
            log_percent: self.small_log_percent.unwrap_or(defaults.log_percent),
            rewrite_threshold: self.small_threshold.unwrap_or(defaults.rewrite_threshold),
            reinsertion: self.reinsertion.map_or(defaults.reinsertion, |reinsertion| reinsertion.0),
            reclaim: self.reclaim.unwrap_or(defaults.reclaim),
            discard: self.discard,
            deletion_log: self.deletion_log.clone(),
            ..defaults
        }
    }
}

/// A list with commas without its part `name:value`, and that value.
fn without_part<'a>(list: &'a str, name: &str) -> (String, Option<&'a str>) {
    let value_of = |part: &'a str| part.trim().strip_prefix(name)?.strip_prefix(':');
    let value = list.split(',').skip(1).find_map(value_of);
    let rest: Vec<_> = list.split(',').enumerate().filter(|(at, part)| *at == 0 || value_of(part).is_none()).collect();
    (rest.into_iter().map(|(_, part)| part).collect::<Vec<_>>().join(","), value)
}

fn percent(name: &str, value: &str, range: RangeInclusive<u8>) -> Result<u8, Error> {
    let range = u64::from(*range.start())..=u64::from(*range.end());
    Ok(values::number(name, value, range)? as u8)
}

/// A value that the cache's own library reads.
fn words<T: FromStr<Err: Display>>(name: &str, value: &str) -> Result<T, Error> {
    value.trim().parse().map_err(|error| Error::Limit(format!("{name}: {error}")))
}

/// `path:size`; the path may have colons.
fn path(name: &str, text: &str) -> Result<(PathBuf, u64), Error> {
    match text.rsplit_once(':') {
        Some((path, size)) if !path.is_empty() => match values::bytes(size) {
            Ok(bytes) => Ok((path.into(), bytes)),
            Err(why) => Err(Error::Limit(format!("{name} {text}: {why}"))),
        },
        _ => Err(Error::Illegal(format!("{name} {text}: give a path and a size, as {name} /mnt/d1/ebbtide:100g"))),
    }
}

/// `path:size` or `path:size:bucket`, as memcached takes it: the size has a letter, and the bucket is `default`.
fn path_with_bucket(name: &str, text: &str) -> Result<(PathBuf, u64), Error> {
    let refuse = |message: &str| Err(Error::Illegal(format!("{name}={text}: {message}")));
    let is_size = |part: &str| part.starts_with(|first: char| first.is_ascii_digit());
    let text = match text.rsplit_once(':') {
        Some((rest, "default")) => rest,
        Some((rest, bucket)) if !is_size(bucket) && rest.rsplit_once(':').is_some_and(|(_, size)| is_size(size)) => {
            return refuse(&format!(
                "Unknown extstore bucket: {bucket}; objects are kept apart by size and life here, leave it out"
            ));
        }
        _ => text,
    };
    match text.rsplit_once(':') {
        Some((_, size)) if !size.ends_with(|last: char| last.is_ascii_alphabetic()) => {
            refuse("the size has no unit; write m, g, t or p behind it")
        }
        Some((file, _)) if !file.is_empty() => path(name, text),
        _ => refuse("must supply size to ext_path, ie: ext_path=/f/e:64m (M|G|T|P supported)"),
    }
}

fn endurance(name: &str, text: &str) -> Result<Endurance, Error> {
    let refuse = || {
        Error::Limit(format!(
            "{name} {text}: give what the drive is rated for: terabytes written, as 600tbw, or drive writes a day over five \
             years, as 1dwpd"
        ))
    };
    let rated = if let Some(writes) = text.strip_suffix("dwpd") {
        decimal(writes).map(Endurance::DriveWritesPerDay)
    } else {
        text.strip_suffix("tbw").and_then(decimal).map(Endurance::TerabytesWritten)
    };
    rated.filter(|rated| rated.is_something()).ok_or_else(refuse)
}

/// A number from 0 to a million, with a point or without.
fn decimal(text: &str) -> Option<f64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    text.parse().ok().filter(|number| is_plain && *number <= 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide_server::ebbtide::flash::{AdmissionPolicy, Reinsertion, WriteBudget};
    use std::num::NonZeroU32;

    const GIB: u64 = 1 << 30;

    fn set(long: &str, value: &str) -> Result<FlashFlags, Error> {
        let mut flash = FlashFlags::default();
        flash.set(long, &format!("--{long}"), value).map(|()| flash)
    }

    fn extended(option: &str, value: &str) -> Result<FlashFlags, Error> {
        let mut flash = FlashFlags::default();
        flash.set_extended(option, value).map(|()| flash)
    }

    fn one(path: &str, bytes: u64) -> Vec<(PathBuf, u64)> {
        vec![(path.into(), bytes)]
    }

    #[test]
    fn paths_are_read_in_both_spellings() {
        assert_eq!(set("flash", "/mnt/a:b:10g").unwrap().paths, one("/mnt/a:b", 10 * GIB));
        assert_eq!(set("flash", "file:2T").unwrap().paths, one("file", 2048 * GIB));
        for text in ["/mnt/e:5G", "/mnt/e:5120m", "/mnt/e:5g:default"] {
            assert_eq!(extended("ext_path", text).unwrap().paths, one("/mnt/e", 5 * GIB), "{text}");
        }
        assert_eq!(extended("ext_path", "/e:1P").unwrap().paths, one("/e", GIB << 20));
        for (text, part) in [
            ("/mnt/e", "must supply size"),
            ("/mnt/e:5", "no unit"),
            ("/mnt/e:5g:low", "Unknown extstore bucket: low"),
            ("/mnt/e:5g:compact", "leave it out"),
            (":5g", "must supply size"),
            ("/mnt/e:5x", "give a number of bytes"),
        ] {
            let refusal = extended("ext_path", text).unwrap_err().to_string();
            assert!(refusal.contains(part) && refusal.contains("ext_path"), "{refusal}");
        }
        for bad in ["", "/mnt/e", ":5g", "/mnt/e:", "/mnt/e:5x"] {
            assert!(set("flash", bad).is_err(), "{bad}");
        }
        let refusal = set("flash", "/mnt/e:16777216t").unwrap_err().to_string();
        assert!(refusal.starts_with("--flash /mnt/e:16777216t: the size is too large"), "{refusal}");
    }

    #[test]
    fn each_flash_flag_sets_its_option() {
        let options = |long: &str, value: &str| set(long, value).unwrap().options();
        let admission = options("flash-admission", "probability:0.25,budget:20m").admission;
        assert_eq!(admission.policy, AdmissionPolicy::Probability(0.25));
        assert_eq!(admission.budget, Some(WriteBudget::BytesPerSecond(20 << 20)));
        assert_eq!(options("flash-least-ttl", "77").admission.min_ttl_seconds, 77);
        assert_eq!(options("flash-small-share", "20").small_share, Some(0.2));
        assert_eq!(options("flash-small-log", "30").log_percent, 30);
        assert_eq!(options("flash-small-threshold", "3").rewrite_threshold, 3);
        assert_eq!(options("flash-reinsertion", "none").reinsertion, Reinsertion::Never);
        assert_eq!(options("flash-reclaim", "fifo").reclaim, Reclaim::Fifo);
        assert!(options("flash-discard", "").discard);
        assert_eq!(options("flash-removals", "/r").deletion_log, Some("/r".into()));
        assert_eq!(extended("ext_threads", "3").unwrap().options().disk.pool_threads, 3);
        let admission = options("flash-admission", "history:1m,min-ttl:60,budget:20m").admission;
        assert_eq!(admission.budget, Some(WriteBudget::BytesPerSecond(20 << 20)));
        assert!(matches!(admission.policy, AdmissionPolicy::History { .. }));
        assert_eq!(admission.min_ttl_seconds, 60);
        let reclaim = options("flash-reclaim", "fifo,discard");
        assert_eq!((reclaim.reclaim, reclaim.discard), (Reclaim::Fifo, true));
        let small = options("flash-small-threshold", "4,share:20,log:30");
        assert_eq!((small.rewrite_threshold, small.small_share, small.log_percent), (4, Some(0.2), 30));
        let (unset, defaults) = (FlashFlags::default().options(), FlashOptions::default());
        assert_eq!((unset.admission, unset.small_share), (defaults.admission, defaults.small_share));
        assert_eq!((unset.reinsertion, unset.reclaim), (defaults.reinsertion, defaults.reclaim));
        assert_eq!((unset.log_percent, unset.rewrite_threshold), (defaults.log_percent, defaults.rewrite_threshold));
        assert!(!unset.discard);
        for (long, bad) in [
            ("flash-admission", "some"),
            ("flash-reinsertion", "hits:4"),
            ("flash-reclaim", "mru"),
            ("flash-least-ttl", "x"),
            ("flash-small-share", "100"),
            ("flash-small-log", "51"),
            ("flash-small-threshold", "0"),
            ("flash-small-threshold", "256"),
            ("flash-endurance", "600"),
            ("flash-endurance", "0tbw"),
            ("flash-spare", "0"),
            ("flash-admission", "all,min-ttl:x"),
            ("flash-admission", "all,min-ttl:1,min-ttl:2"),
            ("flash-reclaim", "discard"),
            ("flash-reclaim", "lru,trim"),
            ("flash-small-threshold", "2,share:100"),
            ("flash-small-threshold", "2,log:51"),
            ("flash-small-threshold", "share:20"),
            ("flash-endurance", "1dwpd,spare:0"),
            ("flash-endurance", "spare:7"),
        ] {
            assert!(set(long, bad).is_err(), "{long} {bad}");
        }
        assert!(extended("ext_threads", "0").is_err());
        assert_eq!(extended("ext_item_size", "512").unwrap().options().admission.min_value_bytes, 512);
        assert_eq!(extended("ext_low_ttl", "60").unwrap().options().admission.min_ttl_seconds, 60);
        assert_eq!(extended("ext_item_age", "300").unwrap().max_idle_seconds(), Some(300));
        assert_eq!(extended("ext_item_age", "4294967295").unwrap().max_idle_seconds(), None);
    }

    #[test]
    fn promotion_is_read_in_both_spellings() {
        let thousand = FlashPromotion::OneIn(NonZeroU32::new(1000).unwrap());
        assert_eq!(set("flash-promotion", "second-hit").unwrap().promotion(), FlashPromotion::SecondHit);
        assert_eq!(set("flash-promotion", "one-in:1000").unwrap().promotion(), thousand);
        assert_eq!(extended("ext_recache_rate", "1000").unwrap().promotion(), thousand);
        assert_eq!(extended("ext_recache_rate", "0").unwrap().promotion(), FlashPromotion::Never);
        assert_eq!(FlashFlags::default().promotion(), FlashPromotion::Auto);
        assert!(set("flash-promotion", "sometimes").is_err() && extended("ext_recache_rate", "-1").is_err());
    }

    #[test]
    fn the_wait_for_a_demotion_is_read() {
        let wait = |value: &str| set("flash-demotion-wait", value).map(|flash| flash.demotion_wait());
        assert_eq!(wait("0").unwrap(), Some(Duration::ZERO));
        assert_eq!(wait("250").unwrap(), Some(Duration::from_millis(250)));
        assert_eq!(FlashFlags::default().demotion_wait(), None);
        assert!(wait("10001").is_err() && wait("soon").is_err());
    }

    #[test]
    fn the_time_of_a_drain_is_read() {
        let limit = |value: &str| set("flash-drain-seconds", value).map(|flash| flash.drain_limit());
        assert_eq!(limit("0").unwrap(), Some(Duration::ZERO));
        assert_eq!(limit("3600").unwrap(), Some(Duration::from_secs(3600)));
        assert_eq!(FlashFlags::default().drain_limit(), None);
        assert!(limit("3601").is_err() && limit("1m").is_err());
    }

    #[test]
    fn the_drives_rating_is_read() {
        let rating = |long: &str, value: &str| set(long, value).unwrap().rating();
        assert_eq!(rating("flash-endurance", "600tbw").endurance, Endurance::TerabytesWritten(600.0));
        assert_eq!(rating("flash-endurance", "0.3dwpd").endurance, Endurance::DriveWritesPerDay(0.3));
        assert_eq!(rating("flash-spare", "28").spare_percent, 28.0);
    }

    #[test]
    fn flash_flags_without_flash_give_a_warning() {
        let mut flash = extended("ext_threads", "3").unwrap();
        assert!(flash.warning().unwrap().contains("-o ext_threads changes nothing"));
        flash.set("flash", "--flash", "/f:1g").unwrap();
        assert_eq!(flash.warning(), None);
    }
}
