//! A whole replay, or a measurement of the speed.

use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use crate::Replay;
use crate::engine::Engine;
use crate::fill;
use crate::player::{Counts, Player};
use crate::requests::Requests;

#[derive(Debug)]
pub struct Report {
    engine: String,
    /// Of each copy.
    memory: u64,
    copies: u32,
    counts: Counts,
    /// By the wall clock, and by the processor's time of this thread.
    seconds: f64,
    processor_seconds: f64,
    /// Whether the trace ended before the time was over.
    ended: bool,
}

impl Report {
    pub fn json(&self) -> String {
        let Self { engine, memory, copies, counts, seconds, processor_seconds, ended } = self;
        format!(
            "{{\"engine\":\"{engine}\",\"memory_bytes\":{memory},\"copies\":{copies},\"requests\":{},\"gets\":{},\
             \"misses\":{},\"miss_ratio\":{:.6},\"seconds\":{seconds:.3},\"processor_seconds\":{processor_seconds:.3},\
             \"requests_per_second\":{:.0},\"requests_per_processor_second\":{:.0},\"trace_ended\":{ended}}}",
            counts.requests,
            counts.gets,
            counts.misses,
            self.miss_ratio(),
            counts.requests as f64 / seconds,
            counts.requests as f64 / processor_seconds,
        )
    }

    pub fn text(&self) -> String {
        format!(
            "{}, {} bytes: {:.4} misses per get, {:.2} M requests/s, {:.2} M by processor time",
            self.engine,
            self.memory,
            self.miss_ratio(),
            self.counts.requests as f64 / self.seconds / 1e6,
            self.counts.requests as f64 / self.processor_seconds / 1e6,
        )
    }

    fn miss_ratio(&self) -> f64 {
        self.counts.misses as f64 / self.counts.gets.max(1) as f64
    }
}

/// Time of a clock of the system. The standard library's clocks are those of the trace (`clock.rs`); this one asks the
/// kernel by itself.
fn time(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Confines this thread to the last core: the first ones run the system's own work.
fn confine() -> Result<(), String> {
    let cores = sched_getaffinity(None).map_err(|error| format!("asking for the cores: {error}"))?;
    let Some(last) = (0..CpuSet::MAX_CPU).rev().find(|&core| cores.is_set(core)) else { return Ok(()) };
    let mut core = CpuSet::new();
    core.set(last);
    sched_setaffinity(None, &core).map_err(|error| format!("setting the core: {error}"))
}

/// Plays the whole trace, or the part that the time allows.
pub fn run<E: Engine>(replay: &Replay, requests: &Requests, memory: u64, engine: E) -> Result<Report, String> {
    let mut player = Player::new(engine, replay.copies, requests.largest_bytes());
    let mut from = 0;
    if let Some(seconds) = replay.seconds {
        confine()?;
        from = requests.len() / 2;
        fill::objects(requests, from, memory).iter().for_each(|(object, gets)| player.store(object, *gets));
        from = play_for(&mut player, requests, from, seconds / 2.0);
        player.counts = Counts { wrong: player.counts.wrong, ..Counts::default() };
    }
    let (wall, processor) = (time(ClockId::Monotonic), time(ClockId::ThreadCPUTime));
    let end = play_for(&mut player, requests, from, replay.seconds.unwrap_or(f64::INFINITY));
    let report = Report {
        engine: replay.engine.name(),
        memory,
        copies: replay.copies,
        counts: player.counts,
        seconds: (time(ClockId::Monotonic) - wall).as_secs_f64(),
        processor_seconds: (time(ClockId::ThreadCPUTime) - processor).as_secs_f64(),
        ended: end == requests.len(),
    };
    match player.counts.wrong {
        0 => Ok(report),
        wrong => Err(format!("{} answered {wrong} gets with a value that is not the key's", report.engine)),
    }
}

fn play_for<E: Engine>(player: &mut Player<E>, requests: &Requests, from: usize, seconds: f64) -> usize {
    let start = time(ClockId::Monotonic);
    player.play(requests, from, || seconds.is_finite() && (time(ClockId::Monotonic) - start).as_secs_f64() >= seconds)
}
