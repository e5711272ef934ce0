//! The engine in process. A chunk of requests is drawn, with its keys written out side by side, and then executed
//! under the clock.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ebbtide::memcached::{Cache, Item, Lookup, Mode, Pool, PoolOptions, Stored};

use super::drive::{Meter, RunEnd, drive};
use super::latency_log::with_log;
use super::load::Load;
use super::load_kind::LoadKind;
use super::plan::Plan;
use super::report::{BenchReport, report};
use super::schedule::Schedule;
use super::tally::{LatencyTally, record};
use crate::Error;
use crate::flash::FlashReport;
use crate::generate::CountArg;
use crate::keys::KeyBuffer;
use crate::store::{ValueWriter, ttl_of};

/// Requests of a chunk: enough that starting the clock does not count, few enough that the keys stay in the cache of
/// the processor.
const CHUNK: usize = 512;

/// The latency of one request in this number is measured: two readings of the clock cost as much as a get.
const SAMPLED: usize = 32;

/// The longest sleep before the next request is due, so that the end of the phase is seen.
const MAX_SLEEP: Duration = Duration::from_millis(20);

/// Weight of all memory, where a configuration has shares of it.
const WEIGHT_OF_ALL: f64 = 1e6;

/// The most keys of a batch, as `--batch` allows.
const MAX_BATCH: usize = 256;

pub(super) fn bench(plan: &Plan) -> Result<BenchReport, Error> {
    let Plan { args, objects, .. } = plan;
    let largest = objects.largest_value();
    let mut builder = Cache::builder().memory(args.memory).policy(args.policy).seed(args.seed);
    if largest > 1 << 20 {
        builder = builder.max_value(ebbtide::ByteSize::bytes(largest));
    }
    for (place, pool) in objects.pools().iter().enumerate() {
        let share = objects.pool_shares().get(place).copied();
        let weight = share.map_or(1, |share| (share * WEIGHT_OF_ALL).max(1.0) as u32);
        builder = builder.pool(PoolOptions::named(pool).weight(weight));
    }
    if !objects.pool_shares().is_empty() {
        builder = builder.pool(PoolOptions::named("default").weight(0));
    }
    let cache = args.flash.add_flash_tier(builder, None).build()?;
    let names = objects.pools().iter().map(String::as_str);
    let pools = std::iter::once("default").chain(names).map(|name| cache.pool(name)).collect::<Result<Vec<_>, _>>()?;
    let worker = |load, schedule| LocalWorker {
        pools: pools.clone(),
        plan,
        load,
        schedule,
        started: Instant::now(),
        chunk: Chunk::default(),
        values: ValueWriter::default(),
        tally: LatencyTally::default(),
        busy: Duration::ZERO,
    };
    if args.prefill {
        let workers = (0..args.threads).map(|thread| worker(Load::prefill(plan, thread), None));
        drive("prefill", workers.collect(), RunEnd::Requests(objects.count()), LocalWorker::work, None)?;
    }
    let mixed = |thread| worker(Load::mixed(plan, thread), plan.schedule(thread, true));
    let mut workers: Vec<_> = (0..args.threads).map(mixed).collect();
    if let Some(CountArg(requests)) = args.warmup {
        (workers, _) = drive("warm-up", workers, RunEnd::Requests(requests), LocalWorker::work, None)?;
        for (thread, worker) in (0..).zip(&mut workers) {
            worker.load.measure(plan, thread);
            worker.schedule = plan.schedule(thread, false);
            (worker.tally, worker.busy) = (LatencyTally::default(), Duration::ZERO);
        }
    }
    let (workers, elapsed) = with_log(args.hdr.as_deref(), args.overwrite, |sink| {
        drive("bench", workers, args.end(), LocalWorker::work, Some(sink))
    })?;
    let mut total = LatencyTally::default();
    let mut cache_ops_per_second = 0.0;
    for worker in workers {
        cache_ops_per_second += worker.tally.requests() as f64 / worker.busy.as_secs_f64().max(1e-9);
        total.add(worker.tally);
    }
    let flash = cache.flash_stats().map(|stats| FlashReport::new(&stats));
    let mut report = report(total, plan, elapsed);
    for (of_pool, pool) in report.pools.iter_mut().zip(&pools[1..]) {
        of_pool.memory_bytes = Some(pool.stats().memory_limit_bytes);
    }
    Ok(BenchReport { flash, cache_ops_per_second: Some(cache_ops_per_second), ..report })
}

struct LocalWorker<'a> {
    /// The pool `default`, and those of the workload.
    pools: Vec<Pool>,
    plan: &'a Plan,
    load: Load,
    /// Where requests are due by the clock.
    schedule: Option<Schedule>,
    started: Instant,
    chunk: Chunk,
    values: ValueWriter,
    tally: LatencyTally,
    /// Time spent in executing chunks.
    busy: Duration,
}

/// Requests drawn ahead.
#[derive(Default)]
struct Chunk {
    requests: Vec<(LoadKind, u16)>,
    keys: Vec<DrawnKey>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy)]
struct DrawnKey {
    number: u64,
    start: u32,
    length: u16,
    /// The place of its pool in the worker.
    pool: u16,
}

impl Chunk {
    fn key(&self, key: DrawnKey) -> &[u8] {
        &self.bytes[key.start as usize..][..usize::from(key.length)]
    }

    /// Draws at most `max` requests.
    fn draw(&mut self, max: usize, load: &mut Load, plan: &Plan, meter: &Meter<'_>) {
        self.requests.clear();
        self.keys.clear();
        self.bytes.clear();
        let mut buffer = KeyBuffer::default();
        while self.requests.len() < max {
            let Some((kind, keys)) = load.next(meter.stop) else {
                return;
            };
            self.requests.push((kind, keys));
            for _ in 0..keys {
                let number = load.number();
                let key = plan.objects.write_key(number, &mut buffer);
                let pool = plan.objects.pool(number).map_or(0, |place| place as u16 + 1);
                self.keys.push(DrawnKey { number, start: self.bytes.len() as u32, length: key.len() as u16, pool });
                self.bytes.extend_from_slice(key);
            }
        }
    }
}

impl LocalWorker<'_> {
    fn work(&mut self, meter: &Meter<'_>) -> Result<(), Error> {
        self.started = Instant::now();
        loop {
            let due = self.due(meter.stop);
            self.chunk.draw(due, &mut self.load, self.plan, meter);
            if self.chunk.requests.is_empty() {
                meter.finish(&self.tally);
                return Ok(());
            }
            let start = Instant::now();
            self.execute();
            self.busy += start.elapsed();
            meter.note(&self.tally);
        }
    }

    /// Waits until requests are due, and counts them, up to a chunk; 0 at the end.
    fn due(&mut self, stop: &AtomicBool) -> usize {
        let Some(schedule) = &mut self.schedule else { return CHUNK };
        while !self.load.is_drawn() {
            let elapsed = self.started.elapsed();
            if stop.load(Ordering::Relaxed) {
                self.tally.unsent += schedule.pass_over(elapsed);
                break;
            }
            let mut due = 0;
            while due < CHUNK && schedule.next_due() <= elapsed {
                schedule.advance();
                due += 1;
            }
            if due > 0 {
                return due;
            }
            thread::sleep((schedule.next_due() - elapsed).min(MAX_SLEEP));
        }
        0
    }

    fn execute(&mut self) {
        let Self { pools, plan, chunk, values, tally, .. } = self;
        let pool_of = |key: DrawnKey| &pools[usize::from(key.pool)];
        let mut names: [&[u8]; MAX_BATCH] = [&[]; MAX_BATCH];
        let mut missed = [0u16; MAX_BATCH];
        let mut write = |kind: LoadKind, key: DrawnKey, tally: &mut LatencyTally| {
            write(kind, pool_of(key), (chunk.key(key), key.number), plan, values, tally);
        };
        let mut rest = &chunk.keys[..];
        for (index, &(kind, count)) in chunk.requests.iter().enumerate() {
            let (keys, later) = rest.split_at(usize::from(count));
            rest = later;
            let start = index.is_multiple_of(SAMPLED).then(Instant::now);
            if kind != LoadKind::Get {
                write(kind, keys[0], tally);
                tally.note_write(kind, start);
                continue;
            }
            let mut misses = 0;
            let mut answer = |position: usize, lookup: Lookup<'_>| match lookup {
                Lookup::Hit(item) => read(&item),
                Lookup::Miss => {
                    missed[misses] = position as u16;
                    misses += 1;
                }
            };
            // A batch is of one pool: with several, each key is a get.
            if keys.len() == 1 || pools.len() > 1 {
                for (position, key) in keys.iter().enumerate() {
                    answer(position, pool_of(*key).get(chunk.key(*key)));
                }
            } else {
                for (name, key) in names.iter_mut().zip(keys) {
                    *name = chunk.key(*key);
                }
                pools[0].get_batch(&names[..keys.len()], answer);
            }
            if let Some(start) = start {
                record(&mut tally.get_latency, start.elapsed());
            }
            tally.gets += u64::from(count);
            tally.hits += u64::from(count) - misses as u64;
            for (position, key) in keys.iter().enumerate().filter(|_| pools.len() > 1) {
                let is_hit = !missed[..misses].contains(&(position as u16));
                tally.note_pool(plan.objects.pool(key.number), is_hit);
            }
            if plan.args.fill {
                for &position in &missed[..misses] {
                    write(LoadKind::Set, keys[usize::from(position)], tally);
                    tally.fills += 1;
                }
            }
        }
    }
}

/// Executes a request of any kind but a get. Only its outcome is counted here.
fn write(
    kind: LoadKind,
    pool: &Pool,
    (key, number): (&[u8], u64),
    plan: &Plan,
    values: &mut ValueWriter,
    tally: &mut LatencyTally,
) {
    let mut store = |mode| {
        let (length, byte) = plan.objects.value(number, kind);
        let head = [byte; 32];
        let ttl = ttl_of(plan.objects.ttl_seconds(number));
        values
            .store(pool, key, &head[..length.min(head.len())], length, ttl, mode)
            .map(|stored| stored == Stored::Stored)
    };
    let done = match kind {
        LoadKind::Delete => {
            pool.delete(key);
            Ok(true)
        }
        LoadKind::Get | LoadKind::Set => store(Mode::Set),
        LoadKind::Add => store(Mode::Add),
        LoadKind::Replace => store(Mode::Replace),
        LoadKind::Append => store(Mode::Append),
        LoadKind::Prepend => store(Mode::Prepend),
        LoadKind::Incr | LoadKind::Decr => {
            let number = if kind == LoadKind::Incr { pool.increment(key, 1) } else { pool.decrement(key, 1) };
            let is_absent = number == Ok(None);
            if is_absent && plan.args.fill {
                tally.fills += 1;
                store(Mode::Set).map(|_| false)
            } else {
                number.map(|number| number.is_some())
            }
        }
    };
    match done {
        Ok(true) => {}
        Ok(false) => tally.writes.not_stored += 1,
        Err(error) => tally.error(|| error.to_string()),
    }
}

/// Touches the value, as its reader would.
fn read(item: &Item<'_>) {
    let first = item.slices().next().and_then(<[u8]>::first);
    black_box(first);
}
