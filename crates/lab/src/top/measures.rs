//! Rates of a server. Those that `stats ebbtide` has are of the last minute, as on the dashboard; the others are
//! differences of two samples.

use serde::Serialize;
use serde_json::Value;

use super::admin::AdminReport;
use super::source::StatsSample;

/// A report; the names of the fields are those of the JSON object. `None`: the server does not report the number, or,
/// for rates, its counters were reset in the interval.
#[derive(Clone, Debug, Serialize)]
pub struct TopReport {
    pub target: String,
    pub server: String,
    pub uptime_seconds: Option<u64>,
    pub threads: Option<u64>,
    pub interval_seconds: Option<f64>,
    /// Period of the server's own rates and hit ratio, the last minute; `None` if the server has none and they are
    /// computed for the interval.
    pub window_seconds: Option<f64>,
    /// Of the gets of the window, or of the interval.
    pub hit_ratio: Option<f64>,
    /// Of the gets of the interval.
    pub interval_hit_ratio: Option<f64>,
    /// Commands of all kinds in the interval.
    pub interval_operations_per_second: Option<f64>,
    /// Of all gets that the server has counted.
    pub hit_ratio_total: Option<f64>,
    /// Commands of all kinds.
    pub operations_per_second: Option<f64>,
    pub operations: Operations,
    pub items: Option<u64>,
    pub memory: MemoryUse,
    /// The state of the server in one sentence, with its cause.
    pub headline: Option<String>,
    /// How good or bad that is: `good`, `unknown`, `attention` or `bad`.
    pub headline_level: Option<String>,
    /// Verdict on the size of the cache.
    pub verdict: Option<String>,
    /// `None` if the server has none.
    pub flash: Option<FlashRates>,
    /// Sorted by name; empty if the server has one pool.
    pub pools: Vec<PoolUse>,
    pub evictions: CounterRate,
    pub expirations: CounterRate,
    /// Objects that left or were refused, by reason; reasons that the server does not count are left out.
    pub removals: Vec<RemovalRate>,
    pub connections: Connections,
    pub network: Network,
    /// Processor time over time: 1.5 is one and a half cores.
    pub cpu_cores: Option<f64>,
    pub admin: AdminReport,
}

/// Objects that left the cache, or were refused, for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RemovalRate {
    pub reason: &'static str,
    pub per_second: Option<f64>,
    pub total: u64,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct CounterRate {
    pub per_second: Option<f64>,
    pub total: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct OperationRate {
    pub per_second: Option<f64>,
    pub total: Option<u64>,
    /// Of the interval.
    pub hit_ratio: Option<f64>,
}

impl OperationRate {
    /// A client has sent the command at least once.
    pub fn is_used(&self) -> bool {
        self.total.is_some_and(|total| total > 0)
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Operations {
    pub get: OperationRate,
    pub set: OperationRate,
    pub delete: OperationRate,
    pub touch: OperationRate,
    pub incr: OperationRate,
    pub decr: OperationRate,
    pub cas: OperationRate,
    pub meta: OperationRate,
    pub flush: OperationRate,
}

impl Operations {
    pub fn named(&self) -> [(&'static str, &OperationRate); 9] {
        [
            ("get", &self.get),
            ("set", &self.set),
            ("delete", &self.delete),
            ("touch", &self.touch),
            ("incr", &self.incr),
            ("decr", &self.decr),
            ("cas", &self.cas),
            ("meta", &self.meta),
            ("flush", &self.flush),
        ]
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct MemoryUse {
    pub limit_bytes: Option<u64>,
    pub used_bytes: Option<u64>,
    /// Of the items, with their keys.
    pub live_bytes: Option<u64>,
    pub index_bytes: Option<u64>,
    pub segments_total: Option<u64>,
    pub segments_free: Option<u64>,
}

/// The tier below memory: Ebbtide's flash, or memcached's external storage.
#[derive(Clone, Debug, Serialize)]
pub struct FlashRates {
    pub limit_bytes: u64,
    pub used_bytes: Option<u64>,
    /// Gets answered by this tier. `hit_ratio` is their share of all hits of the interval; the others were in memory.
    pub hits: OperationRate,
    pub written_bytes: CounterRate,
    /// Reads and writes that wait for the device.
    pub queue: Option<u64>,
    pub health: Option<String>,
}

/// One pool of several.
#[derive(Clone, Debug, Serialize)]
pub struct PoolUse {
    pub name: String,
    pub limit_bytes: Option<u64>,
    pub used_bytes: Option<u64>,
    pub items: Option<u64>,
    pub gets: OperationRate,
    pub evictions: CounterRate,
}

#[derive(Clone, Debug, Serialize)]
pub struct Connections {
    pub open: Option<u64>,
    pub limit: Option<u64>,
    pub accepted: CounterRate,
    pub rejected: CounterRate,
}

#[derive(Clone, Debug, Serialize)]
pub struct Network {
    pub read_bytes: CounterRate,
    pub written_bytes: CounterRate,
}

/// A count of a sample; `None` if the server does not report it.
type Counted = fn(&StatsSample) -> Option<u64>;

/// Counts by reason, each with the name of its rate in `stats ebbtide`. The reasons of Ebbtide first, then those that
/// memcached counts, too.
const REASONS: [(&str, &str, Counted); 9] = [
    ("evicted: memory was full", "now_evicted_memory_per_second", |s| {
        s.own_number("evictions")?.checked_sub(s.own_number("index_replaced")?)
    }),
    ("evicted: no slot in the index", "now_evicted_index_full_per_second", |s| s.own_number("index_replaced")),
    ("moved to flash", "now_demoted_per_second", |s| s.own_number("demotions").filter(|count| *count > 0)),
    ("expired", "now_expired_segment_per_second", |s| s.own_number("expired")?.checked_sub(s.own_number("flushed")?)),
    ("flushed", "now_flushed_per_second", |s| s.own_number("flushed")),
    ("evicted", "", |s| s.number("evictions").filter(|_| !s.is_ours())),
    ("expired", "", |s| s.sum(&["reclaimed", "crawler_reclaimed"]).filter(|_| !s.is_ours())),
    ("refused: no memory", "", |s| s.number("store_no_memory")),
    ("refused: too large", "", |s| s.number("store_too_large")),
];

/// Counters that add up to the commands of all kinds.
const COMMANDS: [&str; 12] = [
    "get_hits",
    "get_misses",
    "cmd_set",
    "delete_hits",
    "delete_misses",
    "touch_hits",
    "touch_misses",
    "incr_hits",
    "incr_misses",
    "decr_hits",
    "decr_misses",
    "cmd_flush",
];

/// Counters that only grow while a server runs. If one has fallen, all were reset.
const GROWING: [&str; 10] = [
    "uptime",
    "total_connections",
    "bytes_read",
    "cmd_get",
    "cmd_set",
    "get_hits",
    "get_misses",
    "total_items",
    "evictions",
    "delete_hits",
];

/// Two samples, if the counters went on between them.
struct Span<'a> {
    before: Option<&'a StatsSample>,
    now: &'a StatsSample,
}

impl Span<'_> {
    fn seconds(&self) -> Option<f64> {
        let seconds = self.now.taken.duration_since(self.before?.taken).as_secs_f64();
        (seconds > 0.0).then_some(seconds)
    }

    fn growth(&self, names: &[&str]) -> Option<u64> {
        self.now.sum(names)?.checked_sub(self.before?.sum(names)?)
    }

    fn per_second(&self, names: &[&str]) -> Option<f64> {
        Some(self.growth(names)? as f64 / self.seconds()?)
    }

    fn counter(&self, names: &[&str]) -> CounterRate {
        CounterRate { per_second: self.per_second(names), total: self.now.sum(names) }
    }

    /// A counter whose rate the server reports under a name.
    fn told_counter(&self, told: &str, names: &[&str]) -> CounterRate {
        let counter = self.counter(names);
        CounterRate { per_second: self.now.own_decimal(told).or(counter.per_second), ..counter }
    }

    fn operation(&self, told: &str, names: &[&str]) -> OperationRate {
        let CounterRate { per_second, total } = self.told_counter(told, names);
        OperationRate { per_second, total, hit_ratio: None }
    }

    /// An operation whose count is the sum of its hits and its other outcomes.
    fn looked_up(&self, told: &str, hits: &str, others: &[&str]) -> OperationRate {
        let all: Vec<&str> = std::iter::once(hits).chain(others.iter().copied()).collect();
        let hit_ratio = ratio(self.growth(&[hits]), self.growth(&all));
        OperationRate { hit_ratio, ..self.operation(told, &all) }
    }

    fn flash(&self) -> Option<FlashRates> {
        let hits = |sample: &StatsSample| {
            sample.number("get_extstore")?.checked_sub(sample.number("miss_from_extstore").unwrap_or_default())
        };
        let total = hits(self.now);
        let growth = self.before.and_then(|before| total?.checked_sub(hits(before)?));
        let per_second = growth.and_then(|growth| Some(growth as f64 / self.seconds()?));
        Some(FlashRates {
            limit_bytes: self.now.number("extstore_limit_maxbytes")?,
            used_bytes: self.now.number("extstore_bytes_used"),
            hits: OperationRate { per_second, total, hit_ratio: ratio(growth, self.growth(&["get_hits"])) },
            written_bytes: self.counter(&["extstore_bytes_written"]),
            queue: self.now.number("extstore_io_queue"),
            health: self.now.own_text("flash_health"),
        })
    }

    fn pools(&self) -> Vec<PoolUse> {
        let names: Vec<&str> = self.now.pools().collect();
        if names.len() < 2 { Vec::new() } else { names.into_iter().map(|name| self.pool(name)).collect() }
    }

    fn pool(&self, name: &str) -> PoolUse {
        let now = |field| self.now.pool_number(name, field);
        let growth = |field| now(field)?.checked_sub(self.before?.pool_number(name, field)?);
        let rate = |growth: Option<u64>| Some(growth? as f64 / self.seconds()?);
        let sum = |hits: Option<u64>, misses: Option<u64>| Some(hits? + misses?);
        let gets = sum(growth("hits"), growth("misses"));
        let told = |field| self.now.pool_decimal(name, field);
        // A window without gets has no hit ratio.
        let (get_rate, hit_ratio) = match told("now_get_per_second") {
            Some(rate) => (Some(rate), told("now_hit_ratio")),
            None => (rate(gets), ratio(growth("hits"), gets)),
        };
        let evicted = told("now_evicted_per_second").or_else(|| rate(growth("evictions")));
        PoolUse {
            name: name.to_owned(),
            limit_bytes: now("limit_bytes"),
            used_bytes: now("used_bytes"),
            items: now("items"),
            gets: OperationRate { per_second: get_rate, total: sum(now("hits"), now("misses")), hit_ratio },
            evictions: CounterRate { per_second: evicted, total: now("evictions") },
        }
    }

    fn removals(&self) -> Vec<RemovalRate> {
        let rate = |(reason, told, counted): (&'static str, &str, Counted)| {
            let total = counted(self.now)?;
            let growth = self.before.and_then(|before| total.checked_sub(counted(before)?));
            let of_interval = growth.and_then(|growth| Some(growth as f64 / self.seconds()?));
            let per_second = self.now.own_decimal(told).or(of_interval);
            Some(RemovalRate { reason, per_second, total })
        };
        REASONS.into_iter().filter_map(rate).collect()
    }

    fn cpu_cores(&self) -> Option<f64> {
        let used = |sample: &StatsSample| Some(sample.decimal("rusage_user")? + sample.decimal("rusage_system")?);
        let cores = (used(self.now)? - used(self.before?)?) / self.seconds()?;
        (cores >= 0.0).then_some(cores)
    }
}

fn ratio(part: Option<u64>, whole: Option<u64>) -> Option<f64> {
    match (part?, whole?) {
        (_, 0) => None,
        (part, whole) => Some(part as f64 / whole as f64),
    }
}

fn goes_on(before: &StatsSample, now: &StatsSample) -> bool {
    before.number("pid") == now.number("pid")
        && GROWING.iter().all(|name| match (before.number(name), now.number(name)) {
            (Some(before), Some(now)) => before <= now,
            _ => true,
        })
}

impl TopReport {
    /// The fields for a reader: without the commands that nobody has sent.
    pub fn without_unused(&self) -> Value {
        let mut fields = serde_json::to_value(self).unwrap_or_default();
        let unused = self.operations.named().into_iter().filter(|(_, operation)| !operation.is_used());
        if let Some(operations) = fields.get_mut("operations").and_then(Value::as_object_mut) {
            unused.for_each(|(name, _)| drop(operations.remove(name)));
        }
        if let Some(latencies) = fields.pointer_mut("/admin/latency_us").and_then(Value::as_object_mut) {
            latencies.retain(|_, latency| latency["count"] != 0);
        }
        fields
    }

    pub fn new(target: &str, before: Option<&StatsSample>, now: &StatsSample, admin: AdminReport) -> Self {
        let span = Span { before: before.filter(|before| goes_on(before, now)), now };
        let operations = Operations {
            get: span.looked_up("now_get_per_second", "get_hits", &["get_misses"]),
            set: span.operation("now_set_per_second", &["cmd_set"]),
            delete: span.looked_up("now_delete_per_second", "delete_hits", &["delete_misses"]),
            touch: span.looked_up("now_touch_per_second", "touch_hits", &["touch_misses"]),
            incr: span.looked_up("now_incr_per_second", "incr_hits", &["incr_misses"]),
            decr: span.looked_up("now_decr_per_second", "decr_hits", &["decr_misses"]),
            cas: span.looked_up("now_cas_per_second", "cas_hits", &["cas_misses", "cas_badval"]),
            meta: span.operation("now_meta_per_second", &["cmd_meta"]),
            flush: span.operation("now_flush_per_second", &["cmd_flush"]),
        };
        let of_interval = operations.get.hit_ratio;
        let hit_ratio = now.own_decimal("now_hit_ratio").or(of_interval);
        let operations = Operations { get: OperationRate { hit_ratio, ..operations.get }, ..operations };
        // A cas also counts as a set, and a meta command as its classic equivalent.
        let counted = [operations.get, operations.set, operations.delete, operations.touch, operations.incr]
            .into_iter()
            .chain([operations.decr, operations.flush]);
        Self {
            target: target.to_owned(),
            server: now.server(),
            uptime_seconds: now.number("uptime"),
            threads: now.number("threads"),
            interval_seconds: span.seconds(),
            window_seconds: now.own_decimal("now_seconds").filter(|seconds| *seconds > 0.0),
            hit_ratio,
            interval_hit_ratio: of_interval,
            interval_operations_per_second: span.per_second(&COMMANDS),
            hit_ratio_total: ratio(now.number("get_hits"), now.sum(&["get_hits", "get_misses"])),
            operations_per_second: counted.filter_map(|operation| operation.per_second).reduce(|sum, one| sum + one),
            operations,
            items: now.number("curr_items"),
            headline: now.own_text("headline"),
            headline_level: now.own_text("headline_level"),
            verdict: now.own_text("size_verdict"),
            memory: MemoryUse {
                limit_bytes: now.number("limit_maxbytes"),
                used_bytes: now.own_number("memory_used_bytes"),
                live_bytes: now.number("bytes"),
                index_bytes: now.number("hash_bytes"),
                segments_total: now.own_number("segments_total"),
                segments_free: now.own_number("segments_free"),
            },
            flash: span.flash(),
            pools: span.pools(),
            evictions: span.told_counter("now_evicted_per_second", &["evictions"]),
            // memcached counts items found by its crawler separately.
            expirations: span.told_counter("now_expired_per_second", &["reclaimed", "crawler_reclaimed"]),
            connections: Connections {
                open: now.number("curr_connections"),
                limit: now.number("max_connections"),
                accepted: span.counter(&["total_connections"]),
                rejected: span.counter(&["rejected_connections"]),
            },
            network: Network {
                read_bytes: span.told_counter("now_bytes_read_per_second", &["bytes_read"]),
                written_bytes: span.told_counter("now_bytes_written_per_second", &["bytes_written"]),
            },
            removals: span.removals(),
            cpu_cores: span.cpu_cores(),
            admin,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    const BEFORE: &str = "pid 7\nuptime 10\nget_hits 100\nget_misses 100\ncmd_set 5\nreclaimed 3\nrusage_user 1.0\n\
                          rusage_system 1.0\nbytes_read 1000";

    fn report(before: Option<&str>, now: &str, own: &str) -> TopReport {
        let start = Instant::now();
        let before = before.map(|text| StatsSample::from_lines(start, text, ""));
        let now = StatsSample::from_lines(start + Duration::from_secs(2), now, own);
        TopReport::new("t", before.as_ref(), &now, AdminReport::default())
    }

    #[test]
    fn commands_that_nobody_sends_are_left_out() {
        let fields =
            report(Some(BEFORE), "pid 7\nuptime 12\nget_hits 190\nget_misses 0\ncmd_set 25\ndelete_hits 0", "");
        let fields = fields.without_unused();
        let told: Vec<&String> = fields["operations"].as_object().unwrap().keys().collect();
        assert_eq!(told, ["get", "set"]);
    }

    #[test]
    fn rates_are_differences_over_the_time_between() {
        let now = "pid 7\nuptime 12\nget_hits 190\nget_misses 110\ncmd_set 25\nreclaimed 4\ncrawler_reclaimed 6\n\
                   rusage_user 2.5\nrusage_system 1.5\nbytes_read 3000\nlimit_maxbytes 64";
        let report = report(Some(BEFORE), now, "version 9.9\nmemory_used_bytes 32");
        assert_eq!(report.interval_seconds, Some(2.0));
        assert_eq!(report.operations.get.per_second, Some(50.0));
        assert_eq!((report.hit_ratio, report.hit_ratio_total), (Some(0.9), Some(190.0 / 300.0)));
        assert_eq!(report.operations.set.per_second, Some(10.0));
        assert_eq!(report.operations_per_second, Some(60.0));
        assert_eq!(report.expirations.total, Some(10));
        assert_eq!(report.network.read_bytes.per_second, Some(1000.0));
        assert_eq!(report.cpu_cores, Some(1.0));
        assert_eq!((report.memory.limit_bytes, report.memory.used_bytes), (Some(64), Some(32)));
        assert_eq!(report.server, "ebbtide 9.9");
    }

    #[test]
    fn rates_of_the_server_override_computed_ones() {
        let now =
            "pid 7\nuptime 12\nget_hits 190\nget_misses 110\ncmd_set 25\nreclaimed 4\nevictions 9\nbytes_read 3000";
        let own = "version 1\nevictions 9\nindex_replaced 0\nnow_seconds 60\nnow_hit_ratio 0.25\nnow_get_per_second 7.5\n\
                   now_evicted_per_second 1.5\nnow_evicted_memory_per_second 1.5\nnow_bytes_read_per_second 11";
        let report = report(Some(BEFORE), now, own);
        assert_eq!((report.window_seconds, report.interval_seconds), (Some(60.0), Some(2.0)));
        assert_eq!((report.hit_ratio, report.interval_hit_ratio), (Some(0.25), Some(0.9)));
        assert_eq!((report.operations.get.per_second, report.operations.get.hit_ratio), (Some(7.5), Some(0.25)));
        assert_eq!((report.evictions.per_second, report.removals[0].per_second), (Some(1.5), Some(1.5)));
        assert_eq!(report.network.read_bytes.per_second, Some(11.0));
        // Rates that the server does not send are of the interval.
        assert_eq!(report.operations.set.per_second, Some(10.0));
        assert_eq!(report.interval_operations_per_second, Some(60.0));
    }

    /// Each number of a report comes from a name that the server has: those are in a file of the server's tests.
    #[test]
    fn every_name_is_one_of_the_server() {
        let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/../server/tests/suite/");
        let of_topic = |file: &str, topic: &str, value| {
            let names = std::fs::read_to_string(format!("{tests}{file}")).unwrap();
            let names = names.lines().filter_map(|line| line.strip_prefix(topic)).filter(|name| !name.contains(' '));
            names.map(|name| format!("{name} {value}\n")).collect::<String>()
        };
        let sample = |value: u64| {
            let taken = Instant::now() + Duration::from_secs(value);
            let stats = of_topic("statistics.txt", "stats ", value).replace(&format!("pid {value}"), "pid 7");
            StatsSample::from_lines(taken, &stats, &of_topic("statistics.txt", "stats ebbtide ", value))
                .with_pools(&of_topic("pool_statistics.txt", "stats pools ", value))
        };
        let report = TopReport::new("t", Some(&sample(1)), &sample(2), AdminReport::default());
        let mut json = serde_json::to_value(&report).unwrap();
        // The server reports a verdict later than the rest.
        for known in ["admin", "verdict"] {
            json[known] = 0.into();
        }
        let text = serde_json::to_string_pretty(&json).unwrap();
        // Commands without a lookup have no hit ratio.
        let is_unknown = |line: &&str| line.contains("null") && !line.contains("\"hit_ratio\"");
        let unknown: Vec<_> = text.lines().filter(is_unknown).collect();
        assert_eq!(unknown, [""; 0], "{text}");
        assert_eq!((report.pools.len(), report.removals.len()), (3, 7));
    }

    #[test]
    fn flash_is_told_if_there_is_some() {
        let flash = "get_extstore 50\nmiss_from_extstore 10\nextstore_limit_maxbytes 1000\nextstore_bytes_written 500";
        let now = "pid 7\nget_hits 200\nget_extstore 100\nmiss_from_extstore 20\nextstore_limit_maxbytes 1000\n\
                   extstore_bytes_used 250\nextstore_bytes_written 900\nextstore_io_queue 3";
        assert!(report(Some(BEFORE), BEFORE, "").flash.is_none());
        let flash = report(Some(&format!("{BEFORE}\n{flash}")), now, "flash_health degraded").flash.unwrap();
        assert_eq!((flash.limit_bytes, flash.used_bytes, flash.queue), (1000, Some(250), Some(3)));
        assert_eq!((flash.hits.per_second, flash.hits.total, flash.hits.hit_ratio), (Some(20.0), Some(80), Some(0.4)));
        assert_eq!(flash.written_bytes.per_second, Some(200.0));
        assert_eq!(flash.health.as_deref(), Some("degraded"));
    }

    #[test]
    fn pools_have_rates_of_their_own() {
        let sample = |seconds, hits: u64| {
            let pools = format!(
                "a:class 2\na:hits {hits}\na:misses 10\na:limit_bytes 64\na:used_bytes 32\na:items 3\na:evictions {hits}\n\
                 default:class 1\ndefault:hits 0\ndefault:misses 0"
            );
            StatsSample::from_lines(Instant::now() + Duration::from_secs(seconds), "pid 7", "").with_pools(&pools)
        };
        let (before, now) = (sample(0, 10), sample(1000, 2010));
        let report = TopReport::new("t", Some(&before), &now, AdminReport::default());
        assert_eq!(report.pools.iter().map(|pool| pool.name.as_str()).collect::<Vec<_>>(), ["a", "default"]);
        let pool = &report.pools[0];
        assert_eq!((pool.limit_bytes, pool.used_bytes, pool.items), (Some(64), Some(32), Some(3)));
        assert_eq!((pool.gets.total, pool.gets.hit_ratio), (Some(2020), Some(1.0)));
        assert!(pool.evictions.per_second.is_some_and(|rate| (rate - 2.0).abs() < 0.1));
        assert_eq!(report.pools[1].gets.hit_ratio, None);
        let told = "a:class 2\na:hits 9000\na:misses 10\na:evictions 9000\na:now_get_per_second 7.5\n\
                    a:now_hit_ratio 0.25\na:now_evicted_per_second 1.5\nb:class 3\nb:hits 5\nb:misses 5\n\
                    b:now_get_per_second 0";
        let report = TopReport::new("t", Some(&before), &now.clone().with_pools(told), AdminReport::default());
        let pool = &report.pools[0];
        assert_eq!((pool.gets.per_second, pool.gets.hit_ratio, pool.gets.total), (Some(7.5), Some(0.25), Some(9010)));
        assert_eq!(pool.evictions.per_second, Some(1.5));
        assert_eq!((report.pools[1].gets.per_second, report.pools[1].gets.hit_ratio), (Some(0.0), None));
        let single = now.with_pools("default:class 1");
        assert!(TopReport::new("t", None, &single, AdminReport::default()).pools.is_empty());
    }

    #[test]
    fn one_sample_has_totals_and_no_rates() {
        let report = report(None, BEFORE, "");
        assert_eq!(report.operations.get.total, Some(200));
        assert_eq!(report.hit_ratio_total, Some(0.5));
        assert_eq!((report.hit_ratio, report.operations_per_second, report.cpu_cores), (None, None, None));
        assert_eq!(report.memory.used_bytes, None);
    }

    #[test]
    fn an_interval_with_reset_counters_has_no_rates() {
        for now in [
            // stats reset: the gets have caught up already, the bytes have not.
            "pid 7\nuptime 12\nget_hits 190\nget_misses 110\nbytes_read 4",
            // Another process that took over within the interval.
            "pid 8\nuptime 12\nget_hits 190\nget_misses 110\nbytes_read 4000",
            "pid 7\nuptime 1\nget_hits 190\nget_misses 110\nbytes_read 4000",
        ] {
            let report = report(Some(BEFORE), now, "");
            assert_eq!((report.operations.get.per_second, report.hit_ratio), (None, None), "{now}");
            assert_eq!(report.operations.get.total, Some(300));
        }
    }

    #[test]
    fn removals_have_their_reasons() {
        let own = "version 1\nevictions 12\nindex_replaced 2\nexpired 30\nflushed 10";
        let ours = report(Some(BEFORE), &format!("{BEFORE}\nstore_no_memory 4"), own).removals;
        let totals: Vec<_> = ours.iter().map(|removal| (removal.reason, removal.total)).collect();
        assert_eq!(
            totals,
            [
                ("evicted: memory was full", 10),
                ("evicted: no slot in the index", 2),
                ("expired", 20),
                ("flushed", 10),
                ("refused: no memory", 4),
            ]
        );
        let theirs = report(Some("evictions 5\nreclaimed 1"), "evictions 9\nreclaimed 1\ncrawler_reclaimed 2", "");
        let found: Vec<_> = theirs.removals.iter().map(|one| (one.reason, one.per_second, one.total)).collect();
        assert_eq!(found, [("evicted", Some(2.0), 9), ("expired", Some(1.0), 3)]);
    }

    #[test]
    fn an_idle_interval_has_zero_rates_without_ratio() {
        let report = report(Some(BEFORE), BEFORE, "");
        assert_eq!((report.operations.get.per_second, report.hit_ratio), (Some(0.0), None));
    }
}
