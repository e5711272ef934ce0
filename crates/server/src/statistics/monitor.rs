//! Readings and steps of the memory monitor.

use ebbtide::memcached::MemoryMonitorStats;

use super::Metric::{Counter, Gauge};
use super::{Row, row};

#[rustfmt::skip]
pub const MONITOR: &[Row<MemoryMonitorStats>] = &[
    row("", Gauge("ebbtide_memory_monitor_configured_bytes", "Memory that the monitor may not exceed."), "", |m| m.configured_bytes.into()),
    row("", Gauge("ebbtide_memory_monitor_free_bytes", "Free memory of the host or its tightest group."), "", |m| m.free_bytes.into()),
    row("", Gauge("ebbtide_memory_monitor_resident_bytes", "Resident memory of the process."), "", |m| m.resident_bytes.into()),
    row("", Gauge("ebbtide_memory_monitor_wanted_bytes", "Memory limit that the last step aimed at."), "", |m| m.last_step.map_or(0, |step| step.wanted_bytes).into()),
    row("", Gauge("ebbtide_memory_monitor_reached_bytes", "Memory limit that the last step reached."), "", |m| m.last_step.map_or(0, |step| step.reached_bytes).into()),
    row("", Gauge("ebbtide_memory_monitor_stall_percent", "Time in which tasks waited for memory (PSI)."), "", |m| m.stall_percent.unwrap_or(0.0).into()),
    row("", Counter("ebbtide_memory_monitor_shrinks_total", "Steps that lowered the memory limit."), "", |m| m.shrinks.into()),
    row("", Counter("ebbtide_memory_monitor_grows_total", "Steps that increased the memory limit."), "", |m| m.grows.into()),
    row("", Counter("ebbtide_memory_monitor_refused_total", "Steps that moved nothing."), "", |m| m.refused.into()),
    row("", Counter("ebbtide_memory_monitor_unreadable_total", "Readings that failed."), "", |m| m.unreadable.into()),
];
