//! What the answers of the admin interface are made from, and the look at all counters once a second.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::observe::{CommandKind, DriveWrites, FlashSnapshot, LatencyHistogram, Observer, Snapshot};
use crate::shared::Shared;
use crate::sync::lock;
use crate::unix_time::unix_now;

/// What is left of a hot key's weight after a second: half of it after ten.
const HOT_KEYS_DECAY: f64 = 0.933;
/// What the answers are made from.
pub struct AdminState {
    pub shared: Arc<Shared>,
    pub observer: Mutex<Observer>,
    /// When the server started, by the system's clock.
    pub started_unix: Duration,
    pub checks_host: bool,
}

impl AdminState {
    pub fn new(shared: Arc<Shared>, address: SocketAddr) -> Self {
        shared.sizing.start(&shared.cache, shared.options.controller);
        Self {
            started_unix: unix_now().saturating_sub(shared.uptime()),
            shared,
            observer: Mutex::default(),
            checks_host: address.ip().is_loopback(),
        }
    }

    /// Looks at all counters: to be called once a second.
    pub fn observe(&self) {
        let mut snapshot = snapshot(&self.shared);
        let asks_drives = lock(&self.observer).is_to_ask_drives(snapshot.uptime);
        if let Some(flash) = snapshot.flash.as_mut().filter(|_| asks_drives) {
            flash.drives = self.shared.cache.ask_flash_drives();
        }
        let mut observer = lock(&self.observer);
        for samples in &self.shared.samples {
            lock(&samples.hot_keys).decay(HOT_KEYS_DECAY);
        }
        observer.observe(snapshot);
        let (gets, hits) = observer.gets_and_hits();
        drop(observer);
        if let Some(decision) = self.shared.sizing.update(gets, hits) {
            eprintln!("ebbtide: {decision}");
            lock(&self.observer).note_division(unix_now().as_millis() as u64, decision);
        }
    }
}

fn snapshot(shared: &Shared) -> Snapshot {
    let latencies = || shared.samples.iter().map(|samples| &samples.latencies);
    Snapshot {
        time_unix_ms: unix_now().as_millis() as u64,
        uptime: shared.uptime(),
        totals: shared.totals(),
        cache: shared.pools.current().counter_snapshot(),
        connections: lock(&shared.connections).len() as u64,
        connections_limit: shared.options.max_connections as u64,
        rejected: shared.rejected.load(Ordering::Relaxed),
        listen_disabled: shared.listen_disabled.load(Ordering::Relaxed),
        latencies: CommandKind::ALL.iter().map(|&command| LatencyHistogram::sum(latencies(), command)).collect(),
        flash: flash(shared),
    }
}

fn flash(shared: &Shared) -> Option<FlashSnapshot> {
    let tier = shared.cache.flash_stats()?.tier;
    let in_pages = tier.written.small_pages;
    // The life of a drive is of what goes on.
    let drive_writes = DriveWrites { in_sequence: tier.written.recurring() - in_pages, in_pages };
    Some(FlashSnapshot { drive_writes, health: tier.device.health, dropped_behind: tier.drops.behind, drives: None })
}
