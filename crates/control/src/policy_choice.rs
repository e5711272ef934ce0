//! The choice of a pool's eviction policy, by models of each candidate that see the same accesses.
//!
//! ```text
//! counters of the pool, and of a model for each policy
//!     --> windows --> switch --> refill --> measure --> kept, or undone
//! ```
//! A switch needs a candidate whose model missed less than that of the present policy over the last windows, by more
//! than the 99.9 % interval of Student's t over these windows and by more than [`MIN_GAIN`]. Windows are the sample,
//! not single gets: gets of a burst are not independent.
//!
//! A switch is a trial. The pool first evicts as many objects as it holds. Then its measured misses are compared
//! with those of the earlier policy's model in the same windows, corrected by the error of this model before the
//! switch. So a load that changes by itself does not undo a switch. A policy that was undone waits, and twice as long
//! each time. No other switch starts before the trial ends: that bounds the rate.
//!
//! The choice is pure: time and counters are arguments.

use std::collections::VecDeque;
use std::fmt;

/// Shortest window, in seconds and in gets that the models see.
const WINDOW_SECONDS: f64 = 10.0;
const MIN_WINDOW_GETS: u64 = 1000;
/// Windows that a decision needs, and that are kept.
const MIN_WINDOWS: usize = 4;
const MAX_WINDOWS: usize = 16;
/// Smallest part of the misses that a switch must avoid: less is within the error of the models.
pub const MIN_GAIN: f64 = 0.005;
/// Longest time in which a pool refills after a switch.
const MAX_REFILL_SECONDS: f64 = 600.0;
/// Time in which a policy that was undone or refused is not tried again. It doubles with each undo, up to 64 times.
const RETRY_SECONDS: f64 = 1800.0;
const MAX_RETRY_DOUBLINGS: u32 = 6;
/// 99.95 % quantiles of Student's t with 3 to 15 degrees of freedom: each window is a test of each candidate.
const STUDENT_9995: [f64; 13] =
    [12.924, 8.610, 6.869, 5.959, 5.408, 5.041, 4.781, 4.587, 4.437, 4.318, 4.221, 4.140, 4.073];

/// Counters of a pool and of its models at one moment.
#[derive(Clone, Copy, Debug)]
pub struct PolicyReading<'a> {
    /// Must not fall.
    pub now_seconds: f64,
    /// The place of the pool's policy among the candidates.
    pub present: usize,
    /// Gets and hits of the pool since the start.
    pub gets: u64,
    pub hits: u64,
    /// Evictions since the start, and objects that the pool holds.
    pub evictions: u64,
    pub objects: u64,
    /// Identifies the set of models: the counters of each set begin at 0.
    pub model_set: u64,
    /// Gets that the models have seen, and the hits of the model of each candidate.
    pub model_gets: u64,
    pub model_hits: &'a [u64],
}

/// A policy in place of another one, with the miss ratios that it depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyChange {
    pub from: String,
    pub to: String,
    /// Whether it takes an earlier change back.
    pub is_undo: bool,
    /// Miss ratio under `from`: modelled, or measured for an undo.
    pub miss_ratio_before: f64,
    /// Modelled miss ratio under `to`.
    pub miss_ratio_after: f64,
    /// Gets in the windows behind this measurement.
    pub gets: u64,
}

/// Decision on the policy of a pool.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicyDecision {
    Keep(PolicyKeepReason),
    Change(PolicyChange),
}

/// Why a policy stays.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicyKeepReason {
    /// The models have seen too few gets.
    Measuring,
    /// The policy is new: the pool still holds objects kept by the earlier policy, or its hits are being measured.
    OnTrial,
    /// The best candidate would avoid this part of the misses, surely or not.
    LittleGain { best: String, gain: f64 },
}

/// Miss ratios of a window.
#[derive(Clone, Debug)]
struct Window {
    gets: u64,
    measured: f64,
    models: Vec<f64>,
}

#[derive(Clone, Debug)]
struct Base {
    now_seconds: f64,
    gets: u64,
    hits: u64,
    model_set: u64,
    model_gets: u64,
    model_hits: Vec<u64>,
}

#[derive(Clone, Debug)]
struct Trial {
    from: usize,
    to: usize,
    since_seconds: f64,
    evictions: u64,
    has_refilled: bool,
    /// Measured minus modelled miss ratio under the earlier policy, before the switch and since.
    before: Vec<f64>,
    after: Vec<f64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Ban {
    until_seconds: f64,
    undos: u32,
}

/// Chooses the policy of one pool.
#[derive(Clone, Debug)]
pub struct PolicyChoice {
    names: Vec<String>,
    bans: Vec<Ban>,
    base: Option<Base>,
    /// Windows that were measured under the present policy; a change of the policy clears them.
    windows: VecDeque<Window>,
    /// The policy of the last reading.
    present: Option<usize>,
    trial: Option<Trial>,
}

impl PolicyChoice {
    /// A choice among policies with these names.
    pub fn new(names: Vec<String>) -> Self {
        let bans = vec![Ban::default(); names.len()];
        Self { names, bans, base: None, windows: VecDeque::new(), present: None, trial: None }
    }

    /// The candidates.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Decides, and remembers the decision. The caller applies a change, or calls [`PolicyChoice::forget_change`] or
    /// [`PolicyChoice::refuse_change`].
    pub fn decide(&mut self, reading: &PolicyReading<'_>) -> PolicyDecision {
        self.trial.take_if(|trial| trial.to != reading.present);
        if self.present.replace(reading.present) != Some(reading.present) {
            self.windows.clear();
            self.base = None;
        }
        let Some(window) = self.window(reading) else { return PolicyDecision::Keep(self.waiting()) };
        if self.windows.len() == MAX_WINDOWS {
            self.windows.pop_front();
        }
        self.windows.push_back(window);
        if self.trial.is_some() {
            return self.judge(reading);
        }
        if self.windows.len() < MIN_WINDOWS {
            return PolicyDecision::Keep(PolicyKeepReason::Measuring);
        }
        self.choose(reading)
    }

    /// The last change was not applied.
    pub fn forget_change(&mut self) {
        self.trial = None;
    }

    /// The pool refused the last change: the policy waits like one that was undone.
    pub fn refuse_change(&mut self, now_seconds: f64) {
        if let Some(trial) = self.trial.take() {
            self.ban(trial.to, now_seconds);
        }
    }

    fn ban(&mut self, policy: usize, now_seconds: f64) {
        let Ban { undos, .. } = self.bans[policy];
        let seconds = RETRY_SECONDS * f64::from(1u32 << undos.min(MAX_RETRY_DOUBLINGS));
        self.bans[policy] = Ban { until_seconds: now_seconds + seconds, undos: undos + 1 };
    }

    fn waiting(&self) -> PolicyKeepReason {
        if self.trial.is_some() { PolicyKeepReason::OnTrial } else { PolicyKeepReason::Measuring }
    }

    /// The window that ends now, if it is long enough. Other models begin another one.
    fn window(&mut self, reading: &PolicyReading<'_>) -> Option<Window> {
        let next = Base {
            now_seconds: reading.now_seconds,
            gets: reading.gets,
            hits: reading.hits,
            model_set: reading.model_set,
            model_gets: reading.model_gets,
            model_hits: reading.model_hits.to_vec(),
        };
        let is_same = |base: &Base| base.model_set == next.model_set && base.gets <= next.gets;
        let Some(base) = self.base.as_ref().filter(|base| is_same(base)) else {
            self.base = Some(next);
            return None;
        };
        let (gets, model_gets) = (next.gets - base.gets, next.model_gets - base.model_gets);
        let is_long = next.now_seconds - base.now_seconds >= WINDOW_SECONDS && model_gets >= MIN_WINDOW_GETS;
        if !is_long || gets == 0 {
            return None;
        }
        let miss_ratio = |hits: u64, gets: u64| 1.0 - hits as f64 / gets as f64;
        let modelled = base.model_hits.iter().zip(&next.model_hits);
        let window = Window {
            gets: model_gets,
            measured: miss_ratio(next.hits - base.hits, gets),
            models: modelled.map(|(before, after)| miss_ratio(after - before, model_gets)).collect(),
        };
        self.base = Some(next);
        Some(window)
    }

    /// The candidate that surely misses least, if that is worth a switch.
    fn choose(&mut self, reading: &PolicyReading<'_>) -> PolicyDecision {
        let present = reading.present;
        let missed = self.modelled(present);
        let is_open = |at: &usize| *at != present && reading.now_seconds >= self.bans[*at].until_seconds;
        let gain = |at: usize| {
            let saved: Vec<f64> =
                self.windows.iter().map(|window| window.models[present] - window.models[at]).collect();
            (at, Mean::of(&saved))
        };
        let best =
            (0..self.names.len()).filter(is_open).map(gain).max_by(|one, other| one.1.mean.total_cmp(&other.1.mean));
        let Some((to, saved)) = best else {
            return PolicyDecision::Keep(PolicyKeepReason::Measuring);
        };
        if saved.mean <= MIN_GAIN * missed || saved.mean <= saved.interval() {
            let gain = if missed > 0.0 { saved.mean / missed } else { 0.0 };
            return PolicyDecision::Keep(PolicyKeepReason::LittleGain { best: self.names[to].clone(), gain });
        }
        let before = self.windows.iter().map(|window| window.measured - window.models[present]).collect();
        self.trial = Some(Trial {
            from: present,
            to,
            since_seconds: reading.now_seconds,
            evictions: reading.evictions,
            has_refilled: false,
            before,
            after: Vec::new(),
        });
        PolicyDecision::Change(self.change((present, to), false, (missed, self.modelled(to))))
    }

    /// Whether the policy on trial misses more than the earlier one would.
    fn judge(&mut self, reading: &PolicyReading<'_>) -> PolicyDecision {
        let keep = PolicyDecision::Keep(PolicyKeepReason::OnTrial);
        let (Some(trial), Some(window)) = (&mut self.trial, self.windows.back()) else { return keep };
        if !trial.has_refilled {
            let evicted = reading.evictions.saturating_sub(trial.evictions);
            trial.has_refilled =
                evicted >= reading.objects || reading.now_seconds - trial.since_seconds >= MAX_REFILL_SECONDS;
            return keep;
        }
        trial.after.push(window.measured - window.models[trial.from]);
        if trial.after.len() < MIN_WINDOWS {
            return keep;
        }
        let (from, to) = (trial.from, trial.to);
        let (before, after) = (Mean::of(&trial.before), Mean::of(&trial.after));
        let more = after.mean - before.mean;
        let uncertainty = before.interval().hypot(after.interval());
        let newest = self.windows.iter().rev().take(trial.after.len());
        let measured = newest.map(|window| window.measured).sum::<f64>() / trial.after.len() as f64;
        if more > uncertainty && more > MIN_GAIN * (measured - more) {
            self.trial = None;
            self.ban(to, reading.now_seconds);
            return PolicyDecision::Change(self.change((to, from), true, (measured, measured - more)));
        }
        if trial.after.len() == MAX_WINDOWS {
            self.trial = None;
            self.bans[to] = Ban::default();
        }
        keep
    }

    /// The modelled miss ratio over the windows.
    fn modelled(&self, policy: usize) -> f64 {
        self.windows.iter().map(|window| window.models[policy]).sum::<f64>() / self.windows.len() as f64
    }

    fn change(&self, (from, to): (usize, usize), is_undo: bool, (before, after): (f64, f64)) -> PolicyChange {
        PolicyChange {
            from: self.names[from].clone(),
            to: self.names[to].clone(),
            is_undo,
            miss_ratio_before: before,
            miss_ratio_after: after,
            gets: self.windows.iter().map(|window| window.gets).sum(),
        }
    }
}

/// A mean over windows.
struct Mean {
    mean: f64,
    /// Standard error.
    error: f64,
    count: usize,
}

impl Mean {
    fn of(values: &[f64]) -> Self {
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count as f64;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1).max(1) as f64;
        Self { mean, error: (variance / count as f64).sqrt(), count }
    }

    /// Half of the 99.9 % interval.
    fn interval(&self) -> f64 {
        let at = self.count.clamp(MIN_WINDOWS, MAX_WINDOWS) - MIN_WINDOWS;
        STUDENT_9995[at] * self.error
    }
}

impl fmt::Display for PolicyChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, is_undo, .. } = self;
        let [before, after] = [self.miss_ratio_before, self.miss_ratio_after].map(|ratio| ratio * 100.0);
        match is_undo {
            true => {
                write!(f, "undo, {to} instead of {from}: {before:.2} % of gets missed, {after:.2} % would with {to}")
            }
            false => write!(
                f,
                "{to} instead of {from}: {after:.2} % of gets would miss, {before:.2} % with {from}, over {} gets",
                self.gets
            ),
        }
    }
}

impl fmt::Display for PolicyKeepReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measuring => write!(f, "the models of policies have seen too few gets"),
            Self::OnTrial => write!(f, "the hits of a new policy are being measured"),
            Self::LittleGain { gain, .. } if *gain <= 0.0 => write!(f, "no other policy would miss less"),
            Self::LittleGain { best, gain } => write!(
                f,
                "{best} would avoid {:.1} % of the misses, and more than {:.1} % and the noise are worth a switch",
                gain * 100.0,
                MIN_GAIN * 100.0
            ),
        }
    }
}

#[cfg(test)]
#[path = "policy_choice_tests.rs"]
mod tests;
