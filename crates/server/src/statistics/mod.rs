//! Statistics as tables: of the server's counters, of the cache's, of pools, flash and its wear, of the memory file and
//! the memory monitor, and of the last minute.
//!
//! A row is one number: its name in `stats ebbtide`, its metric, its path in `/api/overview`, and how it is read. All
//! three iterate the tables, so a new counter is one row. The order of rows is the order in `stats ebbtide` and in
//! `/metrics`. memcached's own names, in its order and with its conditions, are in `execute/stats.rs`.

mod cache;
mod flash;
mod memory_file;
mod monitor;
mod now;
mod pools;
mod server;
mod wear;

use std::sync::atomic::Ordering;

use ebbtide::memcached::{SegmentSnapshot, Stats};
use ebbtide_protocol::reply::stat;
use serde_json::{Map, Value};

use crate::counters::CommandTotals;
use crate::shared::Shared;
use crate::sync::lock;

pub use cache::CACHE;
pub use flash::FLASH;
pub use memory_file::{MEMORY_FILE, MemoryFileReading};
pub use monitor::MONITOR;
pub use now::NOW;
pub use pools::{POOL_COMPACT, POOL_COUNTS, POOL_FLASH, POOL_MEMORY, POOL_NOW};
pub use server::SERVER;
pub use wear::WEAR;

/// Sources of the tables of the server and the cache.
pub struct Readings {
    pub totals: CommandTotals,
    pub cache: Stats,
    pub segments: SegmentSnapshot,
    pub refused_budgets: u64,
    pub connections: u64,
    pub connections_limit: u64,
    pub accepted: u64,
    pub rejected: u64,
}

impl Readings {
    pub fn of(shared: &Shared) -> Self {
        Self {
            totals: shared.totals(),
            cache: shared.cache.stats(),
            segments: shared.pools.current().segment_snapshot(),
            refused_budgets: shared.cache.refused_budgets(),
            connections: lock(&shared.connections).len() as u64,
            connections_limit: shared.options.max_connections as u64,
            accepted: shared.accepted.load(Ordering::Relaxed),
            rejected: shared.rejected.load(Ordering::Relaxed),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Count(u64),
    Real(f64),
}

/// Which metric a number is.
pub enum Metric {
    None,
    /// The only number of its family, with its help.
    Counter(&'static str, &'static str),
    Gauge(&'static str, &'static str),
    /// The first number of a family with labels, as `name=value,name=value`.
    CounterBy(&'static str, &'static str, &'static str),
    GaugeBy(&'static str, &'static str, &'static str),
    /// One more number of the family before, with its labels.
    And(&'static str),
}

/// A row: one number, or a number for each of several names. An empty name leaves it out of that format.
pub enum Row<S> {
    One {
        stat: &'static str,
        metric: Metric,
        api: &'static str,
        read: fn(&S) -> Number,
    },
    /// Of the metric the label is given alone; each name is one of its values, and an entry in the object at `api`.
    Each {
        metric: Metric,
        api: &'static str,
        read: fn(&S) -> Vec<(&'static str, u64)>,
    },
}

const fn row<S>(stat: &'static str, metric: Metric, api: &'static str, read: fn(&S) -> Number) -> Row<S> {
    Row::One { stat, metric, api, read }
}

impl From<u64> for Number {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<usize> for Number {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl From<f64> for Number {
    fn from(number: f64) -> Self {
        Self::Real(number)
    }
}

impl Number {
    /// No line in `stats ebbtide`, null in JSON, NaN in a metric.
    pub const UNKNOWN: Self = Self::Real(f64::NAN);

    pub fn as_f64(self) -> f64 {
        match self {
            Self::Count(count) => count as f64,
            Self::Real(number) => number,
        }
    }
}

/// Appends the lines of `stats ebbtide`. A number that is not known has none.
pub fn write_stats<S>(rows: &[Row<S>], source: &S, out: &mut Vec<u8>) {
    write_prefixed_stats("", rows, source, out);
}

/// As `write_stats`, with `prefix` in front of every name.
pub fn write_prefixed_stats<S>(prefix: &str, rows: &[Row<S>], source: &S, out: &mut Vec<u8>) {
    for row in rows {
        match row {
            Row::One { stat: name, read, .. } if !name.is_empty() => match read(source) {
                Number::Count(count) => stat(out, &format!("{prefix}{name}"), count),
                Number::Real(number) if number.is_finite() => stat(out, &format!("{prefix}{name}"), number),
                Number::Real(_) => {}
            },
            _ => {}
        }
    }
}

/// Adds the numbers to an answer of the API.
pub fn insert_into<S>(rows: &[Row<S>], source: &S, answer: &mut Value) {
    for row in rows {
        match row {
            Row::One { api: "", .. } | Row::Each { api: "", .. } => {}
            Row::One { api, read, .. } => {
                *at_path(answer, api) = match read(source) {
                    Number::Count(count) => count.into(),
                    // A number that JSON cannot represent is null.
                    Number::Real(number) => number.into(),
                };
            }
            Row::Each { api, read, .. } => {
                let entries = read(source).into_iter().map(|(name, count)| (name.to_owned(), count.into()));
                *at_path(answer, api) = entries.collect::<Map<_, _>>().into();
            }
        }
    }
}

fn at_path<'a>(answer: &'a mut Value, path: &str) -> &'a mut Value {
    path.split('.').fold(answer, |value, name| &mut value[name])
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &[Row<u64>] = &[
        row("a", Metric::None, "x.y", |n| (*n).into()),
        row("unknown", Metric::None, "x.z", |_| f64::NAN.into()),
        Row::Each { metric: Metric::None, api: "x.by", read: |n| vec![("one", *n)] },
        row("b", Metric::None, "", |n| (*n as f64 / 2.0).into()),
    ];

    #[test]
    fn one_row_reaches_the_stats_and_the_api() {
        let mut out = Vec::new();
        write_stats(ROWS, &7, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "STAT a 7\r\nSTAT b 3.5\r\n");
        let mut answer = serde_json::json!({ "x": { "kept": true } });
        insert_into(ROWS, &7, &mut answer);
        assert_eq!(answer, serde_json::json!({ "x": { "by": { "one": 7 }, "kept": true, "y": 7, "z": null } }));
    }

    /// Each metric that a row begins, and each name in the stats, occurs once.
    #[test]
    fn no_name_is_told_twice() {
        fn names<S>(rows: &[Row<S>], stats: &mut Vec<&'static str>, others: &mut Vec<&'static str>) {
            for row in rows {
                let (stat, metric, api) = match row {
                    Row::One { stat, metric, api, .. } => (*stat, metric, *api),
                    Row::Each { metric, api, .. } => ("", metric, *api),
                };
                stats.push(stat);
                others.push(api);
                if let Metric::Counter(name, _) | Metric::Gauge(name, _) = metric {
                    others.push(name);
                }
                if let Metric::CounterBy(name, ..) | Metric::GaugeBy(name, ..) = metric {
                    others.push(name);
                }
            }
        }
        let (mut stats, mut others) = (Vec::new(), Vec::new());
        names(SERVER, &mut stats, &mut others);
        names(CACHE, &mut stats, &mut others);
        names(NOW, &mut stats, &mut others);
        names(FLASH, &mut stats, &mut others);
        for mut names in [stats, others] {
            names.retain(|name| !name.is_empty());
            names.sort_unstable();
            assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        }
    }
}
