//! State behind the answers of the admin interface, and the reading of all counters once a second.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebbtide::memcached::CounterSnapshot;
use ebbtide::message;

use super::key_search::KeySearches;
use crate::observe::{
    Census, CensusClock, CommandKind, DriveWrites, EventKind, FALL, Facts, FlashSnapshot, GetCounts, HistoryFile,
    LatencyHistogram, MIN_CURVE_GETS, Observer, Recent, Snapshot, Window, headline, missed_prefix,
};
use crate::shared::Shared;
use crate::sync::lock;
use crate::unix_time::unix_now;

/// The factor by which the weight of an access or an eviction falls in a second. It halves in 40 seconds, so the mean
/// age of the counts is about a minute, as in the other numbers.
const DECAY: f64 = 0.9828;
/// The factor by which the weight of a get of a large object falls in a second. It halves in ten minutes, because such
/// objects may be read rarely.
const LARGE_OBJECTS_DECAY: f64 = 0.998_85;

/// State that the answers read.
pub struct AdminState {
    pub shared: Arc<Shared>,
    pub observer: Mutex<Observer>,
    /// When the server started, by the system's clock.
    pub started_unix: Duration,
    pub checks_host: bool,
    pub census: Mutex<CensusClock>,
    pub searches: Mutex<KeySearches>,
}

impl AdminState {
    pub fn new(shared: Arc<Shared>, address: SocketAddr, history: Option<HistoryFile>) -> Self {
        shared.sizing.start(&shared.cache, shared.options.controller);
        let started_unix = unix_now().saturating_sub(shared.uptime());
        let mut observer = Observer::with_file(history, unix_now().as_millis() as u64);
        let began = "the server has started".to_owned();
        observer.note_event(started_unix.as_millis() as u64, EventKind::Start, began);
        Self {
            started_unix,
            shared,
            observer: Mutex::new(observer),
            checks_host: address.ip().is_loopback(),
            census: Mutex::default(),
            searches: Mutex::default(),
        }
    }

    /// Reads all counters; call it once a second.
    pub fn observe(&self) {
        let mut snapshot = snapshot(&self.shared);
        let asks_drives = lock(&self.observer).is_to_ask_drives(snapshot.uptime);
        if let Some(flash) = snapshot.flash.as_mut().filter(|_| asks_drives) {
            flash.drives = self.shared.cache.ask_flash_drives();
        }
        let mut observer = lock(&self.observer);
        for samples in &self.shared.samples {
            lock(&samples.hot_keys).decay(DECAY);
            lock(&samples.traffic).decay(DECAY);
            lock(&samples.watched_keys).decay(LARGE_OBJECTS_DECAY);
        }
        lock(&self.shared.evictions.samples.groups).decay(DECAY);
        observer.observe(snapshot);
        let window = observer.window();
        *lock(&self.shared.recent_pools) = observer.pool_windows();
        let (gets, hits) = match window {
            Some(window) if window.gets() >= MIN_CURVE_GETS => (window.gets(), window.totals.get_hits),
            _ => observer.gets_and_hits(),
        };
        drop(observer);
        let evicted = lock(&self.shared.evictions.samples.groups).total();
        if let Some(decision) = self.shared.sizing.update(gets, hits, evicted.age_seconds()) {
            message!("ebbtide: {decision}");
            lock(&self.observer).note_division(unix_now().as_millis() as u64, decision);
        }
        for refusal in self.shared.cache.take_refused_budgets() {
            message!("ebbtide: pools: {refusal}");
            lock(&self.observer).note_division(unix_now().as_millis() as u64, format!("pools: {refusal}"));
        }
        lock(&self.searches).forget_idle();
        let delimiter = self.shared.options.prefix_delimiter;
        let mut clock = lock(&self.census);
        if let Some(census) = clock.advance(&self.shared.pools.current(), delimiter, self.shared.uptime()) {
            for samples in &self.shared.samples {
                lock(&samples.watched_keys).watch(census.largest.iter().map(|object| &*object.key));
            }
        }
        let unread_share = clock.latest.as_ref().and_then(Census::unread_share);
        drop(clock);
        let recent = Recent { window, unread_share, evicted };
        *lock(&self.shared.recent) = recent;
        *lock(&self.shared.headline) = headline(&self.facts(&recent));
    }

    fn facts(&self, recent: &Recent) -> Facts {
        let observer = lock(&self.observer);
        let (before, items) = (observer.before_window(), observer.items());
        drop(observer);
        let now = |count: fn(&Window) -> u64| recent.window.as_ref().map_or(0, count);
        let traffic = self.shared.keys_hidden().is_none().then(|| self.shared.traffic());
        let unread = |traffic| lock(&self.census).latest.as_ref().and_then(|census| census.unread_prefix(traffic));
        Facts {
            was_fall: lock(&self.shared.headline).1.starts_with(FALL),
            items,
            now: GetCounts { gets: now(Window::gets), hits: now(|window| window.totals.get_hits) },
            before,
            evictions_now: now(|window| window.evictions),
            flash_evictions_now: now(|window| window.flash_evictions),
            evicted_unread_share: recent.evicted.unread_share(),
            refused_for_memory_now: now(|window| window.totals.store_no_memory),
            health: self.shared.cache.flash_health(),
            unread: traffic.as_ref().and_then(unread),
            missed: traffic.as_ref().and_then(missed_prefix),
            sizing: self.shared.sizing.advice(),
        }
    }
}

fn snapshot(shared: &Shared) -> Snapshot {
    let latencies = || shared.samples.iter().map(|samples| &samples.latencies);
    let (totals, pools) = (shared.totals(), shared.pools.current());
    Snapshot {
        time_unix_ms: unix_now().as_millis() as u64,
        uptime: shared.uptime(),
        cache: CounterSnapshot { memory_limit_bytes: shared.cache.memory_bytes(), ..pools.counter_snapshot() },
        pools: pools.read(&totals).into_iter().map(|reading| (reading.rule.name, reading.totals)).collect(),
        totals,
        connections: lock(&shared.connections).len() as u64,
        connections_limit: shared.options.max_connections as u64,
        rejected: shared.rejected.load(Ordering::Relaxed),
        listen_disabled: shared.listen_disabled.load(Ordering::Relaxed),
        latencies: CommandKind::ALL.iter().map(|&command| LatencyHistogram::sum(latencies(), command)).collect(),
        flash: flash(shared),
        memory_file_refusals: shared.cache.refused_by_memory_file(),
        monitor_step: shared.cache.memory_monitor().and_then(|monitor| monitor.last_step),
    }
}

fn flash(shared: &Shared) -> Option<FlashSnapshot> {
    let tier = shared.cache.flash_stats()?.tier;
    let in_pages = tier.written.small_pages;
    // The life of a drive follows from recurring writes.
    let drive_writes = DriveWrites { in_sequence: tier.written.recurring() - in_pages, in_pages };
    Some(FlashSnapshot {
        drive_writes,
        health: tier.device.health,
        dropped_behind: tier.drops.behind,
        evicted: tier.evictions.for_space(),
        drives: None,
    })
}
