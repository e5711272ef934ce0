//! A reading of all counters.

use std::time::Duration;

use ebbtide::flash::{DriveLog, Health};
use ebbtide::memcached::{CounterSnapshot, MonitorStep};

use super::histogram::LatencyHistogram;
use super::wear::DriveWrites;
use crate::counters::CommandTotals;
use crate::pools::PoolTotals;

/// All counters at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub time_unix_ms: u64,
    /// Time since the start of the server, by a monotonic clock.
    pub uptime: Duration,
    pub totals: CommandTotals,
    pub cache: CounterSnapshot,
    /// The counts of each pool, with its name.
    pub pools: Vec<(String, PoolTotals)>,
    pub connections: u64,
    pub connections_limit: u64,
    pub rejected: u64,
    pub listen_disabled: u64,
    /// Segments for which the file system of the memory file had no memory.
    pub memory_file_refusals: u64,
    /// By the number of the command.
    pub latencies: Vec<LatencyHistogram>,
    /// Where there is flash.
    pub flash: Option<FlashSnapshot>,
    /// The last step of the memory monitor.
    pub monitor_step: Option<MonitorStep>,
}

/// Readings of flash.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlashSnapshot {
    pub drive_writes: DriveWrites,
    pub health: Health,
    /// Evicted objects that were lost because the device was behind.
    pub dropped_behind: u64,
    /// Objects that left flash to make space.
    pub evicted: u64,
    /// SMART data of the drives, if they were read.
    pub drives: Option<DriveLog>,
}
