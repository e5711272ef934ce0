//! Shares of threads in a number of things.

/// Where the share of a thread starts.
pub(super) fn share_start(total: u64, thread: u16, threads: u16) -> u64 {
    (u128::from(total) * u128::from(thread) / u128::from(threads)) as u64
}

/// How many things the share of a thread has.
pub(super) fn share(total: u64, thread: u16, threads: u16) -> u64 {
    share_start(total, thread + 1, threads) - share_start(total, thread, threads)
}
