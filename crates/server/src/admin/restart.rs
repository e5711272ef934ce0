//! What `/metrics` says of the memory file and the memory monitor.

use ebbtide::{Cache, MemoryStart};

use super::metrics::MetricsPage;

pub(super) fn metrics(page: &mut MetricsPage, cache: &Cache) {
    if let Some(start) = cache.memory_start() {
        let objects = match start {
            MemoryStart::Warm { objects, .. } => *objects,
            MemoryStart::Cold { .. } => 0,
        };
        let help = "Objects that the memory file gave back at the start.";
        page.plain_gauge("ebbtide_memory_file_restored_objects", help, objects as f64);
    }
    if let Some(monitor) = cache.memory_monitor() {
        let gauges = [
            (
                "ebbtide_memory_monitor_configured_bytes",
                "Memory that the monitor may not exceed.",
                monitor.configured_bytes,
            ),
            ("ebbtide_memory_monitor_free_bytes", "Free memory of the host or its tightest group.", monitor.free_bytes),
            ("ebbtide_memory_monitor_resident_bytes", "Resident memory of the process.", monitor.resident_bytes),
        ];
        gauges.into_iter().for_each(|(name, help, bytes)| page.plain_gauge(name, help, bytes as f64));
        let stall = monitor.stall_percent.unwrap_or(0.0);
        page.plain_gauge("ebbtide_memory_monitor_stall_percent", "Time in which tasks waited for memory (PSI).", stall);
        let counters = [
            ("ebbtide_memory_monitor_shrinks_total", "Steps that lowered the memory limit.", monitor.shrinks),
            ("ebbtide_memory_monitor_grows_total", "Steps that raised the memory limit.", monitor.grows),
            ("ebbtide_memory_monitor_refused_total", "Limits that the cache refused.", monitor.refused),
            ("ebbtide_memory_monitor_unreadable_total", "Readings that failed.", monitor.unreadable),
        ];
        counters.into_iter().for_each(|(name, help, count)| page.plain_counter(name, help, count));
    }
}
