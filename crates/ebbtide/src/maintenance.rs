//! The thread of a cache, which refreshes the coarse time and does the maintenance. Threads of flash are in `flash/threads.rs`.
//!
//! It wakes every few milliseconds, and at once when a writer sees that free segments run low. Between slices of work it
//! gives its core away, so that no request waits for a merge; and it lets flash take what was evicted, unless writers wait,
//! or the memory is to get smaller. It holds the cache weakly: it ends when the cache does.

use crate::cache::Shared;
use ebbtide_store::{Participant, Progress};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

/// How often the coarse time is refreshed, and maintenance and the upkeep of flash look whether something is due.
pub(crate) const TICK: Duration = Duration::from_millis(5);
/// The same while memory hangs on another thread.
const WAITING_TICK: Duration = Duration::from_micros(500);

/// Starts the background thread of a cache.
pub(crate) fn start(shared: &Arc<Shared>) -> std::io::Result<()> {
    let weak = Arc::downgrade(shared);
    thread::Builder::new().name("ebbtide-maintain".into()).spawn(move || maintain(&weak))?;
    Ok(())
}

impl Shared {
    /// Works until nothing is due, or another thread has to go on first: whether that is so. While flash could not take what
    /// is evicted, all but evictions goes on.
    fn run_due_maintenance(&self, participant: &Participant, tick: impl Fn() -> u64) -> bool {
        let store = &*self.store;
        let mut evicts = self.flash.as_ref().is_none_or(|flash| flash.can_demote()) || !store.resize_done();
        loop {
            let progress = match evicts {
                true => store.maintain(participant, tick()),
                false => store.maintain_without_evicting(participant, tick()),
            };
            if progress != Progress::Working && (evicts || !store.is_low() && !store.needs_shrink()) {
                return matches!(progress, Progress::Waiting(_));
            }
            match &self.flash {
                Some(flash) if evicts || progress != Progress::Working => {
                    flash.wait_until_can_demote(|| flash.max_demotion_wait(store), &tick);
                    evicts = true;
                }
                _ => thread::yield_now(),
            }
        }
    }
}

fn maintain(weak: &Weak<Shared>) {
    let Some(shared) = weak.upgrade() else { return };
    let participant = shared.store.participate();
    shared.waker.register_current_thread();
    drop(shared);
    loop {
        let is_waiting = {
            let Some(shared) = weak.upgrade() else { return };
            let _working = shared.maintaining.lock().expect("a verification has panicked");
            shared.waker.reset();
            // The work may not end for as long as there are writers: flash is told the time all along.
            let tick = || {
                let now_ms = shared.time.tick();
                shared.flash.iter().for_each(|flash| flash.note_time(now_ms));
                now_ms
            };
            shared.rebalance_memory();
            let is_waiting = shared.run_due_maintenance(&participant, tick);
            shared.move_idle(&participant, tick());
            is_waiting
        };
        thread::park_timeout(if is_waiting { WAITING_TICK } else { TICK });
    }
}

#[cfg(test)]
mod tests {
    use crate::byte_size::ByteSize;
    use crate::cache::Cache;
    use std::time::{Duration, Instant};

    #[test]
    fn the_memory_gets_smaller_though_flash_has_no_room() {
        let folder = tempfile::tempdir().unwrap();
        let builder = Cache::builder().memory(ByteSize::mib(64));
        let cache = builder.flash(folder.path().join("flash"), ByteSize::mib(64)).build().unwrap();
        let flash = cache.shared.flash.as_ref().unwrap();
        let insert = |number: u32| drop(cache.insert(&number.to_le_bytes(), &[7; 3000]).apply());
        (0..30_000).for_each(insert);
        let _without_upkeep = flash.maintaining.lock().unwrap();
        (30_000..60_000).take_while(|_| flash.tier.has_space()).for_each(insert);
        assert!(!flash.tier.has_space());
        cache.resize(ByteSize::mib(32)).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while !cache.shared.store.resize_done() {
            assert!(Instant::now() < deadline, "evictions wait for flash");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
