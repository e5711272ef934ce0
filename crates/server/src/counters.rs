//! What the workers count. Each worker has its own counters on cache lines of its own, and is the only one to write
//! them: counting is a plain load and store. They are summed when somebody asks. `stats reset` does not touch them:
//! it remembers the sums of that moment, and later answers are relative to these.

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
                    $(totals.$name += worker.$name.0.load(Ordering::Relaxed);)*
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
    /// me commands: memcached counts the others by what they do.
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
    /// Attempts to say who one is, and those of them that failed.
    auth_commands,
    auth_errors,
    bytes_read,
    bytes_written,
    /// Connections closed because they were idle.
    idle_kicks,
    /// Handshakes that failed, of clients that broke them off as well.
    tls_handshake_errors,
    /// Times that a command was put off because it would have waited for memory.
    memory_waits,
    /// Times that a connection with more to do gave way to others.
    yields,
    /// Time in which a worker asked for news instead of sleeping.
    busy_poll_ns,
}

/// A count with one writer.
#[derive(Default)]
pub struct WorkerCounter(AtomicU64);

impl WorkerCounter {
    /// Only for the thread that owns the counters.
    #[inline]
    pub fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + count, Ordering::Relaxed);
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
