//! Drives the players. With several threads each has its own keys, and all threads have played a batch before any
//! plays the next: the reading thread moves the time, deals each player its share, and waits until all shares are
//! played.

use std::mem;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use ebbtide::memcached::{ByteSize, Cache, CacheBuilder, Clock, Stats, StoreOptions};

use super::ReplayArgs;
use super::audit::Findings;
use super::auto_division::AutoDivision;
use super::auto_policy::AutoPolicies;
use super::batches::{BATCH, Batches, Routed};
use super::cell::Cell;
use super::controllers::Controllers;
use super::player::{Player, ReplayCounts};
use super::pool_file::PoolSpec;
use super::pools::{self, Divide, FLOOR_BYTES, PoolReport};
use super::report::{AuditReport, ReplayReport};
use super::segment_log::SegmentLog;
use crate::Error;
use crate::flash::FlashReport;
use crate::generate::{PlayedBy, Workload};
use crate::progress::Progress;
use crate::trace::{Request, TraceReader};
use crate::workload::mix;

/// Number of requests between two updates of the progress.
const PROGRESS_REQUESTS: u64 = 1 << 16;
/// The largest value that a cache takes without `--max-value`.
const VALUE_LIMIT: ByteSize = ByteSize::mib(1);
/// Segments of a pool at its smallest memory, where memory moves between pools.
const FLOOR_SEGMENTS: u64 = 32;

/// Replays the trace through one cache, or one for each pool. The report has the findings of the audit.
pub fn replay(args: &ReplayArgs, cell: Cell) -> Result<ReplayReport, Error> {
    let reader = args.open()?;
    let Some(pools) = args.pools()? else {
        return replay_one(reader, args, cell);
    };
    let is_auto = args.divide == Divide::Auto;
    check_threads(args)?;
    // A pool that shrinks to its floor must still take its largest value.
    let floor_bytes = FLOOR_BYTES.max(if is_auto { args.max_value.map_or(0, |value| 2 * value.as_bytes()) } else { 0 });
    let weights = pools.weights(args.divide, (cell.memory, floor_bytes, args.objective), || {
        if args.is_standard_input() {
            let reason = "standard input can be read once, and this division reads the trace twice".to_owned();
            let value = args.divide.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
            return Err(Error::Configuration { option: "--divide", value, reason });
        }
        pools.route(args.open()?)
    })?;
    let memory = pools.divide(cell.memory, floor_bytes, weights.as_deref())?;
    let build_pool = |(spec, memory): (&PoolSpec, &ByteSize)| {
        let cell = Cell { memory: *memory, policy: spec.policy.unwrap_or(cell.policy), ..cell };
        let smallest = ByteSize::bytes(if is_auto { floor_bytes } else { memory.as_bytes() });
        let max_value = args.max_value.unwrap_or(VALUE_LIMIT.min(ByteSize::bytes(smallest.as_bytes() / 2)));
        let mut builder = build(args, cell).max_value(max_value);
        if is_auto && args.segment_size.is_none() {
            builder = builder.segment_size(ByteSize::bytes(floor_bytes / FLOOR_SEGMENTS));
        }
        builder.build().map_err(|error| Error::Configuration {
            option: "pool",
            value: spec.share.name.clone(),
            reason: error.to_string(),
        })
    };
    let caches = pools.specs.iter().zip(&memory).map(build_pool).collect::<Result<Vec<_>, _>>()?;
    let template = pool_template(args, cell, is_auto.then_some(floor_bytes));
    let mut controllers = Controllers::default();
    if is_auto {
        let specs = pools.specs.clone();
        controllers.division = Some(AutoDivision::new(specs, floor_bytes, cell.memory, &template)?);
    }
    if !args.controller_policies.is_empty() {
        let pool = |(spec, cache): (&PoolSpec, &Cache)| {
            (spec.share.name.clone(), cache.policy(), cache.stats().memory_limit_bytes)
        };
        let named = pools.specs.iter().zip(&caches).map(pool).collect();
        controllers.policies = Some(AutoPolicies::new(&args.controller_policies, named, template));
    }
    let format = args.format_name(&reader);
    let mut router = pools.route(reader)?;
    let trace = router.name().to_owned();
    let next = || Ok(router.next_request()?.map(|(request, pool)| Routed { request, pool }));
    let (mut report, played) = replay_routed(next, (&trace, format), args, cell, &caches, &mut controllers)?;
    let pool_report = |((spec, cache), counts): ((&PoolSpec, &Cache), &ReplayCounts)| PoolReport {
        name: spec.share.name.clone(),
        requests: counts.requests,
        hits: counts.hits,
        misses: counts.misses,
        memory_bytes: cache.stats().memory_limit_bytes,
        target: controllers.division.as_ref().and_then(|division| division.target(&spec.share.name)),
    };
    report.pools = Some(pools.specs.iter().zip(&caches).zip(&played).map(pool_report).collect());
    report.decisions = Some(controllers.into_decisions());
    Ok(report)
}

/// Replays the trace through one cache.
fn replay_one(mut reader: TraceReader, args: &ReplayArgs, cell: Cell) -> Result<ReplayReport, Error> {
    let format = args.format_name(&reader);
    let trace = reader.name().to_owned();
    // Several replays at a time are counted as a whole.
    let progress = cell.number.is_none().then(|| Progress::new("requests", reader.length()));
    let mut read = 0_u64;
    let next = || {
        read += 1;
        if let Some(progress) = progress.as_ref().filter(|_| read.is_multiple_of(PROGRESS_REQUESTS)) {
            progress.show(read, reader.position());
        }
        reader.next_request()
    };
    let report = replay_requests(next, &trace, format, args, cell);
    progress.iter().for_each(Progress::finish);
    report
}

/// Refuses threads with a controller, which sees the requests in their order.
fn check_threads(args: &ReplayArgs) -> Result<(), Error> {
    let controller = match args.divide {
        Divide::Auto => "--divide auto",
        _ if !args.controller_policies.is_empty() => "--controller-policies",
        _ => return Ok(()),
    };
    if args.threads == 1 {
        return Ok(());
    }
    let reason = format!("the controller of {controller} needs one thread");
    Err(Error::Configuration { option: "--threads", value: args.threads.to_string(), reason })
}

/// The options of the stores of a replay, for models of them; with `floor_bytes` of pools that can all shrink to that.
fn pool_template(args: &ReplayArgs, cell: Cell, floor_bytes: Option<u64>) -> StoreOptions {
    let of_floor = floor_bytes.map(|bytes| bytes / FLOOR_SEGMENTS);
    let smallest = floor_bytes.unwrap_or(cell.memory.as_bytes());
    let defaults = StoreOptions::default();
    StoreOptions {
        policy: cell.policy,
        objective: args.objective,
        memory_bytes: cell.memory.as_bytes(),
        segment_size: args.segment_size.map(ByteSize::as_bytes).or(of_floor).map(|bytes| bytes as u32),
        value_bytes_max: args.max_value.unwrap_or(VALUE_LIMIT).as_bytes().min(smallest / 2),
        merge_run: args.merge_run.unwrap_or(defaults.merge_run),
        ..defaults
    }
}

/// Replays what `source` gives until it gives `None`; `trace` and `format` name it.
pub(crate) fn replay_requests(
    mut source: impl FnMut() -> Result<Option<Request>, Error>,
    trace: &str,
    format: &'static str,
    args: &ReplayArgs,
    cell: Cell,
) -> Result<ReplayReport, Error> {
    let builder = build(args, cell);
    let builder = args.max_value.into_iter().fold(builder, CacheBuilder::max_value);
    let cache = args.flash.add_flash_tier(builder, cell.number).build()?;
    let routed = || Ok(source()?.map(|request| Routed { request, pool: 0 }));
    check_threads(args)?;
    let mut controllers = Controllers::default();
    if !args.controller_policies.is_empty() {
        let pools = vec![("default".to_owned(), cell.policy, cell.memory.as_bytes())];
        let template = pool_template(args, cell, None);
        controllers.policies = Some(AutoPolicies::new(&args.controller_policies, pools, template));
    }
    let (mut report, _) = replay_routed(routed, (trace, format), args, cell, &[cache], &mut controllers)?;
    report.decisions = (!controllers.is_off()).then(|| controllers.into_decisions());
    Ok(report)
}

/// Replays requests, each through the cache of its pool. Returns the report without its pools, and the counts of each
/// pool.
fn replay_routed(
    source: impl FnMut() -> Result<Option<Routed>, Error>,
    (trace, format): (&str, &'static str),
    args: &ReplayArgs,
    cell: Cell,
    caches: &[Cache],
    controllers: &mut Controllers,
) -> Result<(ReplayReport, Vec<ReplayCounts>), Error> {
    let mut batches = Batches::new(source, args.strict)?;
    if batches.is_empty() {
        return Err(Error::NoRequests { trace: trace.to_owned(), format, malformed: batches.malformed });
    }
    let warmup = warmup(args)?;
    let workload = args.workload()?;
    let fills = workload.as_ref().is_none_or(Workload::fills_misses);
    let team = || Team(caches.iter().map(|cache| Player::new(cache.clone(), args.audit, fills)).collect());
    let segments = args.segments.as_ref().map(|path| SegmentLog::create(path, args.overwrite)).transpose()?;
    let mut played = Played { counts: vec![ReplayCounts::default(); caches.len()], segments, ..Played::default() };
    let mut teams: Vec<Team> = (0..args.threads).map(|_| team()).collect();
    if let Some(workload) = workload.as_ref().filter(|workload| workload.prepopulates()) {
        prefill(workload, args, caches, &mut teams, &mut played)?;
    }
    match teams.len() {
        1 => play_on_this_thread(caches, &mut batches, teams.remove(0), warmup, &mut played, controllers)?,
        _ => play_on_threads(caches, &mut batches, teams, &mut played)?,
    }
    if let Some(segments) = played.segments.take() {
        segments.finish(&caches[0], played.end)?;
    }
    let mut counts = ReplayCounts::default();
    played.counts.iter().for_each(|pool| counts.add(pool));
    if warmup > 0 && (played.warmup_left || counts.requests == 0) {
        let requests = if played.warmup_left { counts.requests } else { warmup };
        let reason = format!("the trace has {requests} requests only; none is left to count");
        return Err(Error::Configuration { option: "--warmup", value: warmup.to_string(), reason });
    }
    let ignored = workload.map_or_else(Vec::new, |workload| workload.ignored(PlayedBy::Replay));
    let report = ReplayReport {
        format,
        malformed_lines: batches.malformed,
        time_steps_back: batches.time_steps_back,
        ignored,
        ..report_of(&counts, &played, args, cell, caches)
    };
    Ok((report, played.counts))
}

/// The report, without numbers of the trace.
fn report_of(counts: &ReplayCounts, played: &Played, args: &ReplayArgs, cell: Cell, caches: &[Cache]) -> ReplayReport {
    let stats: Vec<_> = caches.iter().map(Cache::stats).collect();
    let sum = |field: fn(&Stats) -> u64| stats.iter().map(field).sum::<u64>();
    let counted = |field: fn(&Stats) -> u64| sum(field) - played.warmed_up.iter().map(field).sum::<u64>();
    let gets = counts.hits + counts.misses;
    ReplayReport {
        requests: counts.requests,
        hits: counts.hits,
        misses: counts.misses,
        miss_ratio: ratio(counts.misses as f64, gets as f64),
        byte_miss_ratio: ratio(counts.missed_bytes as f64, counts.get_bytes as f64),
        ops_per_second: ratio(counts.requests as f64, played.busy.as_secs_f64()),
        memory_used_bytes: sum(|stats| stats.memory_used_bytes),
        objects: sum(|stats| stats.items),
        evictions: counted(Stats::displaced),
        expired: counted(|stats| stats.expired),
        memory_limit_bytes: sum(|stats| stats.memory_limit_bytes),
        trace: args.source_name(),
        format: "",
        policy: cell.policy.name(),
        threads: args.threads,
        gets,
        sets: counts.sets,
        deletes: counts.deletes,
        writes: (counts.writes.requests() > 0).then_some(counts.writes),
        fills: counts.fills,
        stored: counts.stored,
        store_failures: counts.store_failures,
        malformed_lines: 0,
        keys_resized: counts.keys_resized,
        time_steps_back: 0,
        trace_seconds: played.end.as_secs_f64(),
        ignored: Vec::new(),
        flash: caches.iter().find_map(Cache::flash_stats).map(|stats| FlashReport::new(&stats)),
        audit: played.findings.as_ref().map(|findings| AuditReport::new(findings, sum(Stats::displaced))),
        pools: None,
        decisions: None,
    }
}

/// Requests of the warm-up.
fn warmup(args: &ReplayArgs) -> Result<u64, Error> {
    let warmup = args.warmup.map_or(0, |count| count.0);
    if warmup > 0 && args.threads > 1 {
        let reason = "threads begin to count at different times: give --threads 1".to_owned();
        return Err(Error::Configuration { option: "--warmup", value: warmup.to_string(), reason });
    }
    Ok(warmup)
}

fn build(args: &ReplayArgs, cell: Cell) -> CacheBuilder {
    let mut builder = Cache::builder().memory(cell.memory).policy(cell.policy).seed(args.seed).clock(Clock::Manual);
    builder = builder.objective(args.objective);
    if let Some(size) = args.segment_size {
        builder = builder.segment_size(size);
    }
    if let Some(run) = args.merge_run {
        builder = builder.merge_run(run);
    }
    builder
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// The sum over the threads.
#[derive(Default)]
struct Played {
    /// By pool.
    counts: Vec<ReplayCounts>,
    findings: Option<Findings>,
    /// Time spent in the cache after the warm-up, not in reading the trace.
    busy: Duration,
    /// Counters of the caches at the end of the warm-up; empty without one.
    warmed_up: Vec<Stats>,
    /// Time of the trace at the last batch.
    end: Duration,
    /// The trace ended within the warm-up.
    warmup_left: bool,
    /// For `--segments`, which is of one cache.
    segments: Option<SegmentLog>,
}

impl Played {
    /// Maintains all caches, and records their segments.
    fn maintain(&mut self, caches: &[Cache], now: Duration) -> Result<(), Error> {
        caches.iter().for_each(|cache| cache.maintain(now));
        self.segments.iter_mut().zip(caches).try_for_each(|(segments, cache)| segments.look(cache, now))
    }

    fn add(&mut self, team: &Team) {
        for (counts, player) in self.counts.iter_mut().zip(&team.0) {
            counts.add(&player.counts);
            if let Some(audit) = &player.audit {
                self.findings.get_or_insert_default().add(&audit.findings);
            }
        }
    }
}

/// The players of one thread, one for each pool.
struct Team(Vec<Player>);

impl Team {
    /// Ends the warm-up.
    fn forget_counts(&mut self) {
        self.0.iter_mut().for_each(|player| player.counts = ReplayCounts::default());
    }

    fn play(&mut self, Routed { request, pool }: &Routed, now: u64) {
        self.0[*pool].play(request, now);
    }
}

/// Sets each key before the first request where the configuration says so. Nothing of that counts.
fn prefill(
    workload: &Workload,
    args: &ReplayArgs,
    caches: &[Cache],
    teams: &mut [Team],
    played: &mut Played,
) -> Result<(), Error> {
    let names: Vec<String> = args.pools()?.map_or_else(Vec::new, |pools| pools.names());
    let of_pool: Vec<usize> = workload.pool_names().iter().map(|name| pools::place(&names, name)).collect();
    for (number, (request, pool)) in workload.prefill().enumerate() {
        if number.is_multiple_of(BATCH) {
            played.maintain(caches, Duration::ZERO)?;
        }
        let routed = Routed { request, pool: of_pool.get(pool).copied().unwrap_or(0) };
        let place = thread_of(request.key, teams.len() as u64);
        teams[place].play(&routed, 0);
    }
    teams.iter_mut().for_each(Team::forget_counts);
    played.warmed_up = caches.iter().map(Cache::stats).collect();
    Ok(())
}

/// The thread that plays all requests of a key.
fn thread_of(key: u64, threads: u64) -> usize {
    (mix(key) % threads) as usize
}

fn play_on_this_thread<S: FnMut() -> Result<Option<Routed>, Error>>(
    caches: &[Cache],
    batches: &mut Batches<S>,
    mut team: Team,
    mut warmup: u64,
    played: &mut Played,
    controllers: &mut Controllers,
) -> Result<(), Error> {
    let mut requests = Vec::with_capacity(BATCH);
    while let Some(now) = batches.next_batch(|routed| requests.push(routed))? {
        let mut start = Instant::now();
        played.maintain(caches, now)?;
        if !controllers.is_off() {
            let counts: Vec<&ReplayCounts> = team.0.iter().map(|player| &player.counts).collect();
            controllers.advance(now, caches, &counts)?;
        }
        for routed in requests.drain(..) {
            controllers.observe(&routed.request, routed.pool, now);
            team.play(&routed, now.as_millis() as u64);
            if warmup > 0 {
                warmup -= 1;
                if warmup == 0 {
                    team.forget_counts();
                    played.warmed_up = caches.iter().map(Cache::stats).collect();
                    (played.busy, start) = (Duration::ZERO, Instant::now());
                }
            }
        }
        played.busy += start.elapsed();
        played.end = now;
    }
    played.warmup_left = warmup > 0;
    played.add(&team);
    Ok(())
}

/// One of several players, seen from the reading thread.
struct PlayerQueue {
    batch: Vec<Routed>,
    sent: mpsc::SyncSender<(u64, Vec<Routed>)>,
    returned: mpsc::Receiver<Vec<Routed>>,
    playing: bool,
}

fn play_on_threads<S: FnMut() -> Result<Option<Routed>, Error>>(
    caches: &[Cache],
    batches: &mut Batches<S>,
    teams: Vec<Team>,
    played: &mut Played,
) -> Result<(), Error> {
    thread::scope(|scope| {
        let (mut queues, mut threads) = (Vec::new(), Vec::new());
        for team in teams {
            let (sent, batches_of_player) = mpsc::sync_channel(1);
            let (back, returned) = mpsc::sync_channel(1);
            threads.push(scope.spawn(move || play_batches(team, &batches_of_player, &back)));
            queues.push(PlayerQueue { batch: Vec::new(), sent, returned, playing: false });
        }
        let sent = distribute(caches, batches, &mut queues, played);
        drop(queues);
        sent?;
        for thread in threads {
            match thread.join() {
                Ok(team) => played.add(&team),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(())
    })
}

/// Sends batches until the trace ends, or until a player has panicked (which `join` finds).
fn distribute<S: FnMut() -> Result<Option<Routed>, Error>>(
    caches: &[Cache],
    batches: &mut Batches<S>,
    queues: &mut [PlayerQueue],
    played: &mut Played,
) -> Result<(), Error> {
    let count = queues.len() as u64;
    while let Some(now) = batches.next_batch(|routed| {
        queues[thread_of(routed.request.key, count)].batch.push(routed);
    })? {
        let start = Instant::now();
        played.maintain(caches, now)?;
        let milliseconds = now.as_millis() as u64;
        for queue in queues.iter_mut().filter(|queue| !queue.batch.is_empty()) {
            let batch = mem::take(&mut queue.batch);
            if queue.sent.send((milliseconds, batch)).is_err() {
                return Ok(());
            }
            queue.playing = true;
        }
        for queue in queues.iter_mut().filter(|queue| queue.playing) {
            match queue.returned.recv() {
                Ok(batch) => queue.batch = batch,
                Err(_) => return Ok(()),
            }
            queue.playing = false;
        }
        played.busy += start.elapsed();
        played.end = now;
    }
    Ok(())
}

fn play_batches(
    mut team: Team,
    batches_of_player: &mpsc::Receiver<(u64, Vec<Routed>)>,
    back: &mpsc::SyncSender<Vec<Routed>>,
) -> Team {
    while let Ok((now, mut batch)) = batches_of_player.recv() {
        for routed in batch.drain(..) {
            team.play(&routed, now);
        }
        if back.send(batch).is_err() {
            break;
        }
    }
    team
}
