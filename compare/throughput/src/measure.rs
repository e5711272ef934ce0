//! One measurement: fill, warm up, measure. Each value that a get answers is compared with the key's number, so that no
//! engine is measured while wrong; the comparison costs all the same.

use std::fmt;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use crate::Error;
use crate::engine::{BATCH, Ebbtide, Engine, EngineName, Foyer, Map, Mode, Moka, QuickCache, Segcache, Size};
use crate::plan::{Plan, Sharing};
use crate::process;
use crate::workload::{self, Key, Request, Work, key};

/// Results of a measurement. Printed and parsed as words with a space between.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Sum of the threads' rates; a set after a miss is part of its get.
    pub ops_per_second: f64,
    pub hit_ratio: f64,
    /// Resident memory of the full cache, without the requests and the program.
    pub rss_bytes: u64,
    /// Processor time of all threads, the engine's own included, per operation.
    pub cpu_ns_per_op: f64,
    /// Sets that the engine did not carry out.
    pub failed_sets: u64,
}

/// Carries a plan out in this process, which is confined to as many cores as there are threads.
pub fn run(plan: &Plan) -> Result<Outcome, Error> {
    match plan.engine {
        EngineName::Ebbtide => run_on::<Ebbtide>(plan),
        EngineName::Segcache => run_on::<Segcache>(plan),
        EngineName::QuickCache => run_on::<QuickCache>(plan),
        EngineName::Moka => run_on::<Moka>(plan),
        EngineName::Foyer => run_on::<Foyer>(plan),
        EngineName::Map => run_on::<Map>(plan),
    }
}

fn run_on<E: Engine>(plan: &Plan) -> Result<Outcome, Error> {
    let cores = process::cores()?;
    // The last cores: the first ones run the system's own work.
    let cores = &cores[cores.len().saturating_sub(plan.threads as usize)..];
    process::confine(cores)?;
    if plan.ttls > 0 && !plan.engine.expires() {
        return Err(Error::Plan(format!("{} is measured without TTLs only: leave out --ttls", plan.engine)));
    }
    let works = draw(plan)?;
    let baseline = process::resident_bytes()?;
    let size = Size {
        capacity_bytes: plan.capacity_bytes(),
        value_bytes: plan.value_bytes,
        objects: (plan.capacity_bytes() / plan.object_bytes()).min(u64::from(plan.keys)),
        threads: plan.threads,
    };
    let caches = if plan.sharing == Sharing::Private { plan.threads } else { 1 };
    let build = |_| E::build(&size).map_err(|reason| Error::Build { engine: plan.engine, reason });
    let caches = (0..caches).map(build).collect::<Result<Vec<E>, _>>()?;
    let (tallies, processor_time) = drive(plan, &caches, &works, cores)?;
    let rss_bytes = process::resident_bytes()?.saturating_sub(baseline);
    let sum = |part: fn(&Tally) -> u64| tallies.iter().map(part).sum::<u64>();
    let wrong = sum(|tally| tally.wrong);
    if wrong > 0 {
        return Err(Error::WrongValues { engine: plan.engine, wrong });
    }
    let operations = sum(|tally| tally.requests);
    Ok(Outcome {
        ops_per_second: tallies.iter().map(|tally| tally.requests as f64 / tally.seconds).sum(),
        hit_ratio: sum(|tally| tally.hits) as f64 / sum(|tally| tally.gets).max(1) as f64,
        rss_bytes,
        cpu_ns_per_op: processor_time * 1e9 / operations as f64,
        failed_sets: sum(|tally| tally.failed_sets),
    })
}

/// The work of all threads, each drawn in a thread.
fn draw(plan: &Plan) -> Result<Vec<Work>, Error> {
    std::thread::scope(|scope| {
        let draw = |thread| scope.spawn(move || workload::draw(plan, thread));
        (0..plan.threads).map(draw).collect::<Vec<_>>().into_iter().map(joined).collect()
    })
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Runs all threads through their work. Returns what each counted, and the processor seconds of the measured part.
fn drive<E: Engine>(plan: &Plan, caches: &[E], works: &[Work], cores: &[usize]) -> Result<(Vec<Tally>, f64), Error> {
    let line = Barrier::new(works.len());
    let line = &line;
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (i, work) in works.iter().enumerate() {
            let (cache, core) = (&caches[i % caches.len()], cores[i % cores.len()]);
            threads.push(scope.spawn(move || -> Result<_, Error> {
                process::confine(&[core])?;
                let mut worker = Worker::new(plan, cache);
                for &number in &work.fill {
                    worker.set(number);
                }
                line.wait();
                worker.run_for(&work.warm_up, plan.seconds.map(|seconds| seconds / 2));
                worker.tally = Tally::default();
                line.wait();
                let (began, processor_began) = (Instant::now(), process::processor_time());
                worker.run_for(&work.measured, plan.seconds);
                worker.tally.seconds = began.elapsed().as_secs_f64();
                line.wait();
                Ok((worker.tally, (process::processor_time() - processor_began).as_secs_f64()))
            }));
        }
        let done = threads.into_iter().map(joined).collect::<Result<Vec<_>, _>>()?;
        let processor_time = done.iter().map(|&(_, seconds)| seconds).fold(0.0, f64::max);
        Ok((done.into_iter().map(|(tally, _)| tally).collect(), processor_time))
    })
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    requests: u64,
    gets: u64,
    hits: u64,
    wrong: u64,
    failed_sets: u64,
    seconds: f64,
}

struct Worker<'a, E> {
    cache: &'a E,
    mode: Mode,
    fills: bool,
    /// Value of every set: the number of the key, then constant bytes.
    value: Vec<u8>,
    copy: Vec<u8>,
    ttls: Vec<Duration>,
    tally: Tally,
}

/// Requests between two looks at the clock; a multiple of a batch.
const BETWEEN_CLOCKS: usize = 64 * BATCH;

impl<'a, E: Engine> Worker<'a, E> {
    fn new(plan: &Plan, cache: &'a E) -> Self {
        let value = (0..plan.value_bytes).map(|i| i as u8).collect();
        let copy = Vec::with_capacity(plan.value_bytes as usize);
        let ttls = plan.ttl_table();
        Self { cache, mode: plan.mode, fills: plan.mix.fills(), value, copy, ttls, tally: Tally::default() }
    }

    /// All requests, or as many as the time allows.
    fn run_for(&mut self, requests: &[Request], time: Option<Duration>) {
        let Some(time) = time else { return self.run(requests) };
        let began = Instant::now();
        for part in requests.chunks(BETWEEN_CLOCKS) {
            self.run(part);
            if began.elapsed() >= time {
                break;
            }
        }
    }

    fn run(&mut self, requests: &[Request]) {
        self.tally.requests += requests.len() as u64;
        match self.mode {
            Mode::Get => self.one_by_one(requests, |worker, key| {
                worker.cache.get(key, &mut worker.copy).then(|| number_in(black_box(&worker.copy)))
            }),
            Mode::ZeroCopy => self.one_by_one(requests, |worker, key| worker.cache.look(key, number_in)),
            Mode::Batch => requests.chunks(BATCH).for_each(|run| self.batch(run)),
        }
    }

    #[inline(always)]
    fn one_by_one(&mut self, requests: &[Request], get: impl Fn(&mut Self, &Key) -> Option<u64>) {
        for request in requests {
            let number = request.number();
            if request.is_set() {
                self.set(number);
                continue;
            }
            let found = get(self, &key(number));
            self.count(number, found);
            if found.is_none() && self.fills {
                self.set(number);
            }
        }
    }

    /// First the gets of a run, then its sets and those after misses.
    #[inline(always)]
    fn batch(&mut self, run: &[Request]) {
        let (mut keys, mut numbers, mut gets) = ([Key::default(); BATCH], [0; BATCH], 0);
        let (mut sets, mut set_count) = ([0; BATCH], 0);
        for request in run {
            if request.is_set() {
                sets[set_count] = request.number();
                set_count += 1;
            } else {
                (keys[gets], numbers[gets]) = (key(request.number()), request.number());
                gets += 1;
            }
        }
        let (tally, fills) = (&mut self.tally, self.fills);
        self.cache.get_batch(&keys[..gets], &mut self.copy, |i, value| {
            let found = value.map(|value| number_in(black_box(value)));
            tally.count(numbers[i], found);
            if found.is_none() && fills {
                sets[set_count] = numbers[i];
                set_count += 1;
            }
        });
        for &number in &sets[..set_count] {
            self.set(number);
        }
    }

    #[inline(always)]
    fn count(&mut self, number: u32, found: Option<u64>) {
        self.tally.count(number, found);
    }

    #[inline(always)]
    fn set(&mut self, number: u32) {
        self.value[..8].copy_from_slice(&u64::from(number).to_le_bytes());
        let stored = if self.ttls.is_empty() {
            self.cache.set(&key(number), &self.value)
        } else {
            self.cache.set_with_ttl(&key(number), &self.value, self.ttls[number as usize % self.ttls.len()])
        };
        self.tally.failed_sets += u64::from(!stored);
    }
}

impl Tally {
    #[inline(always)]
    fn count(&mut self, number: u32, found: Option<u64>) {
        self.gets += 1;
        self.hits += u64::from(found.is_some());
        self.wrong += u64::from(found.is_some_and(|found| found != u64::from(number)));
    }
}

#[inline(always)]
fn number_in(value: &[u8]) -> u64 {
    value.first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ops_per_second, hit_ratio, rss_bytes, cpu_ns_per_op, failed_sets } = self;
        write!(f, "{ops_per_second:.0} {hit_ratio:.5} {rss_bytes} {cpu_ns_per_op:.1} {failed_sets}")
    }
}

impl Outcome {
    /// Parses the output of `Display`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        Some(Self {
            ops_per_second: words.next()?.parse().ok()?,
            hit_ratio: words.next()?.parse().ok()?,
            rss_bytes: words.next()?.parse().ok()?,
            cpu_ns_per_op: words.next()?.parse().ok()?,
            failed_sets: words.next()?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Mix;

    /// Keeps one object, and gives it for every key.
    struct Liar(parking_lot::Mutex<Vec<u8>>);

    impl Engine for Liar {
        fn build(_: &Size) -> Result<Self, String> {
            Ok(Self(parking_lot::Mutex::default()))
        }

        fn look<R>(&self, _: &Key, look: impl FnOnce(&[u8]) -> R) -> Option<R> {
            Some(look(&self.0.lock()))
        }

        fn set(&self, _: &Key, value: &[u8]) -> bool {
            *self.0.lock() = value.to_vec();
            true
        }
    }

    #[test]
    fn an_engine_with_wrong_values_is_an_error() {
        for mode in Mode::ALL {
            let outcome = run_on::<Liar>(&Plan { mode, ..Plan::small() });
            assert!(matches!(outcome, Err(Error::WrongValues { wrong: 1.., .. })), "{mode}: {outcome:?}");
        }
    }

    #[test]
    fn all_modes_and_mixes_count_the_same_gets() {
        for mode in Mode::ALL {
            let plan = Plan { engine: EngineName::Map, mode, mix: Mix::Get, ..Plan::small() };
            assert_eq!(run(&plan).unwrap().hit_ratio, 1.0, "{mode}");
        }
    }

    #[test]
    fn engines_that_expire_keep_their_hits_with_ttls() {
        for engine in EngineName::ALL {
            let outcome = run(&Plan { engine, mix: Mix::Get, ttls: 8, ..Plan::small() });
            match engine.expires() {
                true => assert_eq!(outcome.unwrap().hit_ratio, 1.0, "{engine}"),
                false => assert!(matches!(outcome, Err(Error::Plan(_))), "{engine}: {outcome:?}"),
            }
        }
    }

    #[test]
    fn a_time_ends_a_measurement() {
        let cache = <Map as Engine>::build(&Size { capacity_bytes: 0, value_bytes: 8, objects: 1, threads: 1 });
        let mut worker = Worker::new(&Plan::small(), cache.as_ref().unwrap());
        let requests = workload::draw(&Plan::small(), 0).unwrap().measured;
        worker.run_for(&requests, Some(Duration::from_nanos(1)));
        assert_eq!(worker.tally.requests, BETWEEN_CLOCKS as u64);
        worker.run_for(&requests, None);
        assert_eq!(worker.tally.requests, (BETWEEN_CLOCKS + requests.len()) as u64);
    }

    #[test]
    fn an_outcome_is_read_as_it_is_shown() {
        let outcome = Outcome { ops_per_second: 1.0, hit_ratio: 0.5, rss_bytes: 3, cpu_ns_per_op: 4.5, failed_sets: 5 };
        assert_eq!(Outcome::parse(&outcome.to_string()), Some(outcome));
        assert_eq!(Outcome::parse("1 2"), None);
    }
}
