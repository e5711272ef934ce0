//! A trial: moves in one direction, and whether they helped.
//!
//! The hit ratio of each moved pool is compared over two windows of equal length, before the first move and after the
//! receivers have filled. The difference, times the present gets, is the measured change of hits.

use std::collections::VecDeque;

use super::decision::Move;
use super::situation::{ControllerOptions, PoolReading, Situation};
use super::target::{Measured, Target};

/// Share of the received memory in use from which on a receiver counts as full: the rest are free segments.
const FILLED_SHARE: f64 = 0.75;
/// A trial has failed whose measured gain surely lacks this part of the predicted one.
const MISSING_SHARE: f64 = 0.75;
/// A pool whose gets per second have changed by this factor serves another load: its hits do not depend on the move.
const OTHER_LOAD: f64 = 2.0;
/// 97.5 % of a normal distribution lie below its mean plus this many standard deviations.
const NORMAL_975: f64 = 1.96;

/// Gets and hits of a pool over a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Window {
    gets: f64,
    hits: f64,
    /// Difference of the hit ratio from the window before: how much the load changes by itself.
    drift: f64,
}

impl Window {
    fn between(before: &Counters, after: &PoolReading) -> Self {
        Self::of(before, &Counters { gets: after.gets, hits: after.hits })
    }

    fn of(before: &Counters, after: &Counters) -> Self {
        let part = |before: u64, after: u64| after.saturating_sub(before) as f64;
        Self { gets: part(before.gets, after.gets), hits: part(before.hits, after.hits), drift: 0.0 }
    }

    fn hit_ratio(&self) -> f64 {
        self.hits / self.gets.max(1.0)
    }

    /// `None` of a window without gets.
    pub(super) fn measured(&self) -> Option<Measured> {
        let (hit_ratio, error) = (self.hit_ratio(), NORMAL_975 * self.variance().sqrt());
        (self.gets >= 1.0).then_some(Measured { hit_ratio, error })
    }

    /// Variance of the hit ratio, as that of a share of independent gets.
    fn variance(&self) -> f64 {
        let ratio = self.hit_ratio();
        (ratio * (1.0 - ratio)).max(1.0 / self.gets.max(1.0)) / self.gets.max(1.0)
    }
}

#[derive(Clone, Copy, Debug)]
struct Counters {
    gets: u64,
    hits: u64,
}

fn counters(pools: &[PoolReading]) -> Vec<Counters> {
    pools.iter().map(|pool| Counters { gets: pool.gets, hits: pool.hits }).collect()
}

/// Counters of the last two windows.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    readings: VecDeque<(f64, Vec<Counters>)>,
    windows: Vec<Window>,
}

impl History {
    pub(super) fn note(&mut self, situation: &Situation<'_>, window_seconds: f64) {
        let now = situation.now_seconds;
        self.readings.push_back((now, counters(situation.pools)));
        // The oldest one is the first that is two windows old.
        while self.readings.get(1).is_some_and(|(at, _)| now - at >= 2.0 * window_seconds) {
            self.readings.pop_front();
        }
        let middle = self.readings.iter().rposition(|(at, _)| now - at >= window_seconds).unwrap_or(0);
        let (oldest, middle) = (&self.readings[0].1, &self.readings[middle].1);
        let window = |((oldest, middle), pool): ((&Counters, &Counters), &PoolReading)| {
            let (last, earlier) = (Window::between(middle, pool), Window::of(oldest, middle));
            let is_told = last.gets >= 1.0 && earlier.gets >= 1.0;
            let drift = if is_told { last.hit_ratio() - earlier.hit_ratio() } else { 0.0 };
            Window { drift, ..last }
        };
        self.windows = oldest.iter().zip(middle).zip(situation.pools).map(window).collect();
    }

    /// Whether the counters of a whole window are known.
    pub(super) fn spans(&self, window_seconds: f64) -> bool {
        let ends = self.readings.front().zip(self.readings.back());
        ends.is_some_and(|((first, _), (last, _))| last - first >= window_seconds)
    }

    /// Of each pool, over the last window.
    pub(super) fn hit_ratios(&self) -> &[Window] {
        &self.windows
    }
}

/// State of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// More moves may follow.
    Filling,
    Measuring,
    Helped,
    /// Something else has changed the hits or the budgets.
    Unknown,
    Failed {
        predicted: f64,
        measured: f64,
    },
}

#[derive(Clone, Debug)]
enum Phase {
    Filling,
    Measuring { since: f64, counters: Vec<Counters>, filled: f64 },
}

/// Moves that are judged together.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    phase: Phase,
    moves: Vec<Move>,
    /// Budgets after the moves.
    bytes: Vec<u64>,
    /// Bytes that each pool gained.
    moved: Vec<i64>,
    before: Vec<Window>,
    used_before: Vec<u64>,
    gets_per_second: Vec<f64>,
    started_seconds: f64,
    last_move_seconds: f64,
    /// Targets at the start of the trial; none is evaluated while the receivers fill.
    targets: Vec<Option<Target>>,
    serves_target: bool,
}

impl Trial {
    /// A trial of these moves, which make these budgets. `serves_target`: for a target hit ratio, so that fewer hits of
    /// all pools do not undo it.
    pub(super) fn new(
        situation: &Situation<'_>,
        before: Vec<Window>,
        (moves, bytes): (&[Move], &[u64]),
        (targets, serves_target): (Vec<Option<Target>>, bool),
    ) -> Self {
        let mut trial = Self {
            phase: Phase::Filling,
            moves: Vec::new(),
            bytes: Vec::new(),
            moved: vec![0; situation.pools.len()],
            before,
            used_before: situation.pools.iter().map(|pool| pool.used_bytes).collect(),
            gets_per_second: situation.pools.iter().map(|pool| pool.gets_per_second).collect(),
            started_seconds: situation.now_seconds,
            last_move_seconds: situation.now_seconds,
            targets,
            serves_target,
        };
        trial.extend(situation, moves, bytes);
        trial
    }

    pub(super) fn extend(&mut self, situation: &Situation<'_>, moves: &[Move], bytes: &[u64]) {
        for ((moved, pool), after) in self.moved.iter_mut().zip(situation.pools).zip(bytes) {
            *moved += *after as i64 - pool.memory_bytes as i64;
        }
        self.moves.extend_from_slice(moves);
        self.bytes = bytes.to_vec();
        self.last_move_seconds = situation.now_seconds;
    }

    pub(super) fn targets(&self) -> &[Option<Target>] {
        &self.targets
    }

    pub(super) fn serves_target(&self) -> bool {
        self.serves_target
    }

    /// Bytes that a pool has gained.
    pub(super) fn moved_bytes(&self, pool: usize) -> i64 {
        self.moved[pool]
    }

    pub(super) fn total_bytes(&self) -> u64 {
        self.moves.iter().map(|step| step.bytes).sum()
    }

    /// Verdict at this moment. After `Filling`, make more moves or call [`Trial::measure_when_full`].
    pub(super) fn verdict(&self, situation: &Situation<'_>, options: &ControllerOptions) -> Verdict {
        let (now, pools) = (situation.now_seconds, situation.pools);
        let is_other = pools.iter().zip(&self.bytes).any(|(pool, bytes)| pool.memory_bytes != *bytes);
        if is_other || self.has_other_load(pools) {
            return Verdict::Unknown;
        }
        match &self.phase {
            Phase::Filling => Verdict::Filling,
            Phase::Measuring { since, .. } if now - since < options.measure_seconds => Verdict::Measuring,
            Phase::Measuring { .. } if self.serves_target => Verdict::Unknown,
            Phase::Measuring { counters, filled, .. } => {
                let windows = (now - self.started_seconds) / options.measure_seconds;
                self.judge(pools, counters, *filled, windows)
            }
        }
    }

    /// Begins to measure when the receivers have filled, or have had their time.
    pub(super) fn measure_when_full(&mut self, situation: &Situation<'_>, options: &ControllerOptions) {
        let (since, filled) = (situation.now_seconds, self.filled(situation.pools));
        if filled >= FILLED_SHARE || since - self.last_move_seconds >= options.max_fill_seconds {
            self.phase = Phase::Measuring { since, counters: counters(situation.pools), filled };
        }
    }

    /// Share of the moved memory that the receivers use.
    fn filled(&self, pools: &[PoolReading]) -> f64 {
        let (mut used, mut moved) = (0.0, 0.0);
        for (at, pool) in pools.iter().enumerate().filter(|(at, _)| self.moved[*at] > 0) {
            let got = self.moved[at] as f64;
            used += (pool.used_bytes.saturating_sub(self.used_before[at]) as f64).min(got);
            moved += got;
        }
        if moved > 0.0 { used / moved } else { 1.0 }
    }

    fn has_other_load(&self, pools: &[PoolReading]) -> bool {
        let moved = pools.iter().zip(&self.gets_per_second).zip(&self.moved).filter(|(_, moved)| **moved != 0);
        moved.into_iter().any(|((pool, before), _)| {
            let (less, more) = (pool.gets_per_second.min(*before), pool.gets_per_second.max(*before));
            more > OTHER_LOAD * less
        })
    }

    /// `windows`: the number of windows since the hit ratios before the trial, during which the load may have drifted.
    fn judge(&self, pools: &[PoolReading], counters: &[Counters], filled: f64, windows: f64) -> Verdict {
        let (mut measured, mut variance) = (0.0, 0.0);
        for (at, pool) in pools.iter().enumerate().filter(|(at, _)| self.moved[*at] != 0) {
            let (before, after) = (&self.before[at], Window::between(&counters[at], pool));
            if before.gets < 1.0 || after.gets < 1.0 {
                return Verdict::Unknown;
            }
            let value = pool.gets_per_second * pool.value();
            measured += value * (after.hit_ratio() - before.hit_ratio());
            variance += value.powi(2) * (before.variance() + after.variance() + (windows * before.drift).powi(2));
        }
        let (gained, lost) = self.predicted(pools);
        let predicted = gained - lost;
        // Givers lose at once; receivers gain as they fill.
        let by_now = if filled >= FILLED_SHARE { predicted } else { filled * gained - lost };
        if measured + NORMAL_975 * variance.sqrt() < by_now - MISSING_SHARE * predicted {
            return Verdict::Failed { predicted, measured };
        }
        Verdict::Helped
    }

    /// Value a second that receivers gain, and that givers lose.
    fn predicted(&self, pools: &[PoolReading]) -> (f64, f64) {
        let value = |name: &str| pools.iter().find(|pool| pool.name == name).map_or(0.0, PoolReading::value);
        self.moves.iter().fold((0.0, 0.0), |(gained, lost), step| {
            let giver = step.from.as_deref().map_or(0.0, value);
            (gained + step.gained_hits_per_second * value(&step.to), lost + step.lost_hits_per_second * giver)
        })
    }

    /// The moves in reverse, and the budgets after them. Memory that no pool had stays where it is, and so does that of
    /// pools that were fixed since.
    pub(super) fn returned(&self, situation: &Situation<'_>) -> (Vec<Move>, Vec<u64>) {
        let pools = situation.pools;
        let mut bytes: Vec<u64> = pools.iter().map(|pool| pool.memory_bytes).collect();
        let mut moves = Vec::new();
        let at = |name: &str| pools.iter().position(|pool| pool.name == name && !pool.is_fixed);
        for step in self.moves.iter().rev() {
            let Some((from, to)) = at(&step.to).zip(step.from.as_deref().and_then(at)) else { continue };
            if bytes[from] < step.bytes + pools[from].min_bytes || bytes[to] + step.bytes > pools[to].max_bytes {
                continue;
            }
            bytes[from] -= step.bytes;
            bytes[to] += step.bytes;
            moves.push(Move {
                from: Some(pools[from].name.clone()),
                to: pools[to].name.clone(),
                bytes: step.bytes,
                gained_hits_per_second: step.lost_hits_per_second,
                lost_hits_per_second: step.gained_hits_per_second,
                gained_bytes_per_second: step.lost_bytes_per_second,
                lost_bytes_per_second: step.gained_bytes_per_second,
                cliff_to_bytes: None,
            });
        }
        (moves, bytes)
    }
}
