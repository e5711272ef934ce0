use std::sync::atomic::{AtomicBool, Ordering};

use super::BenchArgs;
use crate::workload::{Popularity, Random, Ranks};

/// What to send next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Of as many keys as a batch has.
    Get,
    Set,
}

/// Draws the requests of one thread in one phase.
pub(super) struct Load {
    ranks: Ranks,
    random: Random,
    get_ratio: f64,
    batch: u64,
    /// Keys still to draw.
    left: u64,
}

impl Load {
    /// The thread's share of setting each key once, in the order of their numbers.
    pub(super) fn prefill(args: &BenchArgs, thread: u16) -> Self {
        Self {
            get_ratio: 0.0,
            left: share(args.keys, thread, args.threads),
            ..Self::new(args, Popularity::Scan, thread)
        }
    }

    /// The thread's share of the load to measure.
    pub(super) fn mixed(args: &BenchArgs, thread: u16) -> Self {
        Self {
            left: match args.requests {
                Some(requests) => share(requests, thread, args.threads),
                None => u64::MAX,
            },
            ..Self::new(args, args.popularity, thread)
        }
    }

    fn new(args: &BenchArgs, popularity: Popularity, thread: u16) -> Self {
        let start = share_start(args.keys, thread, args.threads);
        Self {
            ranks: Ranks::new(popularity, args.keys, args.exponent, start),
            random: Random::new(args.seed, u64::from(thread)),
            get_ratio: args.get_ratio,
            batch: u64::from(args.batch),
            left: 0,
        }
    }

    /// The next request and how many keys it has, each to be drawn with `number`; `None` when the phase is over.
    pub(super) fn next(&mut self, stop: &AtomicBool) -> Option<(Kind, u16)> {
        if self.left == 0 || stop.load(Ordering::Relaxed) {
            return None;
        }
        let get = self.random.next_unit() < self.get_ratio;
        let keys = if get { self.batch.min(self.left) } else { 1 };
        self.left -= keys;
        Some((if get { Kind::Get } else { Kind::Set }, keys as u16))
    }

    /// The number of the next key.
    pub(super) fn number(&mut self) -> u64 {
        self.ranks.next(&mut self.random)
    }
}

/// Where the share of a thread starts.
fn share_start(total: u64, thread: u16, threads: u16) -> u64 {
    (u128::from(total) * u128::from(thread) / u128::from(threads)) as u64
}

fn share(total: u64, thread: u16, threads: u16) -> u64 {
    share_start(total, thread + 1, threads) - share_start(total, thread, threads)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: BenchArgs,
    }

    fn args(line: &str) -> BenchArgs {
        Line::parse_from(std::iter::once("bench").chain(line.split_whitespace())).args
    }

    #[test]
    fn the_prefill_of_all_threads_is_every_key_once() {
        let args = args("--keys 1001 --threads 3 --seed 5");
        let stop = AtomicBool::new(false);
        let mut seen = vec![0; 1001];
        for thread in 0..3 {
            let mut load = Load::prefill(&args, thread);
            while let Some((kind, keys)) = load.next(&stop) {
                assert_eq!((kind, keys), (Kind::Set, 1));
                seen[load.number() as usize] += 1;
            }
        }
        assert!(seen.into_iter().all(|times| times == 1));
    }

    #[test]
    fn requests_count_keys_and_follow_the_ratio() {
        let args = args("--keys 100 --requests 100000 --batch 7 --get-ratio 0.5 --threads 2");
        let stop = AtomicBool::new(false);
        let (mut gets, mut sets) = (0u64, 0u64);
        for thread in 0..2 {
            let mut load = Load::mixed(&args, thread);
            while let Some((kind, keys)) = load.next(&stop) {
                match kind {
                    Kind::Get => gets += u64::from(keys),
                    Kind::Set => sets += 1,
                }
            }
        }
        assert_eq!(gets + sets, 100_000);
        let ratio = gets as f64 / sets as f64;
        assert!((6.5..7.5).contains(&ratio), "{ratio}");
    }

    #[test]
    fn a_stop_ends_the_load() {
        let mut load = Load::mixed(&args("--seconds 1"), 0);
        assert!(load.next(&AtomicBool::new(false)).is_some());
        assert!(load.next(&AtomicBool::new(true)).is_none());
    }
}
