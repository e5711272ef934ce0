//! The tables of a report: commands, hot keys, reasons and pools; memory by prefix, TTL and size, the largest objects.

use super::admin::{AdminReport, CommandLatency, HotKey, LargeObject, PrefixUse, SizeUse, TtlUse};
use super::measures::{OperationRate, PoolUse, TopReport};
use super::table::{Row, Table, TableCell};
use crate::format::{UNKNOWN, bytes, count, duration, micros, percent, rate};

fn per_second(value: Option<f64>) -> TableCell {
    TableCell::new(value, rate(value))
}

fn number(value: Option<u64>) -> TableCell {
    TableCell::new(value.map(|value| value as f64), count(value))
}

fn size(value: Option<u64>) -> TableCell {
    TableCell::new(value.map(|value| value as f64), bytes(value))
}

fn share(value: Option<f64>) -> TableCell {
    TableCell::new(value, percent(value))
}

fn time(value: Option<f64>) -> TableCell {
    TableCell::new(value, micros(value))
}

fn seconds(value: Option<u64>) -> TableCell {
    TableCell::new(value.map(|value| value as f64), duration(value))
}

/// Commands that clients have sent, with their latencies.
pub fn commands(report: &TopReport) -> Table {
    let latencies = &report.admin.latency_us;
    let used = report.operations.named().into_iter().filter(|(_, operation)| operation.is_used());
    let mut rows: Vec<Row> =
        used.map(|(name, operation)| command_row(name, operation, latencies.get(name).copied())).collect();
    for (name, latency) in latencies.iter().filter(|(_, latency)| latency.count > 0) {
        if rows.iter().all(|row| row.name != *name) {
            rows.push(command_row(name, &OperationRate::default(), Some(*latency)));
        }
    }
    Table {
        name: "command",
        columns: vec!["per second", "p99", "hit ratio", "p50", "in all", "p99.9", "max"],
        rows,
        empty: "No command was sent yet.".to_owned(),
    }
}

fn command_row(name: &str, operation: &OperationRate, latency: Option<CommandLatency>) -> Row {
    let of = |field: fn(&CommandLatency) -> Option<f64>| time(latency.as_ref().and_then(field));
    let cells = vec![
        per_second(operation.per_second),
        of(|latency| latency.p99),
        share(operation.hit_ratio),
        of(|latency| latency.p50),
        number(operation.total),
        of(|latency| latency.p999),
        of(|latency| latency.max),
    ];
    Row { name: name.to_owned(), cells }
}

/// The most requested keys.
pub fn hot_keys(report: &TopReport) -> Table {
    let admin = &report.admin;
    let row = |key: &HotKey| Row {
        name: key.key.clone(),
        cells: vec![
            per_second(Some(key.per_second)),
            share(Some(key.share)),
            share(key.hit_ratio),
            size(key.bytes),
            seconds(key.ttl_seconds),
        ],
    };
    Table {
        name: "key",
        columns: vec!["per second", "share", "hit ratio", "size", "TTL left"],
        rows: admin.hot_keys.iter().map(row).collect(),
        empty: nothing(admin, "hot keys", "No key stands out."),
    }
}

/// Why objects left.
pub fn reasons(report: &TopReport) -> Table {
    let rows = report.removals.iter().filter(|removal| removal.total > 0);
    let rows = rows.map(|removal| Row {
        name: removal.reason.to_owned(),
        cells: vec![per_second(removal.per_second), number(Some(removal.total))],
    });
    Table {
        name: "reason",
        columns: vec!["per second", "in all"],
        rows: rows.collect(),
        empty: "Nothing was evicted or refused, and nothing has expired.".to_owned(),
    }
}

/// Whose objects use the memory, and whose leave it.
pub fn prefixes(report: &TopReport) -> Table {
    let row = |prefix: &PrefixUse| Row {
        name: prefix.prefix.clone(),
        cells: vec![
            per_second(Some(prefix.evictions_per_second)),
            size(Some(prefix.bytes as u64)),
            share(prefix.evicted_unread_share),
            seconds(prefix.evicted_idle_seconds.map(|seconds| seconds as u64)),
            seconds(prefix.evicted_age_seconds.map(|seconds| seconds as u64)),
            share(prefix.memory_share),
            share(prefix.unread_share),
            per_second(Some(prefix.gets_per_second)),
            share(prefix.hit_ratio),
            per_second(Some(prefix.sets_per_second)),
        ],
    };
    Table {
        name: "prefix",
        columns: vec![
            "evicted",
            "memory",
            "evicted unread",
            "idle",
            "age",
            "share",
            "unread",
            "gets",
            "hit ratio",
            "sets",
        ],
        rows: report.admin.prefixes.iter().map(row).collect(),
        empty: nothing(&report.admin, "prefixes", "Nothing is stored."),
    }
}

/// The text instead of rows that the admin HTTP hides or does not have.
fn nothing(admin: &AdminReport, what: &str, otherwise: &str) -> String {
    match (&admin.missing, &admin.keys_hidden) {
        (Some(reason), _) => format!("No {what}: {reason}."),
        (None, Some(reason)) => format!("Keys are not told: {reason}."),
        (None, None) => otherwise.to_owned(),
    }
}

/// Memory by TTL, the range of each bucket.
pub fn ttls(report: &TopReport) -> Table {
    let row = |ttl: &TtlUse| Row {
        name: match ttl.ttl_seconds_max {
            None => "never".to_owned(),
            Some(max) if max == ttl.ttl_seconds_min => duration(Some(max)),
            Some(max) => format!("{} to {}", duration(Some(ttl.ttl_seconds_min)), duration(Some(max))),
        },
        cells: vec![
            size(Some(ttl.segment_bytes)),
            number(Some(ttl.items)),
            share((ttl.segment_bytes > 0).then(|| ttl.live_bytes as f64 / ttl.segment_bytes as f64)),
        ],
    };
    Table {
        name: "TTL",
        columns: vec!["memory", "items", "live"],
        rows: report.admin.ttl_buckets.iter().map(row).collect(),
        empty: nothing(&report.admin, "memory by TTL", "Nothing is stored."),
    }
}

/// Memory by size, an octave a row.
pub fn sizes(report: &TopReport) -> Table {
    let row = |class: &SizeUse| Row {
        name: format!("{} to {}", bytes(Some(class.bytes_min)), bytes(Some(class.bytes_max.saturating_add(1)))),
        cells: vec![size(Some(class.bytes as u64)), number(Some(class.items as u64)), share(class.unread_share)],
    };
    Table {
        name: "size",
        columns: vec!["memory", "items", "unread"],
        rows: report.admin.sizes.iter().map(row).collect(),
        empty: nothing(&report.admin, "memory by size", "Nothing is stored."),
    }
}

/// The largest objects.
pub fn largest(report: &TopReport) -> Table {
    let row = |object: &LargeObject| Row {
        name: object.key.clone(),
        cells: vec![
            size(Some(object.bytes)),
            share(object.hit_ratio),
            seconds(object.ttl_seconds),
            seconds(Some(object.idle_seconds)),
        ],
    };
    Table {
        name: "largest",
        columns: vec!["size", "hit ratio", "TTL left", "last use"],
        rows: report.admin.largest.iter().map(row).collect(),
        empty: nothing(&report.admin, "largest objects", "Nothing is stored."),
    }
}

/// Each of several pools.
pub fn pools(report: &TopReport) -> Table {
    let row = |pool: &PoolUse| Row {
        name: pool.name.clone(),
        cells: vec![
            per_second(pool.gets.per_second),
            share(pool.gets.hit_ratio),
            size(pool.used_bytes),
            size(pool.limit_bytes),
            number(pool.items),
            per_second(pool.evictions.per_second),
        ],
    };
    Table {
        name: "pool",
        columns: vec!["gets", "hit ratio", "used", "of", "items", "evicted"],
        rows: report.pools.iter().map(row).collect(),
        empty: match report.server.starts_with("ebbtide") {
            true => "The server has one pool; --pool NAME:prefix=PREFIX adds one.".to_owned(),
            false => format!("Pools: {UNKNOWN}. Only Ebbtide has them."),
        },
    }
}
