use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::load_kind::LoadKind;
use super::objects::{Objects, Recording};
use super::plan::Plan;
use super::share::{share, share_start};
use crate::generate::CountArg;
use crate::workload::{Popularity, Random, Ranks};

/// The requests of one thread in one phase.
pub(super) struct Load {
    source: LoadSource,
    batch: u64,
    /// Keys still to draw.
    left: u64,
}

enum LoadSource {
    Drawn {
        ranks: Ranks,
        random: Random,
        get_ratio: f64,
    },
    /// Each thread plays every `stride`-th step of the trace.
    Recorded {
        recording: Arc<Recording>,
        place: u64,
        stride: u64,
    },
    /// Sets of these objects of a recording.
    Lasting(std::vec::IntoIter<u32>),
}

impl Load {
    /// The thread's share of setting each key once, in the order of their numbers.
    pub(super) fn prefill(plan: &Plan, thread: u16) -> Self {
        let keys = plan.objects.count();
        let threads = plan.args.threads;
        if let Objects::Recorded(recording) = &plan.objects {
            let numbers = recording.lasting(share_start(keys, thread, threads)..share_start(keys, thread + 1, threads));
            let left = numbers.len() as u64;
            return Self { source: LoadSource::Lasting(numbers.into_iter()), batch: 1, left };
        }
        let source = LoadSource::Drawn {
            ranks: Ranks::new(Popularity::Scan, keys, 0.0, share_start(keys, thread, threads)),
            random: Random::new(plan.args.seed, u64::from(thread)),
            get_ratio: 0.0,
        };
        Self { source, batch: 1, left: share(keys, thread, threads) }
    }

    /// The thread's share of the load before the measurement, or of the one to measure.
    pub(super) fn mixed(plan: &Plan, thread: u16) -> Self {
        let args = &plan.args;
        let source = match &plan.objects {
            Objects::Drawn { keys, .. } => LoadSource::Drawn {
                ranks: Ranks::new(args.popularity, *keys, args.exponent, share_start(*keys, thread, args.threads)),
                random: Random::new(args.seed, u64::from(thread)),
                get_ratio: args.get_ratio,
            },
            Objects::Recorded(recording) => LoadSource::Recorded {
                recording: Arc::clone(recording),
                place: u64::from(thread),
                stride: u64::from(args.threads),
            },
        };
        let mut load = Self { source, batch: u64::from(args.batch), left: 0 };
        match args.warmup {
            Some(CountArg(requests)) => load.left = share(requests, thread, args.threads),
            None => load.measure(plan, thread),
        }
        load
    }

    /// Continues with the measured requests.
    pub(super) fn measure(&mut self, plan: &Plan, thread: u16) {
        self.left = match plan.args.requests {
            Some(CountArg(requests)) => share(requests, thread, plan.args.threads),
            None => u64::MAX,
        };
    }

    /// The next request and how many keys it has, each to be drawn with `number`; `None` when the phase is over.
    pub(super) fn next(&mut self, stop: &AtomicBool) -> Option<(LoadKind, u16)> {
        if self.left == 0 || stop.load(Ordering::Relaxed) {
            return None;
        }
        let max = self.batch.min(self.left);
        let (kind, keys) = match &mut self.source {
            LoadSource::Drawn { random, get_ratio, .. } => match random.next_unit() < *get_ratio {
                true => (LoadKind::Get, max),
                false => (LoadKind::Set, 1),
            },
            LoadSource::Lasting(_) => (LoadKind::Set, 1),
            LoadSource::Recorded { recording, place, stride } => {
                let kind = |step: u64| recording.step(*place + step * *stride).kind();
                match kind(0) {
                    LoadKind::Get => {
                        let gets = (0..max).take_while(|step| kind(*step) == LoadKind::Get);
                        (LoadKind::Get, gets.count() as u64)
                    }
                    other => (other, 1),
                }
            }
        };
        self.left -= keys;
        Some((kind, keys as u16))
    }

    /// Whether all requests of the phase are drawn.
    pub(super) fn is_drawn(&self) -> bool {
        self.left == 0
    }

    /// The number of the next key.
    pub(super) fn number(&mut self) -> u64 {
        match &mut self.source {
            LoadSource::Drawn { ranks, random, .. } => ranks.next(random),
            LoadSource::Lasting(numbers) => numbers.next().map_or(0, u64::from),
            LoadSource::Recorded { recording, place, stride } => {
                let step = recording.step(*place);
                *place += *stride;
                step.object()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::BenchArgs;
    use clap::Parser;
    use std::io::Write;

    #[derive(Parser)]
    struct TestArgs {
        #[command(flatten)]
        args: BenchArgs,
    }

    fn plan(line: &str) -> Plan {
        let args = TestArgs::parse_from(std::iter::once("bench").chain(line.split_whitespace())).args;
        Plan::new(&args).unwrap()
    }

    #[test]
    fn threads_together_prefill_every_key_once() {
        let plan = plan("--keys 1001 --threads 3 --seed 5");
        let stop = AtomicBool::new(false);
        let mut seen = vec![0; 1001];
        for thread in 0..3 {
            let mut load = Load::prefill(&plan, thread);
            while let Some((kind, keys)) = load.next(&stop) {
                assert_eq!((kind, keys), (LoadKind::Set, 1));
                seen[load.number() as usize] += 1;
            }
        }
        assert!(seen.into_iter().all(|times| times == 1));
    }

    #[test]
    fn requests_count_keys_and_follow_the_ratio() {
        let plan = plan("--keys 100 --requests 100000 --batch 7 --get-ratio 0.5 --threads 2");
        let stop = AtomicBool::new(false);
        let (mut gets, mut sets) = (0u64, 0u64);
        for thread in 0..2 {
            let mut load = Load::mixed(&plan, thread);
            while let Some((kind, keys)) = load.next(&stop) {
                match kind {
                    LoadKind::Get => gets += u64::from(keys),
                    LoadKind::Set => sets += 1,
                    other => panic!("drawn loads have no {other:?}"),
                }
            }
        }
        assert_eq!(gets + sets, 100_000);
        let ratio = gets as f64 / sets as f64;
        assert!((6.5..7.5).contains(&ratio), "{ratio}");
    }

    #[test]
    fn threads_play_a_trace_in_turn_repeatedly() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let steps = ["1,8,9,get", "2,8,9,get", "1,8,9,delete", "3,8,9,set", "1,8,9,get", "1,8,9,gets"];
        file.write_all(b"timestamp_s,key_id,key_size,value_size,op,ttl_s\n").unwrap();
        steps.iter().for_each(|step| writeln!(file, "0,{step},0").unwrap());
        let path = file.path().display();
        let played = |flags: &str, thread| {
            let plan = plan(&format!("--trace {path} {flags}"));
            let mut load = Load::mixed(&plan, thread);
            let mut played = Vec::new();
            while let Some((kind, keys)) = load.next(&AtomicBool::new(false)) {
                played.push((kind, (0..keys).map(|_| load.number()).collect::<Vec<u64>>()));
            }
            played
        };
        let get = |numbers: &[u64]| (LoadKind::Get, numbers.to_vec());
        let set = |number| (LoadKind::Set, vec![number]);
        let delete = |number| (LoadKind::Delete, vec![number]);
        assert_eq!(played("--requests 8 --batch 4", 0), [get(&[0, 1]), delete(0), set(2), get(&[0, 0, 0, 1])]);
        let by_threads = [played("--requests 6 --threads 2", 0), played("--requests 6 --threads 2", 1)];
        assert_eq!(by_threads, [[get(&[0]), delete(0), get(&[0])], [get(&[1]), set(2), get(&[0])]]);
    }

    #[test]
    fn the_measurement_goes_on_where_the_warmup_ended() {
        let numbers = |load: &mut Load| {
            std::iter::from_fn(|| load.next(&AtomicBool::new(false)).map(|_| load.number())).collect::<Vec<u64>>()
        };
        let warm = plan("--keys 50 --requests 20 --warmup 30 --seed 3");
        let mut load = Load::mixed(&warm, 0);
        let before = numbers(&mut load);
        load.measure(&warm, 0);
        let measured = numbers(&mut load);
        assert_eq!((before.len(), measured.len()), (30, 20));
        let whole = numbers(&mut Load::mixed(&plan("--keys 50 --requests 50 --seed 3"), 0));
        assert_eq!([before, measured].concat(), whole);
    }

    #[test]
    fn a_stop_ends_the_load() {
        let mut load = Load::mixed(&plan("--seconds 1"), 0);
        assert!(load.next(&AtomicBool::new(false)).is_some());
        assert!(load.next(&AtomicBool::new(true)).is_none());
    }
}
