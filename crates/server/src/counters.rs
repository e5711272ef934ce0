//! Counters of the workers. Each worker has its own counters on its own cache lines and is their only writer, so
//! counting is a plain load and store. Readers sum them. `stats reset` does not change them: it stores the sums as a
//! baseline, and later answers are relative to it.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters of one worker.
        #[derive(Default)]
        #[repr(align(128))]
        pub struct CommandCounters {
            $($(#[$doc])* pub $name: WorkerCounter,)*
        }

        /// Counts summed over workers.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct CommandTotals {
            $(pub $name: u64,)*
        }

        impl CommandTotals {
            pub fn sum<'a>(workers: impl Iterator<Item = &'a CommandCounters>) -> Self {
                let mut totals = Self::default();
                for worker in workers {
                    $(totals.$name += worker.$name.get();)*
                }
                totals
            }

            pub fn since(&self, baseline: &Self) -> Self {
                Self { $($name: self.$name - baseline.$name,)* }
            }
        }
    };
}

counters! {
    get_hits,
    get_misses,
    set_commands,
    /// Storage commands whose condition did not hold.
    not_stored,
    flush_commands,
    /// me commands; the other meta commands count as their classic equivalents.
    meta_commands,
    touch_hits,
    touch_misses,
    delete_hits,
    delete_misses,
    incr_hits,
    incr_misses,
    decr_hits,
    decr_misses,
    cas_hits,
    cas_misses,
    /// cas commands whose token was not the item's.
    cas_badval,
    store_too_large,
    store_no_memory,
    /// Authentications, and failed ones.
    auth_commands,
    auth_errors,
    bytes_read,
    bytes_written,
    /// Connections closed because they were idle.
    idle_kicks,
    /// Failed handshakes, including those that the client aborted.
    tls_handshake_errors,
    /// Commands that were deferred because they would have waited for memory.
    memory_waits,
    /// Times that a connection with more to do yielded to others.
    yields,
    /// Time of polling instead of sleeping.
    busy_poll_ns,
}

/// A count with one writer.
#[derive(Default)]
pub struct WorkerCounter(AtomicU64);

impl WorkerCounter {
    /// Must be called on the thread that owns the counters.
    #[inline]
    pub fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_relative_to_the_reset() {
        let workers = [CommandCounters::default(), CommandCounters::default()];
        workers[0].get_hits.add(3);
        let baseline = CommandTotals::sum(workers.iter());
        workers[0].get_hits.add(1);
        workers[1].get_hits.add(2);
        workers[1].get_misses.add(5);
        let since = CommandTotals::sum(workers.iter()).since(&baseline);
        assert_eq!((since.get_hits, since.get_misses), (3, 5));
    }
}
