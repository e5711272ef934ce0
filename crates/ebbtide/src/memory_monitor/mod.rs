//! Memory monitor: gives memory of the cache back while the host runs short, and takes it again.
//!
//! A thread reads the memory of the host, of the control groups and of the process once a second, and asks
//! [`pressure::decide`] for the next limit. Between two readings it only sleeps. It holds the cache weakly and ends
//! with it.
//!
//! The limit that `Cache::resize` or the builder sets is the configured memory: the monitor never exceeds it.

mod host;

use ebbtide_control::pressure::{self, Memory, PressureDecision, Reading};
use host::Host;
use std::cmp::Ordering;
use std::fmt;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

pub use ebbtide_control::pressure::{InvalidPressure, Mode as PressureMode, PressureOptions, Reason as MonitorReason};

/// Time between two readings. The kernel averages stalls over ten seconds, and a step takes effect within one.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

/// Readings and actions of the monitor.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryMonitorStats {
    pub options: PressureOptions,
    /// Memory that the cache was given, in bytes; its limit is at most this.
    pub configured_bytes: u64,
    /// Free memory of the host or of the tightest control group, in bytes, at the last reading.
    pub free_bytes: u64,
    /// Resident memory of the process, in bytes, at the last reading.
    pub resident_bytes: u64,
    /// Percent of the time in which some task waited for memory (PSI `some avg10`), where the kernel tells it.
    pub stall_percent: Option<f64>,
    pub shrinks: u64,
    pub grows: u64,
    /// Readings that failed: the kernel told nothing, and the limit stayed.
    pub unreadable: u64,
    /// Steps that moved nothing: pools and flash need their present memory.
    pub refused: u64,
    /// The last step, also one that moved nothing.
    pub last_step: Option<MonitorStep>,
}

/// A step of the monitor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MonitorStep {
    /// The memory limit before it, in bytes.
    pub from_bytes: u64,
    pub wanted_bytes: u64,
    /// The limit after it: less than wanted is moved where pools and flash need more.
    pub reached_bytes: u64,
    pub reason: MonitorReason,
}

impl fmt::Display for MonitorStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let Self { from_bytes, wanted_bytes, reached_bytes, reason } = *self;
        let (from, to, wanted) = (mib(from_bytes), mib(reached_bytes), mib(wanted_bytes));
        match reached_bytes.cmp(&from_bytes) {
            Ordering::Less => write!(f, "the cache shrinks from {from:.1} to {to:.1} MiB")?,
            Ordering::Equal => write!(f, "the cache stays at {from:.1} MiB")?,
            Ordering::Greater => write!(f, "the cache grows from {from:.1} to {to:.1} MiB")?,
        }
        if reached_bytes > wanted_bytes {
            write!(f, " of {wanted:.1} wanted, the least that its pools and flash need")?;
        } else if reached_bytes < wanted_bytes {
            write!(f, " of {wanted:.1} wanted, which the file system or the address space refuses")?;
        }
        write!(f, ": {reason}")
    }
}

/// The monitor of one cache.
#[derive(Debug)]
pub(crate) struct MemoryMonitor {
    host: Host,
    stats: Mutex<MemoryMonitorStats>,
}

impl MemoryMonitor {
    /// # Errors
    /// The option that does not fit.
    pub fn new(options: PressureOptions, configured_bytes: u64) -> Result<Self, InvalidPressure> {
        options.check(configured_bytes)?;
        let stats = MemoryMonitorStats {
            options,
            configured_bytes,
            free_bytes: 0,
            resident_bytes: 0,
            stall_percent: None,
            shrinks: 0,
            grows: 0,
            unreadable: 0,
            refused: 0,
            last_step: None,
        };
        Ok(Self { host: Host::this(), stats: Mutex::new(stats) })
    }

    fn lock(&self) -> MutexGuard<'_, MemoryMonitorStats> {
        self.stats.lock().expect("no holder of the lock panics")
    }

    pub fn stats(&self) -> MemoryMonitorStats {
        self.lock().clone()
    }

    /// The configured memory from now on. The limit is the caller's to set.
    pub fn configure(&self, configured_bytes: u64) {
        self.lock().configured_bytes = configured_bytes;
    }

    /// Reads the host and moves the limit of a cache by one step, if that is due. `resize` answers the limit that it
    /// has reached, `None` if the limit stays.
    pub fn run(&self, limit_bytes: u64, used_bytes: u64, resize: impl FnOnce(u64) -> Option<u64>) {
        match self.host.read() {
            Some(reading) => self.step(reading, limit_bytes, used_bytes, resize),
            None => self.lock().unreadable += 1,
        }
    }

    fn step(&self, reading: Reading, limit_bytes: u64, used_bytes: u64, resize: impl FnOnce(u64) -> Option<u64>) {
        let mut stats = self.lock();
        (stats.free_bytes, stats.resident_bytes) = (reading.free_bytes, reading.resident_bytes);
        stats.stall_percent = reading.stall_percent;
        let memory = Memory { configured_bytes: stats.configured_bytes, limit_bytes, used_bytes };
        let (shrinks, wanted_bytes, reason) = match pressure::decide(&stats.options, memory, reading) {
            PressureDecision::Keep => return,
            PressureDecision::Shrink { to_bytes, reason } => (true, to_bytes, reason),
            PressureDecision::Grow { to_bytes, reason } => (false, to_bytes, reason),
        };
        let reached = resize(wanted_bytes);
        stats.shrinks += u64::from(shrinks && reached.is_some());
        stats.grows += u64::from(!shrinks && reached.is_some());
        stats.refused += u64::from(reached.is_none());
        let reached_bytes = reached.unwrap_or(limit_bytes);
        stats.last_step = Some(MonitorStep { from_bytes: limit_bytes, wanted_bytes, reached_bytes, reason });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_ends_early_says_so() {
        const MIB: u64 = 1 << 20;
        let options = PressureOptions::new(PressureMode::Free, 100 * MIB, 200 * MIB);
        let monitor = MemoryMonitor::new(options, 1000 * MIB).unwrap();
        let reading = Reading { free_bytes: 50 * MIB, ..Reading::default() };
        monitor.step(reading, 1000 * MIB, 1000 * MIB, |bytes| {
            assert_eq!(bytes, 950 * MIB);
            Some(962 * MIB)
        });
        let step = monitor.stats().last_step.unwrap().to_string();
        assert!(step.contains("from 1000.0 to 962.0 MiB of 950.0 wanted"), "{step}");
        monitor.step(reading, 962 * MIB, 962 * MIB, |_| None);
        let stats = monitor.stats();
        assert_eq!((stats.shrinks, stats.refused), (1, 1));
        let step = stats.last_step.unwrap();
        assert_eq!((step.from_bytes, step.reached_bytes), (962 * MIB, 962 * MIB));
        let text =
            "the cache stays at 962.0 MiB of 912.0 wanted, the least that its pools and flash need: 50.0 MiB are free";
        assert!(step.to_string().starts_with(text), "{step}");
        let reading = Reading { free_bytes: 400 * MIB, ..Reading::default() };
        monitor.step(reading, 912 * MIB, 912 * MIB, |_| None);
        let step = monitor.stats().last_step.unwrap().to_string();
        assert!(step.starts_with("the cache stays at 912.0 MiB of 962.0 wanted, which the file system"), "{step}");
    }
}
