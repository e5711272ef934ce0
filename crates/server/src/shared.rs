//! State that all threads of a server share. Nothing here is written per command.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ebbtide::memcached::Cache;
use slab::Slab;

use crate::connection_info::ConnectionInfo;
use crate::counters::{CommandCounters, CommandTotals};
use crate::dump_thread::DumpThread;
use crate::evictions::EvictionListener;
use crate::extstore_counts::FlashGets;
use crate::observe::{Level, PoolWindow, Recent, Samples, Sizing, TrafficSketch};
use crate::options::ServerOptions;
use crate::pools::PublishedPools;
use crate::stats_prefix::PrefixStats;
use crate::sync::lock;
use crate::tls::Certificates;
use crate::watch::Watching;

pub struct Shared {
    pub cache: Cache,
    pub pools: PublishedPools,
    pub options: ServerOptions,
    /// Where the admin HTTP listens, with the port that was taken.
    pub admin_address: Option<SocketAddr>,
    pub counters: Vec<CommandCounters>,
    pub watching: Arc<Watching>,
    pub evictions: EvictionListener,
    pub dump_thread: DumpThread,
    pub prefix_stats: PrefixStats,
    /// Present when a listener uses TLS.
    pub certificates: Option<Certificates>,
    /// Samples of each worker.
    pub samples: Vec<Samples>,
    /// Profiles the accesses where there is an admin interface.
    pub sizing: Sizing,
    /// The numbers of the last minute, as of the last second; those of a default without an admin interface.
    pub recent: Mutex<Recent>,
    /// The numbers of the last minute of each pool; empty without an admin interface.
    pub recent_pools: Mutex<Vec<PoolWindow>>,
    /// The state in one sentence, as of the last second; without an admin interface as at the start.
    pub headline: Mutex<(Level, String)>,
    pub started: Instant,
    pub verbosity: AtomicU32,
    pub stopping: AtomicBool,
    /// Wakes the acceptor, which then stops the workers.
    pub acceptor: mio::Waker,
    /// Names of the listeners.
    pub listeners: Vec<String>,
    pub accepted: AtomicU64,
    pub rejected: AtomicU64,
    /// Number of times that accepting was suspended for lack of file descriptors.
    pub listen_disabled: AtomicU64,
    /// Total time of these suspensions in microseconds.
    pub listen_disabled_us: AtomicU64,
    pub accepting: AtomicBool,
    pub baseline: Mutex<StatsBaseline>,
    pub connections: Mutex<Slab<Arc<ConnectionInfo>>>,
}

/// Values at the last `stats reset`.
#[derive(Default)]
pub struct StatsBaseline {
    pub totals: CommandTotals,
    pub cache: ebbtide::memcached::Stats,
    pub unread_evictions: u64,
    /// Gets from flash.
    pub gets: FlashGets,
    pub accepted: u64,
    pub rejected: u64,
    pub listen_disabled: u64,
    pub listen_disabled_us: u64,
}

impl Shared {
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.acceptor.wake().expect("an event counter takes one more event");
    }

    /// Pairs with the release in `stop`; no other data depends on the flag.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Why the admin HTTP hides keys: its readers may not dump them from the server. `None` if it shows keys.
    pub fn keys_hidden(&self) -> Option<&'static str> {
        match () {
            () if self.options.auth.is_some() => Some("clients must authenticate, and readers of this page do not"),
            () if !self.options.allow_dump => Some("listing keys is switched off (-X)"),
            () => None,
        }
    }

    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    pub fn totals(&self) -> CommandTotals {
        CommandTotals::sum(self.counters.iter())
    }

    /// Sampled accesses by key prefix, of all workers.
    pub fn traffic(&self) -> TrafficSketch {
        let mut sum = TrafficSketch::default();
        for samples in &self.samples {
            sum.merge(&lock(&samples.traffic));
        }
        sum
    }

    pub fn reset_stats(&self) {
        self.pools.current().reset(&self.totals());
        *lock(&self.baseline) = StatsBaseline {
            totals: self.totals(),
            cache: self.cache.stats(),
            unread_evictions: self.pools.current().unread_evictions(),
            gets: self.cache.flash_stats().map(|flash| FlashGets::of(&flash)).unwrap_or_default(),
            accepted: self.accepted.load(Ordering::Relaxed),
            rejected: self.rejected.load(Ordering::Relaxed),
            listen_disabled: self.listen_disabled.load(Ordering::Relaxed),
            listen_disabled_us: self.listen_disabled_us.load(Ordering::Relaxed),
        };
    }

    pub fn logs(&self, level: u32) -> bool {
        self.verbosity.load(Ordering::Relaxed) >= level
    }
}
