//! What is made of the counters second by second: differences, windows of latencies, events.

use std::collections::VecDeque;
use std::time::Duration;

use ebbtide::CounterSnapshot;
use ebbtide::flash::{DriveLog, Health};

use super::events::{Event, Events, Kind};
use super::history::{History, Point};
use super::wear::{FlashRating, Given, Pace, Wear};
use super::{Command, Histogram};
use crate::counters::Totals;

/// Seconds that "now" means in latencies and rates.
const WINDOW: usize = 10;

/// All that is counted, at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub time_unix_ms: u64,
    /// Since the server started, by a clock that nobody sets.
    pub uptime: Duration,
    pub totals: Totals,
    pub cache: CounterSnapshot,
    pub connections: u64,
    pub connections_limit: u64,
    pub rejected: u64,
    pub listen_disabled: u64,
    /// By the number of the command.
    pub latencies: Vec<Histogram>,
    /// Where there is flash.
    pub flash: Option<FlashLook>,
}

/// What is looked at of flash.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlashLook {
    pub given: Given,
    pub health: Health,
    /// Evicted objects that were lost because the device was behind.
    pub dropped_behind: u64,
    /// What the drives tell, when they were asked.
    pub drives: Option<DriveLog>,
}

/// Remembers what it has seen.
#[derive(Debug, Default)]
pub struct Observer {
    history: History,
    events: Events,
    /// The latest looks, oldest first: a window's worth of differences and the look before.
    seen: VecDeque<Snapshot>,
    wear: Wear,
}

impl Observer {
    /// Takes the look of this second. The first only says where counting begins.
    pub fn observe(&mut self, now: Snapshot) {
        if let Some(before) = self.seen.back() {
            self.history.push(point(before, &now));
            for (kind, reason, count) in happenings(before, &now) {
                self.events.note(now.time_unix_ms, kind, reason, count);
            }
        }
        if let Some(flash) = now.flash {
            self.wear.observe(now.uptime, flash.given, flash.drives);
        }
        if self.seen.len() > WINDOW {
            self.seen.pop_front();
        }
        self.seen.push_back(now);
    }

    pub fn points(&self) -> &VecDeque<Point> {
        self.history.points()
    }

    /// The newest first.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.newest()
    }

    /// The latencies of the last seconds, of commands that were seen.
    pub fn latencies(&self) -> impl Iterator<Item = (Command, Histogram)> {
        let ends = self.seen.front().zip(self.seen.back());
        let all = ends.into_iter().flat_map(|(first, last)| {
            let pairs = first.latencies.iter().zip(&last.latencies);
            Command::ALL.into_iter().zip(pairs.map(|(before, now)| now.since(before)))
        });
        all.filter(|(_, histogram)| histogram.count() > 0)
    }

    /// Whether it is time to ask drives how they are: some serve nothing else meanwhile.
    pub fn is_to_ask_drives(&self, uptime: Duration) -> bool {
        self.wear.is_due(uptime)
    }

    /// How flash of so many bytes wears out now.
    pub fn pace(&self, capacity: u64, rating: FlashRating) -> Pace {
        self.wear.pace(capacity, rating)
    }

    /// Accesses to keys per second, in the last seconds.
    pub fn key_rate(&self) -> f64 {
        let Some((first, last)) = self.seen.front().zip(self.seen.back()) else { return 0.0 };
        let seconds = last.uptime.saturating_sub(first.uptime).as_secs_f64();
        let accesses = accesses(&last.totals.since(&first.totals));
        if seconds > 0.0 { accesses as f64 / seconds } else { 0.0 }
    }
}

/// Commands with a key.
fn accesses(totals: &Totals) -> u64 {
    let hits_and_misses = [
        totals.get_hits + totals.get_misses,
        totals.touch_hits + totals.touch_misses,
        totals.delete_hits + totals.delete_misses,
        totals.incr_hits + totals.incr_misses,
        totals.decr_hits + totals.decr_misses,
    ];
    totals.set_commands + hits_and_misses.iter().sum::<u64>()
}

fn point(before: &Snapshot, now: &Snapshot) -> Point {
    let totals = now.totals.since(&before.totals);
    let get = Command::Get as usize;
    let gets = match (before.latencies.get(get), now.latencies.get(get)) {
        (Some(before), Some(now)) => now.since(before),
        _ => Histogram::default(),
    };
    Point {
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

/// What has happened between two looks.
fn happenings(before: &Snapshot, now: &Snapshot) -> Vec<(Kind, String, u64)> {
    let totals = now.totals.since(&before.totals);
    let since = |field: fn(&CounterSnapshot) -> u64| field(&now.cache) - field(&before.cache);
    let index_replaced = since(|cache| cache.index_replaced);
    let flushed = since(|cache| cache.flushed);
    let counted = [
        (
            Kind::Eviction,
            "memory is full: what is used least makes room for new objects",
            since(|cache| cache.evictions).saturating_sub(index_replaced),
        ),
        (Kind::Eviction, "the index had no place for a new key: the least used one beside it went", index_replaced),
        (
            Kind::Expiry,
            "objects reached the end of their life and their memory was taken back",
            since(|cache| cache.expired).saturating_sub(flushed),
        ),
        (Kind::Expiry, "memory of flushed objects was taken back", flushed),
        (Kind::Flush, "flush_all: everything stored before counts as gone", totals.flush_commands),
        (Kind::Connections, "closed because they were idle (-o idle_timeout)", totals.idle_kicks),
        (
            Kind::Warning,
            "no file descriptor was left for a new connection: raise the limit of open files",
            now.listen_disabled - before.listen_disabled,
        ),
        (Kind::Warning, "writes were refused for want of memory: raise -m, or allow evictions", totals.store_no_memory),
        (Kind::Warning, "values over the largest size were refused: see -I", totals.store_too_large),
    ];
    let mut found: Vec<_> = counted
        .into_iter()
        .filter(|(_, _, count)| *count > 0)
        .map(|(kind, reason, count)| (kind, reason.to_string(), count))
        .collect();
    let rejected = now.rejected - before.rejected;
    if rejected > 0 {
        let limit = now.connections_limit;
        found.push((Kind::Connections, format!("refused: {limit} connections are open already (-c)"), rejected));
    }
    found.extend(now.flash.and_then(|flash| lost(before.flash?.dropped_behind, flash.dropped_behind)));
    found.extend(now.flash.and_then(|flash| trouble(before.flash?.health, flash.health)));
    let (old, new) = (before.cache.memory_limit_bytes, now.cache.memory_limit_bytes);
    if old != new {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        found.push((Kind::Resize, format!("the memory limit went from {:.1} to {:.1} MiB", mib(old), mib(new)), 1));
    }
    found
}

/// What was lost because the device of flash was behind.
fn lost(before: u64, now: u64) -> Option<(Kind, String, u64)> {
    let reason = "evicted objects were lost: the device of flash is behind for longer than --flash-demotion-wait";
    (now > before).then(|| (Kind::Warning, reason.to_string(), now - before))
}

/// What a change of the health of flash's device is to its operator.
fn trouble(before: Health, now: Health) -> Option<(Kind, String, u64)> {
    let reason = match now {
        _ if before == now => return None,
        Health::Healthy => "the device of flash works as it should again",
        Health::Degraded => "the device of flash had errors, or did nothing for seconds: see the system's log",
        Health::Failed => "the device of flash has failed and is not used any more: replace it and restart",
    };
    Some((Kind::Warning, reason.to_string(), 1))
}

#[cfg(test)]
mod tests {
    use super::super::histogram::Latencies;
    use super::*;

    fn at(second: u64) -> Snapshot {
        let latencies = vec![Histogram::default(); Command::ALL.len()];
        let uptime = Duration::from_secs(second);
        Snapshot { time_unix_ms: second * 1000, uptime, connections_limit: 7, latencies, ..Snapshot::default() }
    }

    #[test]
    fn points_are_differences_and_gauges() {
        let mut observer = Observer::default();
        observer.observe(Snapshot { totals: Totals { get_hits: 100, ..Totals::default() }, ..at(1) });
        assert!(observer.points().is_empty());
        let totals = Totals { get_hits: 130, get_misses: 10, set_commands: 4, bytes_read: 9, ..Totals::default() };
        let cache =
            CounterSnapshot { items: 3, memory_used_bytes: 5, evictions: 2, expired: 1, ..CounterSnapshot::default() };
        observer.observe(Snapshot { totals, cache, connections: 6, ..at(2) });
        let expected = Point {
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
            ..Point::default()
        };
        assert_eq!(*observer.points(), [expected]);
        assert_eq!(observer.key_rate(), 44.0);
    }

    #[test]
    fn rates_do_not_mind_that_the_clock_was_set() {
        for jump_ms in [0, 3_600_000, -9_999, -3_600_000i64] {
            let mut observer = Observer::default();
            for second in 1..=10u64 {
                let totals = Totals { get_hits: 100 * second, ..Totals::default() };
                let set = if second > 5 { jump_ms } else { 0 };
                let time_unix_ms = (1_000_000_000 + 1000 * second).saturating_add_signed(set);
                observer.observe(Snapshot { totals, time_unix_ms, ..at(second) });
            }
            assert_eq!(observer.key_rate(), 100.0, "set by {jump_ms} ms");
        }
    }

    #[test]
    fn latencies_are_those_of_the_last_seconds() {
        let recorded = Latencies::default();
        let mut observer = Observer::default();
        let look = |second, observer: &mut Observer| {
            let latencies = Command::ALL.map(|command| Histogram::sum([&recorded].into_iter(), command)).to_vec();
            observer.observe(Snapshot { latencies, ..at(second) });
            recorded.add(Command::Touch, 1_000_000, 1);
        };
        for second in 0..30 {
            look(second, &mut observer);
        }
        let seen: Vec<_> = observer.latencies().map(|(command, histogram)| (command, histogram.count())).collect();
        assert_eq!(seen, [(Command::Touch, WINDOW as u64)]);
    }

    #[test]
    fn a_device_that_fails_is_an_event() {
        let mut observer = Observer::default();
        let look = |health| Some(FlashLook { given: Given::default(), health, dropped_behind: 0, drives: None });
        for (second, health) in
            [Health::Healthy, Health::Healthy, Health::Degraded, Health::Failed].into_iter().enumerate()
        {
            observer.observe(Snapshot { flash: look(health), ..at(second as u64) });
        }
        let seen: Vec<_> = observer.events().map(|event| (event.kind, event.time_unix_ms)).collect();
        assert_eq!(seen, [(Kind::Warning, 3000), (Kind::Warning, 2000)]);
    }

    #[test]
    fn what_flash_did_not_take_in_time_is_an_event() {
        let mut observer = Observer::default();
        for (second, dropped_behind) in [5, 5, 12, 20].into_iter().enumerate() {
            let look = FlashLook { given: Given::default(), health: Health::Healthy, dropped_behind, drives: None };
            observer.observe(Snapshot { flash: Some(look), ..at(second as u64) });
        }
        let seen: Vec<_> = observer.events().map(|event| (event.kind, event.time_unix_ms, event.count)).collect();
        assert_eq!(seen, [(Kind::Warning, 2000, 15)]);
    }

    #[test]
    fn every_happening_is_an_event_with_its_reason() {
        let mut observer = Observer::default();
        let limit = CounterSnapshot { memory_limit_bytes: 64 << 20, ..CounterSnapshot::default() };
        observer.observe(Snapshot { cache: limit, ..at(1) });
        let totals =
            Totals { flush_commands: 1, idle_kicks: 2, store_no_memory: 3, store_too_large: 4, ..Totals::default() };
        let cache = CounterSnapshot {
            memory_limit_bytes: 32 << 20,
            evictions: 50,
            index_replaced: 5,
            expired: 60,
            flushed: 6,
            ..CounterSnapshot::default()
        };
        observer.observe(Snapshot { totals, cache, rejected: 7, listen_disabled: 8, ..at(2) });
        let mut seen: Vec<_> = observer.events().map(|event| (event.kind, event.count)).collect();
        seen.sort_by_key(|(kind, count)| (*kind as u8, *count));
        let expected = [
            (Kind::Eviction, 5),
            (Kind::Eviction, 45),
            (Kind::Expiry, 6),
            (Kind::Expiry, 54),
            (Kind::Resize, 1),
            (Kind::Flush, 1),
            (Kind::Connections, 2),
            (Kind::Connections, 7),
            (Kind::Warning, 3),
            (Kind::Warning, 4),
            (Kind::Warning, 8),
        ];
        assert_eq!(seen, expected);
        assert!(observer.events().any(|event| event.reason == "the memory limit went from 64.0 to 32.0 MiB"));
    }
}
