//! Values derived from the counters every second: differences, windows of latencies, events.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::time::Duration;

use ebbtide::flash::Health;
use ebbtide::memcached::CounterSnapshot;

use super::events::{Event, EventKind, Events};
use super::headline::{GetCounts, MIN_GETS};
use super::history::History;
use super::history_file::HistoryFile;
use super::history_point::HistoryPoint;
use super::snapshot::Snapshot;
use super::wear::{FlashRating, Wear, WearRate};
use super::window::{PoolWindow, WINDOW_SECONDS, Window};
use super::{CommandKind, LatencyHistogram};

/// History of the snapshots.
#[derive(Debug, Default)]
pub struct Observer {
    history: History,
    events: Events,
    /// The latest snapshots, oldest first: those of a window and the one before it.
    seen: VecDeque<Snapshot>,
    wear: Wear,
}

impl Observer {
    /// Adds the snapshot of this second. The first is the base of later differences.
    pub fn observe(&mut self, now: Snapshot) {
        if let Some(before) = self.seen.back() {
            self.history.push(point(before, &now));
            for (kind, reason, count) in events_between(before, &now) {
                self.note(now.time_unix_ms, kind, reason, count);
            }
        }
        if let Some(flash) = now.flash {
            self.wear.observe(now.uptime, flash.drive_writes, flash.drives);
        }
        if self.seen.len() > WINDOW_SECONDS {
            self.seen.pop_front();
        }
        self.seen.push_back(now);
    }

    pub fn points(&self) -> &VecDeque<HistoryPoint> {
        self.history.seconds()
    }

    /// Gets and hits of the last minutes.
    pub fn gets_and_hits(&self) -> (u64, u64) {
        self.points().iter().fold((0, 0), |(gets, hits), point| (gets + point.gets, hits + point.hits))
    }

    /// Begins with the minutes and the events of a file, and keeps further ones there.
    pub fn with_file(file: Option<HistoryFile>, now_unix_ms: u64) -> Self {
        let earlier = file.as_ref().map_or_else(Vec::new, |file| file.read_events(now_unix_ms));
        let (events, history) = (Events::of_earlier_run(earlier), History::with_file(file, now_unix_ms));
        Self { history, events, ..Self::default() }
    }

    fn note(&mut self, now_unix_ms: u64, kind: EventKind, reason: String, count: u64) {
        let (place, event) = self.events.note(now_unix_ms, kind, reason, count);
        self.history.write_event(place, event);
    }

    /// Seconds of a point, and the points of the last `seconds`, or of the same time `ago` seconds earlier.
    pub fn range(&self, seconds: u64, ago: u64) -> (u64, Vec<HistoryPoint>) {
        self.history.range(seconds, ago)
    }

    /// The time of the oldest point.
    pub fn history_since_unix_ms(&self) -> Option<u64> {
        self.history.first_unix_ms()
    }

    /// Counts of the last minute; `None` after the first reading.
    pub fn window(&self) -> Option<Window> {
        Window::between(self.seen.front()?, self.seen.back()?)
    }

    /// Counts of each pool in the last minute; empty after the first reading.
    pub fn pool_windows(&self) -> Vec<PoolWindow> {
        let ends = self.seen.front().zip(self.seen.back());
        ends.map_or_else(Vec::new, |(first, last)| PoolWindow::between(first, last))
    }

    /// Gets and hits to compare the window with: those of the minute before it whose hit ratio is the upper quartile
    /// of the minutes with enough gets, so that neither a cold start nor the beginning of a fall lowers it. Those of
    /// all points before the window where no minute has enough gets.
    pub fn before_window(&self) -> GetCounts {
        let inside = self.seen.len().saturating_sub(1);
        let before = self.points().len().saturating_sub(inside);
        let points: Vec<GetCounts> =
            self.points().iter().take(before).map(|point| GetCounts { gets: point.gets, hits: point.hits }).collect();
        let minutes = points.rchunks(WINDOW_SECONDS).map(GetCounts::sum).filter(|minute| minute.gets >= MIN_GETS);
        let mut minutes: Vec<GetCounts> = minutes.collect();
        minutes.sort_by(|a, b| a.ratio().partial_cmp(&b.ratio()).unwrap_or(Ordering::Equal));
        minutes.get(minutes.len() * 3 / 4).copied().unwrap_or_else(|| GetCounts::sum(&points))
    }

    /// Number of objects in the last snapshot.
    pub fn items(&self) -> u64 {
        self.seen.back().map_or(0, |last| last.cache.items)
    }

    /// Notes something that the counters do not show.
    pub fn note_event(&mut self, now_unix_ms: u64, kind: EventKind, reason: String) {
        self.note(now_unix_ms, kind, reason, 1);
    }

    /// Notes a decision of the controller of pools.
    pub fn note_division(&mut self, now_unix_ms: u64, decision: String) {
        self.note(now_unix_ms, EventKind::Division, decision, 1);
    }

    /// The newest first.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.newest()
    }

    /// The latencies of the window, of commands that were seen.
    pub fn latencies(&self) -> impl Iterator<Item = (CommandKind, LatencyHistogram)> {
        let ends = self.seen.front().zip(self.seen.back());
        let all = ends.into_iter().flat_map(|(first, last)| {
            let pairs = first.latencies.iter().zip(&last.latencies);
            CommandKind::ALL.into_iter().zip(pairs.map(|(before, now)| now.since(before)))
        });
        all.filter(|(_, histogram)| histogram.count() > 0)
    }

    /// Whether it is time to ask drives how they are: some serve nothing else meanwhile.
    pub fn is_to_ask_drives(&self, uptime: Duration) -> bool {
        self.wear.is_due(uptime)
    }

    /// The current wear of flash of `capacity` bytes.
    pub fn wear_rate(&self, capacity: u64, rating: FlashRating) -> WearRate {
        self.wear.wear_rate(capacity, rating)
    }
}

fn point(before: &Snapshot, now: &Snapshot) -> HistoryPoint {
    let totals = now.totals.since(&before.totals);
    let get = CommandKind::Get as usize;
    let gets = match (before.latencies.get(get), now.latencies.get(get)) {
        (Some(before), Some(now)) => now.since(before),
        _ => LatencyHistogram::default(),
    };
    HistoryPoint {
        time_unix_ms: now.time_unix_ms,
        gets: totals.get_hits + totals.get_misses,
        hits: totals.get_hits,
        sets: totals.set_commands,
        evictions: now.cache.evictions - before.cache.evictions,
        expirations: now.cache.expired - before.cache.expired,
        bytes_read: totals.bytes_read,
        bytes_written: totals.bytes_written,
        items: now.cache.items,
        used_bytes: now.cache.memory_used_bytes,
        connections: now.connections,
        get_p50_us: gets.quantile_us(0.5),
        get_p99_us: gets.quantile_us(0.99),
    }
}

/// Events between two snapshots.
fn events_between(before: &Snapshot, now: &Snapshot) -> Vec<(EventKind, String, u64)> {
    let totals = now.totals.since(&before.totals);
    let since = |field: fn(&CounterSnapshot) -> u64| field(&now.cache) - field(&before.cache);
    let index_replaced = since(|cache| cache.index_replaced);
    let flushed = since(|cache| cache.flushed);
    let counted = [
        (
            EventKind::Eviction,
            "memory is full: what is used least makes space for new objects",
            since(|cache| cache.evictions).saturating_sub(index_replaced),
        ),
        (
            EventKind::Eviction,
            "the index had no place for a new key: the least used one beside it went",
            index_replaced,
        ),
        (
            EventKind::Expiry,
            "objects reached the end of their life and their memory was taken back",
            since(|cache| cache.expired).saturating_sub(flushed),
        ),
        (EventKind::Expiry, "memory of flushed objects was taken back", flushed),
        (EventKind::Flush, "flush_all: everything stored before counts as gone", totals.flush_commands),
        (EventKind::Connections, "closed because they were idle (-o idle_timeout)", totals.idle_kicks),
        (
            EventKind::Warning,
            "no file descriptor was left for a new connection: increase the limit of open files",
            now.listen_disabled - before.listen_disabled,
        ),
        (
            EventKind::Warning,
            "the file system of the memory file (-e) is full: memory stays below -m; free space there and restart",
            now.memory_file_refusals - before.memory_file_refusals,
        ),
        (
            EventKind::Warning,
            "writes were refused for want of memory: increase -m, or allow evictions",
            totals.store_no_memory,
        ),
        (EventKind::Warning, "values over the largest size were refused: see -I", totals.store_too_large),
    ];
    let mut found: Vec<_> = counted
        .into_iter()
        .filter(|(_, _, count)| *count > 0)
        .map(|(kind, reason, count)| (kind, reason.to_string(), count))
        .collect();
    let rejected = now.rejected - before.rejected;
    if rejected > 0 {
        let limit = now.connections_limit;
        found.push((EventKind::Connections, format!("refused: {limit} connections are open already (-c)"), rejected));
    }
    found.extend(now.flash.and_then(|flash| lost(before.flash?.dropped_behind, flash.dropped_behind)));
    found.extend(now.flash.and_then(|flash| trouble(before.flash?.health, flash.health)));
    let (old, new) = (before.cache.memory_limit_bytes, now.cache.memory_limit_bytes);
    if old != new {
        found.push((EventKind::Resize, resize_reason(before, now), 1));
    }
    found
}

/// The step of the memory monitor that changed the limit, or the limits alone.
fn resize_reason(before: &Snapshot, now: &Snapshot) -> String {
    let (old, new) = (before.cache.memory_limit_bytes, now.cache.memory_limit_bytes);
    let step = now.monitor_step.filter(|step| now.monitor_step != before.monitor_step && step.reached_bytes == new);
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    match step {
        Some(step) => format!("memory monitor: {step}"),
        None => format!("the memory limit went from {:.1} to {:.1} MiB", mib(old), mib(new)),
    }
}

/// Event for objects lost because the device of flash was behind.
fn lost(before: u64, now: u64) -> Option<(EventKind, String, u64)> {
    let reason = "evicted objects were lost: the device of flash is behind for longer than --flash-demotion-wait";
    (now > before).then(|| (EventKind::Warning, reason.to_string(), now - before))
}

/// Event for a change of the health of the device of flash.
fn trouble(before: Health, now: Health) -> Option<(EventKind, String, u64)> {
    let reason = match now {
        _ if before == now => return None,
        Health::Healthy => "the device of flash works as it should again",
        Health::Degraded => "the device of flash had errors, or did nothing for seconds: see the system's log",
        Health::Failed => "the device of flash has failed and is not used any more: replace it and restart",
    };
    Some((EventKind::Warning, reason.to_string(), 1))
}

#[cfg(test)]
mod tests {
    use super::super::histogram::CommandLatencies;
    use super::super::snapshot::FlashSnapshot;
    use super::super::wear::DriveWrites;
    use super::*;
    use crate::counters::CommandTotals;
    use crate::pools::PoolTotals;
    use ebbtide::memcached::{MonitorReason, MonitorStep};

    fn at(second: u64) -> Snapshot {
        let latencies = vec![LatencyHistogram::default(); CommandKind::ALL.len()];
        let uptime = Duration::from_secs(second);
        Snapshot { time_unix_ms: second * 1000, uptime, connections_limit: 7, latencies, ..Snapshot::default() }
    }

    #[test]
    fn points_are_differences_and_gauges() {
        let mut observer = Observer::default();
        observer.observe(Snapshot { totals: CommandTotals { get_hits: 100, ..CommandTotals::default() }, ..at(1) });
        assert!(observer.points().is_empty());
        let totals =
            CommandTotals { get_hits: 130, get_misses: 10, set_commands: 4, bytes_read: 9, ..CommandTotals::default() };
        let cache =
            CounterSnapshot { items: 3, memory_used_bytes: 5, evictions: 2, expired: 1, ..CounterSnapshot::default() };
        observer.observe(Snapshot { totals, cache, connections: 6, ..at(2) });
        let expected = HistoryPoint {
            time_unix_ms: 2000,
            gets: 40,
            hits: 30,
            sets: 4,
            evictions: 2,
            expirations: 1,
            bytes_read: 9,
            items: 3,
            used_bytes: 5,
            connections: 6,
            ..HistoryPoint::default()
        };
        assert_eq!(*observer.points(), [expected]);
        let window = observer.window().unwrap();
        assert_eq!((window.seconds, window.accesses(), window.evictions), (1.0, 44, 2));
    }

    #[test]
    fn rates_ignore_changes_of_the_clock() {
        for jump_ms in [0, 3_600_000, -9_999, -3_600_000i64] {
            let mut observer = Observer::default();
            for second in 1..=10u64 {
                let totals = CommandTotals { get_hits: 100 * second, ..CommandTotals::default() };
                let set = if second > 5 { jump_ms } else { 0 };
                let time_unix_ms = (1_000_000_000 + 1000 * second).saturating_add_signed(set);
                observer.observe(Snapshot { totals, time_unix_ms, ..at(second) });
            }
            let window = observer.window().unwrap();
            assert_eq!(window.gets() as f64 / window.seconds, 100.0, "set by {jump_ms} ms");
        }
    }

    #[test]
    fn latencies_are_those_of_the_last_minute() {
        let recorded = CommandLatencies::default();
        let mut observer = Observer::default();
        let look = |second, observer: &mut Observer| {
            let latencies =
                CommandKind::ALL.map(|command| LatencyHistogram::sum([&recorded].into_iter(), command)).to_vec();
            observer.observe(Snapshot { latencies, ..at(second) });
            recorded.add(CommandKind::Touch, 1_000_000, 1);
        };
        for second in 0..90 {
            look(second, &mut observer);
        }
        let seen: Vec<_> = observer.latencies().map(|(command, histogram)| (command, histogram.count())).collect();
        assert_eq!(seen, [(CommandKind::Touch, WINDOW_SECONDS as u64)]);
    }

    #[test]
    fn the_window_of_pools_is_the_last_minute() {
        let mut observer = Observer::default();
        for second in 0..=100u64 {
            let [mut old, mut new] = [PoolTotals::default(); 2];
            (old.gets.hits, old.gets.misses) = (3 * second, second);
            let mut pools = vec![("old".to_owned(), old)];
            if second >= 70 {
                new.evictions = 2 * (second - 70);
                pools.push(("new".to_owned(), new));
            }
            observer.observe(Snapshot { pools, ..at(second) });
            assert_eq!(observer.pool_windows().is_empty(), second == 0);
        }
        let windows = observer.pool_windows();
        let [old, new] = &windows[..] else { panic!("{windows:?}") };
        assert_eq!((old.pool.as_str(), old.seconds, new.pool.as_str()), ("old", 60.0, "new"));
        assert_eq!((old.per_second(|totals| totals.gets.all()), old.hit_ratio()), (4.0, 0.75));
        assert!(new.per_second(|totals| totals.evictions) == 1.0 && new.hit_ratio().is_nan());
    }

    #[test]
    fn the_window_is_the_last_minute() {
        let mut observer = Observer::default();
        assert!(observer.window().is_none());
        for second in 0..=100u64 {
            // A write is refused in second 40; one of ten gets hits before that and five after.
            let hits = second.min(40) + 5 * second.saturating_sub(40);
            let totals = CommandTotals {
                get_hits: hits,
                get_misses: 10 * second - hits,
                store_no_memory: u64::from(second >= 40),
                ..CommandTotals::default()
            };
            observer.observe(Snapshot { totals, ..at(second) });
            let window = observer.window().filter(|_| second > 0);
            let refused = window.map(|window| window.totals.store_no_memory);
            assert_eq!(refused.unwrap_or(0), u64::from((40..100).contains(&second)), "second {second}");
        }
        let window = observer.window().unwrap();
        assert_eq!((window.seconds, window.gets(), window.totals.get_hits), (60.0, 600, 300));
        assert_eq!(observer.before_window(), GetCounts { gets: 400, hits: 40 });
    }

    #[test]
    fn a_long_fall_is_compared_with_better_minutes() {
        let mut observer = Observer::default();
        let (mut gets, mut hits) = (0, 0);
        for second in 0..=420u64 {
            let totals = CommandTotals { get_hits: hits, get_misses: gets - hits, ..CommandTotals::default() };
            observer.observe(Snapshot { totals, ..at(second) });
            // A cold minute, two warm ones, and four of a flood.
            let percent = [20, 92, 92, 80, 80, 80, 80, 80][second as usize / 60];
            (gets, hits) = (gets + 100, hits + percent);
        }
        assert_eq!(observer.before_window(), GetCounts { gets: 6000, hits: 5520 });
    }

    #[test]
    fn events_outlive_a_restart_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let open = |now_unix_ms| Observer::with_file(Some(HistoryFile::open(&path).unwrap()), now_unix_ms);
        let mut observer = open(1_000_000);
        observer.note_event(1_000_000, EventKind::Start, "started".to_owned());
        for second in 1001..1100 {
            let totals = CommandTotals { flush_commands: second, ..CommandTotals::default() };
            observer.observe(Snapshot { totals, ..at(second) });
        }
        let before: Vec<Event> = observer.events().cloned().collect();
        assert_eq!(before.len(), 2);
        assert_eq!((before[0].kind, before[0].count), (EventKind::Flush, 98));
        drop(observer);
        let mut observer = open(2_000_000);
        observer.note_event(2_000_000, EventKind::Start, "started".to_owned());
        assert!(observer.events().skip(1).eq(&before), "before its first look");
        drop(observer);
        assert_eq!(open(2_000_000).events().count(), 3);
    }

    #[test]
    fn a_device_that_fails_is_an_event() {
        let mut observer = Observer::default();
        let look = |health| {
            let drive_writes = DriveWrites::default();
            Some(FlashSnapshot { drive_writes, health, dropped_behind: 0, evicted: 0, drives: None })
        };
        for (second, health) in
            [Health::Healthy, Health::Healthy, Health::Degraded, Health::Failed].into_iter().enumerate()
        {
            observer.observe(Snapshot { flash: look(health), ..at(second as u64) });
        }
        let seen: Vec<_> = observer.events().map(|event| (event.kind, event.time_unix_ms)).collect();
        assert_eq!(seen, [(EventKind::Warning, 3000), (EventKind::Warning, 2000)]);
    }

    #[test]
    fn objects_dropped_behind_flash_give_an_event() {
        let mut observer = Observer::default();
        for (second, dropped_behind) in [5, 5, 12, 20].into_iter().enumerate() {
            let look = FlashSnapshot {
                drive_writes: DriveWrites::default(),
                health: Health::Healthy,
                dropped_behind,
                evicted: 0,
                drives: None,
            };
            observer.observe(Snapshot { flash: Some(look), ..at(second as u64) });
        }
        let seen: Vec<_> = observer.events().map(|event| (event.kind, event.time_unix_ms, event.count)).collect();
        assert_eq!(seen, [(EventKind::Warning, 2000, 15)]);
    }

    #[test]
    fn monitor_steps_are_the_reason_of_resize_events() {
        const MIB: u64 = 1 << 20;
        let with_limit = |second, mib: u64, monitor_step| {
            let cache = CounterSnapshot { memory_limit_bytes: mib * MIB, ..CounterSnapshot::default() };
            Snapshot { cache, monitor_step, ..at(second) }
        };
        let step = Some(MonitorStep {
            from_bytes: 64 * MIB,
            wanted_bytes: 60 * MIB,
            reached_bytes: 60 * MIB,
            reason: MonitorReason::LittleFree { free_bytes: 10 * MIB, lower_bytes: 100 * MIB },
        });
        let mut observer = Observer::default();
        [(64, None), (60, step), (32, step)].iter().zip(1..).for_each(|(&(mib, step), second)| {
            observer.observe(with_limit(second, mib, step));
        });
        let mut reasons: Vec<_> = observer.events().map(|event| event.reason.clone()).collect();
        reasons.sort();
        assert!(reasons[0].starts_with("memory monitor: the cache shrinks from 64.0 to 60.0 MiB: "), "{reasons:?}");
        assert_eq!(reasons[1..], ["the memory limit went from 60.0 to 32.0 MiB"]);
    }

    #[test]
    fn every_happening_is_an_event_with_its_reason() {
        let mut observer = Observer::default();
        let limit = CounterSnapshot { memory_limit_bytes: 64 << 20, ..CounterSnapshot::default() };
        observer.observe(Snapshot { cache: limit, ..at(1) });
        let totals = CommandTotals {
            flush_commands: 1,
            idle_kicks: 2,
            store_no_memory: 3,
            store_too_large: 4,
            ..CommandTotals::default()
        };
        let cache = CounterSnapshot {
            memory_limit_bytes: 32 << 20,
            evictions: 50,
            index_replaced: 5,
            expired: 60,
            flushed: 6,
            ..CounterSnapshot::default()
        };
        let (rejected, listen_disabled, memory_file_refusals) = (7, 8, 9);
        observer.observe(Snapshot { totals, cache, rejected, listen_disabled, memory_file_refusals, ..at(2) });
        let mut seen: Vec<_> = observer.events().map(|event| (event.kind, event.count)).collect();
        seen.sort_by_key(|(kind, count)| (*kind as u8, *count));
        let expected = [
            (EventKind::Eviction, 5),
            (EventKind::Eviction, 45),
            (EventKind::Expiry, 6),
            (EventKind::Expiry, 54),
            (EventKind::Resize, 1),
            (EventKind::Flush, 1),
            (EventKind::Connections, 2),
            (EventKind::Connections, 7),
            (EventKind::Warning, 3),
            (EventKind::Warning, 4),
            (EventKind::Warning, 8),
            (EventKind::Warning, 9),
        ];
        assert_eq!(seen, expected);
        assert!(observer.events().any(|event| event.reason == "the memory limit went from 64.0 to 32.0 MiB"));
    }
}
