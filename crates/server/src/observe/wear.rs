//! Wear of the flash drive: the bytes written to it against the endurance that it is rated for.
//!
//! A drive moves live data before it erases a block, so it writes more than it is given. A drive that reports its own
//! writes gives the factor. For others it is estimated from the pattern of writes:
//!
//! ```text
//! regions, log        sequential, overwritten whole     1
//! pages of sets       random, 4 KiB each                `page_amplification` of the spare space over space in use
//! ```
//! For most mixes the estimate is above a simulated drive: space that is written in sequence leaves more of the spare
//! space to the pages. Where pages are few, regions are moved with them, and the drive can write a little more.

use ebbtide::flash::{DriveLog, page_amplification};
use std::collections::VecDeque;
use std::time::Duration;

/// Samples that are kept, one per interval: "now" is the last hour, or the time since the start if that is less.
const MAX_SAMPLES: usize = 61;
const SAMPLE_INTERVAL: Duration = Duration::from_secs(60);
const DAY_SECONDS: f64 = 86_400.0;
/// Period of a rating in drive writes per day, in days.
const RATED_DAYS: f64 = 5.0 * 365.0;
const TERABYTE: f64 = 1e12;
/// Minimum bytes given to the drives between two samples for a measured amplification: drives move data later.
const MIN_MEASURED_BYTES: u64 = 1 << 30;

/// Rated endurance and spare space of the drive below flash, for a projection of its life.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlashRating {
    /// (`--flash-endurance`) Default: one drive write per day, usually the lowest rating of drives for data centres.
    pub endurance: Endurance,
    /// (`spare` of `--flash-endurance`) Space of the drive that is never written, including the drive's own reserve,
    /// in percent of the bytes that flash uses. Default: 7, the reserve of a drive that is used completely.
    pub spare_percent: f64,
}

/// Rated writes to a drive in its life.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Endurance {
    /// Of 10^12 bytes.
    TerabytesWritten(f64),
    /// For five years, relative to the bytes that flash uses.
    DriveWritesPerDay(f64),
}

impl Default for FlashRating {
    fn default() -> Self {
        Self { endurance: Endurance::DriveWritesPerDay(1.0), spare_percent: 7.0 }
    }
}

impl Endurance {
    /// Whether a drive with it can be written at all.
    pub fn is_something(self) -> bool {
        self.bytes(1) > 0.0
    }

    fn bytes(self, capacity: u64) -> f64 {
        match self {
            Self::TerabytesWritten(terabytes) => terabytes * TERABYTE,
            Self::DriveWritesPerDay(writes) => writes * capacity as f64 * RATED_DAYS,
        }
    }
}

impl FlashRating {
    /// Bytes that a drive writes for each byte of a page.
    fn page_amplification(self) -> f64 {
        page_amplification(self.spare_percent / 100.0)
    }
}

/// Bytes given to a drive up to a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriveWrites {
    /// In regions and segments.
    pub in_sequence: u64,
    /// In pages here and there.
    pub in_pages: u64,
}

/// Samples of written bytes over time.
#[derive(Debug, Default)]
pub struct Wear {
    /// Oldest first.
    samples: VecDeque<WearSample>,
    latest: Option<(Duration, DriveWrites)>,
}

#[derive(Clone, Copy, Debug)]
struct WearSample {
    uptime: Duration,
    drive_writes: DriveWrites,
    drives: Option<DriveLog>,
}

/// Projection of wear at the rate of the last hour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WearRate {
    /// Bytes given to the drive.
    pub bytes_per_day: f64,
    pub drive_writes_per_day: f64,
    /// Bytes that the drive writes for each byte given to it.
    pub device_amplification: f64,
    /// Whether `device_amplification` is measured by the drive; otherwise it is estimated.
    pub is_measured: bool,
    /// Part of its life that the drive reports as used; `None` if it reports none.
    pub life_used: Option<f64>,
    /// Time until the drive reaches its rated writes, in seconds; infinite without writes. A drive that does not report
    /// `life_used` is assumed to be new.
    pub life_seconds: f64,
}

impl Wear {
    /// Whether it is time to ask the drives again.
    pub fn is_due(&self, uptime: Duration) -> bool {
        self.samples.back().is_none_or(|last| uptime.saturating_sub(last.uptime) >= SAMPLE_INTERVAL)
    }

    /// Adds the bytes written up to now, and, if a sample was due, the SMART data of the drives. `uptime`: of a
    /// monotonic clock.
    pub fn observe(&mut self, uptime: Duration, drive_writes: DriveWrites, drives: Option<DriveLog>) {
        if self.is_due(uptime) {
            if self.samples.len() == MAX_SAMPLES {
                self.samples.pop_front();
            }
            self.samples.push_back(WearSample { uptime, drive_writes, drives });
        }
        self.latest = Some((uptime, drive_writes));
    }

    pub fn wear_rate(&self, capacity: u64, rating: FlashRating) -> WearRate {
        let (in_sequence, in_pages) = self.per_day();
        let bytes_per_day = in_sequence + in_pages;
        let measured = self.measured_amplification();
        let estimated = || match bytes_per_day {
            0.0 => 1.0,
            bytes => (in_sequence + in_pages * rating.page_amplification()) / bytes,
        };
        let device_amplification = measured.unwrap_or_else(estimated);
        let life_used = self.samples.back().and_then(|look| look.drives).map(|drives| drives.life_used);
        let left = rating.endurance.bytes(capacity) * (1.0 - life_used.unwrap_or(0.0)).max(0.0);
        WearRate {
            bytes_per_day,
            drive_writes_per_day: bytes_per_day / capacity as f64,
            device_amplification,
            is_measured: measured.is_some(),
            life_used,
            life_seconds: match bytes_per_day * device_amplification {
                0.0 => f64::INFINITY,
                on_the_drive => left / on_the_drive * DAY_SECONDS,
            },
        }
    }

    /// Bytes that the drives wrote for each byte given to them, in the last hour.
    fn measured_amplification(&self) -> Option<f64> {
        let (before, now) = (self.samples.front()?.drives?, self.samples.back()?.drives?);
        let drive_writes = now
            .given_bytes
            .checked_sub(before.given_bytes)
            .filter(|drive_writes| *drive_writes >= MIN_MEASURED_BYTES)?;
        let written = now.written_bytes?.checked_sub(before.written_bytes?)?;
        Some(written as f64 / drive_writes as f64)
    }

    /// Bytes a day, in sequence and in pages.
    fn per_day(&self) -> (f64, f64) {
        let (Some(first), Some((now, drive_writes))) = (self.samples.front(), self.latest) else {
            return (0.0, 0.0);
        };
        let (seconds, before) = (now.saturating_sub(first.uptime).as_secs_f64(), first.drive_writes);
        let rate = |now: u64, before: u64| match seconds {
            0.0 => 0.0,
            seconds => now.saturating_sub(before) as f64 / seconds * DAY_SECONDS,
        };
        (rate(drive_writes.in_sequence, before.in_sequence), rate(drive_writes.in_pages, before.in_pages))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: u64 = 1_000_000_000_000;

    /// The wear after `seconds` seconds of constant rates of bytes per second.
    fn after(seconds: u64, in_sequence: u64, in_pages: u64) -> Wear {
        let mut wear = Wear::default();
        for second in 0..=seconds {
            let drive_writes = DriveWrites { in_sequence: in_sequence * second, in_pages: in_pages * second };
            wear.observe(Duration::from_secs(second), drive_writes, None);
        }
        wear
    }

    fn is_near(found: f64, expected: f64) -> bool {
        (found - expected).abs() <= expected.abs() * 1e-9
    }

    #[test]
    fn the_pace_is_that_of_the_last_hour() {
        let mut wear = after(7200, 1_000_000, 0);
        let total = 7200 * 1_000_000;
        let wear_rate = |wear: &Wear| wear.wear_rate(CAPACITY, FlashRating::default()).bytes_per_day;
        assert!(is_near(wear_rate(&wear), 86_400e6));
        for second in 7201..=10_800 {
            wear.observe(Duration::from_secs(second), DriveWrites { in_sequence: total, in_pages: 0 }, None);
        }
        assert_eq!(wear_rate(&wear), 0.0, "an hour in which nothing was written");
        assert!(wear.samples.len() == MAX_SAMPLES);
        assert!(is_near(wear_rate(&after(5, 1_000_000, 0)), 86_400e6), "soon after the start");
        assert_eq!(wear_rate(&Wear::default()), 0.0);
    }

    #[test]
    fn less_spare_space_amplifies_page_writes_more() {
        let wear = after(100, 1000, 1000);
        let amplification = |spare_percent| {
            let rating = FlashRating { spare_percent, ..FlashRating::default() };
            wear.wear_rate(CAPACITY, rating).device_amplification
        };
        assert!(is_near(amplification(50.0), (1.0 + page_amplification(0.5)) / 2.0));
        assert!((amplification(900.0) - 1.0).abs() < 1e-4);
        assert!(amplification(7.0) > amplification(28.0) && amplification(28.0) > amplification(50.0));
    }

    #[test]
    fn life_follows_from_rating_and_write_rate() {
        let in_sequence = after(100, CAPACITY / 86_400, 0);
        let years = |wear: &Wear, endurance| {
            let rating = FlashRating { endurance, spare_percent: 50.0 };
            wear.wear_rate(CAPACITY, rating).life_seconds / DAY_SECONDS / 365.0
        };
        let one = Endurance::DriveWritesPerDay(1.0);
        assert!((years(&in_sequence, one) - 5.0).abs() < 0.01, "one drive write a day, rated for one");
        assert!((years(&in_sequence, Endurance::TerabytesWritten(365.0)) - 1.0).abs() < 0.01);
        let in_pages = after(100, 0, CAPACITY / 86_400);
        assert!((years(&in_pages, one) - 5.0 / page_amplification(0.5)).abs() < 0.01);
        assert_eq!(years(&Wear::default(), one), f64::INFINITY);
    }

    /// The wear rate by logs of drives after `minutes` minutes, with a GB of pages written per minute.
    fn told(minutes: u64, log: impl Fn(u64) -> Option<DriveLog>) -> WearRate {
        let mut wear = Wear::default();
        for minute in 0..=minutes {
            let uptime = SAMPLE_INTERVAL * minute as u32;
            assert!(wear.is_due(uptime));
            wear.observe(uptime, DriveWrites { in_sequence: 0, in_pages: minute * 1_000_000_000 }, log(minute));
            assert!(!wear.is_due(uptime + SAMPLE_INTERVAL / 2));
        }
        wear.wear_rate(CAPACITY, FlashRating::default())
    }

    #[test]
    fn the_drive_log_overrides_the_estimate() {
        let log = |minute: u64| DriveLog {
            life_used: 0.25,
            given_bytes: 5_000_000 + minute * 1_000_000_000,
            written_bytes: Some(7_000_000 + minute * 1_500_000_000),
        };
        let estimated = told(30, |_| None);
        let measured = told(30, |minute| Some(log(minute)));
        assert!(!estimated.is_measured && estimated.life_used.is_none());
        assert!(measured.is_measured && measured.life_used == Some(0.25));
        assert!(is_near(measured.device_amplification, 1.5));
        let ratio = measured.life_seconds / estimated.life_seconds;
        assert!(is_near(ratio, 0.75 * estimated.device_amplification / 1.5), "{ratio}");
        assert!(!told(1, |minute| Some(log(minute))).is_measured, "less than a GiB says nothing");
        let silent = told(30, |minute| Some(DriveLog { written_bytes: None, ..log(minute) }));
        assert!(!silent.is_measured && silent.life_used == Some(0.25));
        assert_eq!(silent.device_amplification, estimated.device_amplification);
        let spent = told(30, |minute| Some(DriveLog { life_used: 1.2, ..log(minute) }));
        assert_eq!(spent.life_seconds, 0.0);
        let changed = told(30, |minute| Some(log(30 - minute)));
        assert!(!changed.is_measured, "counters that go back are those of other drives");
    }
}
