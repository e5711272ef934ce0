//! Drives the players. With several threads each has its own keys, and all threads have played a batch before any
//! plays the next: the reading thread moves the time, deals each player its share, and waits until all shares are
//! played.

use std::mem;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ebbtide::{Cache, Clock};

use super::ReplayArgs;
use super::audit::Findings;
use super::batches::{BATCH, Batches};
use super::grid::Cell;
use super::player::{Player, ReplayCounts};
use super::report::{AuditReport, ReplayReport};
use crate::Error;
use crate::flash::FlashReport;
use crate::trace::{Request, TraceReader};
use crate::workload::mix;

/// Replays the trace through one cache. What the audit finds is in the report.
pub fn replay(args: &ReplayArgs, cell: Cell) -> Result<ReplayReport, Error> {
    let mut reader = TraceReader::open(&args.trace, args.format)?;
    let format = reader.format().name();
    let trace = reader.name().to_owned();
    replay_requests(|| reader.next_request(), &trace, format, args, cell)
}

/// Replays what `source` gives until it gives `None`; `trace` and `format` name it.
pub(crate) fn replay_requests(
    source: impl FnMut() -> Result<Option<Request>, Error>,
    trace: &str,
    format: &'static str,
    args: &ReplayArgs,
    cell: Cell,
) -> Result<ReplayReport, Error> {
    let cache = build(args, cell)?;
    let mut batches = Batches::new(source, args.strict)?;
    if batches.is_empty() {
        return Err(Error::NoRequests { trace: trace.to_owned(), format, malformed: batches.malformed });
    }
    let players: Vec<Player> = (0..args.threads).map(|_| Player::new(cache.clone(), args.audit)).collect();
    let played = match <[Player; 1]>::try_from(players) {
        Ok([player]) => play_on_this_thread(&cache, &mut batches, player)?,
        Err(players) => play_on_threads(&cache, &mut batches, players)?,
    };
    let stats = cache.stats();
    let counts = played.counts;
    let gets = counts.hits + counts.misses;
    Ok(ReplayReport {
        requests: counts.requests,
        hits: counts.hits,
        misses: counts.misses,
        miss_ratio: ratio(counts.misses as f64, gets as f64),
        byte_miss_ratio: ratio(counts.missed_bytes as f64, counts.get_bytes as f64),
        ops_per_second: ratio(counts.requests as f64, played.busy.as_secs_f64()),
        memory_used_bytes: stats.memory_used_bytes,
        objects: stats.items,
        evictions: stats.evictions,
        expired: stats.expired,
        memory_limit_bytes: stats.memory_limit_bytes,
        trace: args.trace.display().to_string(),
        format,
        policy: cell.policy.name(),
        threads: args.threads,
        gets,
        deletes: counts.deletes,
        stored: counts.stored,
        store_failures: counts.store_failures,
        malformed_lines: batches.malformed,
        keys_resized: counts.keys_resized,
        time_steps_back: batches.time_steps_back,
        trace_seconds: played.end.as_secs_f64(),
        flash: cache.flash_stats().map(|stats| FlashReport::new(&stats)),
        audit: played.findings.map(|findings| AuditReport::new(&findings, stats.evictions)),
    })
}

fn build(args: &ReplayArgs, cell: Cell) -> Result<Cache, ebbtide::Error> {
    let mut builder = Cache::builder().memory(cell.memory).policy(cell.policy).seed(args.seed).clock(Clock::Manual);
    if let Some(size) = args.segment_size {
        builder = builder.segment_size(size);
    }
    if let Some(run) = args.merge_run {
        builder = builder.merge_run(run);
    }
    if let Some(limit) = args.max_value {
        builder = builder.max_value(limit);
    }
    args.flash.add_flash_tier(builder, cell.number).build()
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// The sum over the threads.
#[derive(Default)]
struct Played {
    counts: ReplayCounts,
    findings: Option<Findings>,
    /// Time spent in the cache, not in reading the trace.
    busy: Duration,
    /// Time of the trace at the last batch.
    end: Duration,
}

impl Played {
    fn add(&mut self, player: &Player) {
        self.counts.add(&player.counts);
        if let Some(audit) = &player.audit {
            self.findings.get_or_insert_default().add(&audit.findings);
        }
    }
}

fn play_on_this_thread<S: FnMut() -> Result<Option<Request>, Error>>(
    cache: &Cache,
    batches: &mut Batches<S>,
    mut player: Player,
) -> Result<Played, Error> {
    let mut played = Played::default();
    let mut requests = Vec::with_capacity(BATCH);
    while let Some(now) = batches.next_batch(|request| requests.push(request))? {
        let start = Instant::now();
        cache.maintain(now);
        for request in requests.drain(..) {
            player.play(&request, now.as_millis() as u64);
        }
        played.busy += start.elapsed();
        played.end = now;
    }
    played.add(&player);
    Ok(played)
}

/// One of several players, seen from the reading thread.
struct PlayerQueue {
    batch: Vec<Request>,
    sent: mpsc::SyncSender<(u64, Vec<Request>)>,
    returned: mpsc::Receiver<Vec<Request>>,
    playing: bool,
}

fn play_on_threads<S: FnMut() -> Result<Option<Request>, Error>>(
    cache: &Cache,
    batches: &mut Batches<S>,
    players: Vec<Player>,
) -> Result<Played, Error> {
    thread::scope(|scope| {
        let (mut queues, mut threads) = (Vec::new(), Vec::new());
        for player in players {
            let (sent, batches_of_player) = mpsc::sync_channel(1);
            let (back, returned) = mpsc::sync_channel(1);
            threads.push(scope.spawn(move || play_batches(player, &batches_of_player, &back)));
            queues.push(PlayerQueue { batch: Vec::new(), sent, returned, playing: false });
        }
        let sent = distribute(cache, batches, &mut queues);
        drop(queues);
        let mut played = sent?;
        for thread in threads {
            match thread.join() {
                Ok(player) => played.add(&player),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(played)
    })
}

/// Deals until the trace ends, or until a player has panicked (which `join` finds).
fn distribute<S: FnMut() -> Result<Option<Request>, Error>>(
    cache: &Cache,
    batches: &mut Batches<S>,
    queues: &mut [PlayerQueue],
) -> Result<Played, Error> {
    let mut played = Played::default();
    let count = queues.len() as u64;
    while let Some(now) = batches.next_batch(|request| {
        let queue = (mix(request.key) % count) as usize;
        queues[queue].batch.push(request);
    })? {
        let start = Instant::now();
        cache.maintain(now);
        let milliseconds = now.as_millis() as u64;
        for queue in queues.iter_mut().filter(|queue| !queue.batch.is_empty()) {
            let batch = mem::take(&mut queue.batch);
            if queue.sent.send((milliseconds, batch)).is_err() {
                return Ok(played);
            }
            queue.playing = true;
        }
        for queue in queues.iter_mut().filter(|queue| queue.playing) {
            match queue.returned.recv() {
                Ok(batch) => queue.batch = batch,
                Err(_) => return Ok(played),
            }
            queue.playing = false;
        }
        played.busy += start.elapsed();
        played.end = now;
    }
    Ok(played)
}

fn play_batches(
    mut player: Player,
    batches_of_player: &mpsc::Receiver<(u64, Vec<Request>)>,
    back: &mpsc::SyncSender<Vec<Request>>,
) -> Player {
    while let Ok((now, mut batch)) = batches_of_player.recv() {
        for request in batch.drain(..) {
            player.play(&request, now);
        }
        if back.send(batch).is_err() {
            break;
        }
    }
    player
}
