//! Admission: its options, its decisions and its counters.

use super::history::MissHistory;
use super::rate_controller::RateController;
use super::rate_controller::WriteBudget;
use super::reject_first::RejectFirst;
use super::threshold::Threshold;
use crate::hash::mix;
use crate::{Error, FlashHash};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The weight of an object in the mean of those before it.
pub(super) const MEAN_WEIGHT: f64 = 0.001;
/// A key with fewer than the minimum of expected reads passes with this power of their ratio as probability: with half
/// of the minimum, one key in 256 passes.
pub(super) const STEEPNESS: f64 = 8.0;
/// Maximum number of keys: more would need more memory than a machine has.
pub(super) const MAX_KEYS: usize = 1 << 36;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AdmissionPolicy {
    All,
    /// Admits each object with this probability, 0 to 1.
    Probability(f64),
    /// Rejects the first 1 to 8 offers of a key; remembers about `keys` keys.
    RejectFirst {
        times: u8,
        keys: usize,
    },
    /// Expects `keys_per_hour` different keys that DRAM misses in an hour, at 9 bytes of memory each. Refuses objects
    /// that are likely to get fewer than `min_reads` reads an hour from flash, except for some of the keys that get
    /// nearly as many, always the same ones. The minimum is for an object as long as the mean of the offered ones; one
    /// twice as long needs twice as many reads.
    History {
        keys_per_hour: usize,
        min_reads: f64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdmissionOptions {
    /// By default all: the owner decides on the lifetime of a drive.
    pub policy: AdmissionPolicy,
    /// By default none, for the same reason.
    pub budget: Option<WriteBudget>,
    /// Objects that expire sooner are refused. By default 10: an object waits about this long in a buffer, where flash
    /// rarely serves it.
    pub min_ttl_seconds: u32,
    /// Objects with a shorter value are refused. By default 0.
    pub min_value_bytes: u32,
}

impl AdmissionOptions {
    /// Bytes of the filters and samples that the policy needs.
    pub fn memory_bytes(&self) -> usize {
        match self.policy {
            AdmissionPolicy::All | AdmissionPolicy::Probability(_) => 0,
            AdmissionPolicy::RejectFirst { times, keys } => RejectFirst::memory_bytes_for(times, keys),
            AdmissionPolicy::History { keys_per_hour, .. } => MissHistory::memory_bytes_for(keys_per_hour),
        }
    }

    /// # Errors
    ///
    /// [`Error::Options`] names the invalid option.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |text: String| Err(Error::Options(text));
        match self.policy {
            AdmissionPolicy::Probability(p) if !(0.0..=1.0).contains(&p) => {
                return refuse(format!("the admission probability is {p}, but can be 0 to 1"));
            }
            AdmissionPolicy::RejectFirst { times, .. } if !(1..=8).contains(&times) => {
                return refuse(format!("flash is to reject the first {times} times, but can do so 1 to 8 times"));
            }
            AdmissionPolicy::RejectFirst { keys: 0, .. } | AdmissionPolicy::History { keys_per_hour: 0, .. } => {
                return refuse("flash is to remember 0 keys for admission, but needs 1 at least".to_owned());
            }
            AdmissionPolicy::RejectFirst { keys, .. } | AdmissionPolicy::History { keys_per_hour: keys, .. }
                if keys > MAX_KEYS =>
            {
                return refuse(format!(
                    "flash is to remember {keys} keys for admission, but can remember {MAX_KEYS} at most"
                ));
            }
            AdmissionPolicy::History { min_reads, .. } if !(0.0..=1e9).contains(&min_reads) => {
                return refuse(format!("the least reads an hour for admission are {min_reads}, but can be 0 to 1e9"));
            }
            _ => {}
        }
        match self.budget {
            Some(WriteBudget::BytesPerSecond(0)) => {
                refuse("the write budget is 0 bytes per second, but must be more".to_owned())
            }
            Some(WriteBudget::DriveWritesPerDay(writes)) if !(writes > 0.0 && writes <= 1e6) => refuse(format!(
                "the write budget is {writes} drive writes per day, but must be more than 0, and 1e6 at most"
            )),
            _ => Ok(()),
        }
    }
}

impl Default for AdmissionOptions {
    fn default() -> Self {
        Self { policy: AdmissionPolicy::All, budget: None, min_ttl_seconds: 10, min_value_bytes: 0 }
    }
}

/// An object that is offered for admission.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    pub key: FlashHash,
    /// Bytes of key and value.
    pub bytes: usize,
    pub value_bytes: usize,
    /// Seconds since 1970 at which it expires; 0 for never.
    pub expiry: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Admit,
    Refuse(Reason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    ExpiresSoon,
    TooSmall,
    Policy,
    Budget,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AdmissionStats {
    pub admitted: u64,
    pub admitted_bytes: u64,
    pub refused_expires_soon: u64,
    pub refused_too_small: u64,
    pub refused_by_policy: u64,
    pub refused_by_budget: u64,
    /// The share of the bytes that pass the policy which the budget admits now.
    pub share: f64,
}

/// Limits that apply under every policy. They may change at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Objects that expire sooner are refused.
    pub min_ttl_seconds: u32,
    /// Objects with a shorter value are refused.
    pub min_value_bytes: u32,
}

pub struct Admission {
    pub(super) options: AdmissionOptions,
    pub(super) min_ttl_seconds: AtomicU32,
    pub(super) min_value_bytes: AtomicU32,
    pub(super) history: Option<MissHistory>,
    pub(super) state: Mutex<State>,
    pub(super) random_state: AtomicU64,
}

pub(super) struct State {
    pub(super) reject_first: Option<RejectFirst>,
    pub(super) rate_controller: Option<RateController>,
    pub(super) threshold: Threshold,
    /// Mean bytes of the offered objects, weighted to the last ones; 0 before the first.
    pub(super) mean_bytes: f64,
    pub(super) stats: AdmissionStats,
}

impl Admission {
    /// Admission for a device of `capacity` bytes. Random choices come from the seed.
    pub fn new(options: AdmissionOptions, capacity: u64, seed: u64) -> Result<Self, Error> {
        options.check()?;
        let history = match options.policy {
            AdmissionPolicy::History { keys_per_hour, .. } => Some(MissHistory::new(keys_per_hour)),
            _ => None,
        };
        let reject_first = match options.policy {
            AdmissionPolicy::RejectFirst { times, keys } => Some(RejectFirst::new(times, keys)),
            _ => None,
        };
        let rate_controller = options.budget.map(|budget| RateController::new(budget.bytes_per_second(capacity)));
        let state = State {
            reject_first,
            rate_controller,
            threshold: Threshold::new(),
            mean_bytes: 0.0,
            stats: AdmissionStats::default(),
        };
        Ok(Self {
            options,
            min_ttl_seconds: AtomicU32::new(options.min_ttl_seconds),
            min_value_bytes: AtomicU32::new(options.min_value_bytes),
            history,
            state: Mutex::new(state),
            random_state: AtomicU64::new(seed),
        })
    }

    pub fn limits(&self) -> Limits {
        Limits {
            min_ttl_seconds: self.min_ttl_seconds.load(Relaxed),
            min_value_bytes: self.min_value_bytes.load(Relaxed),
        }
    }

    /// Sets the limits.
    pub fn set_limits(&self, limits: Limits) {
        self.min_ttl_seconds.store(limits.min_ttl_seconds, Relaxed);
        self.min_value_bytes.store(limits.min_value_bytes, Relaxed);
    }

    /// Bytes per second that may be written to the device; `None` without a budget.
    pub fn budget_bytes_per_second(&self) -> Option<f64> {
        self.state.lock().unwrap().rate_controller.as_ref().map(RateController::bytes_per_second)
    }

    /// Whether the budget has something left for a write that nothing requires.
    pub fn has_budget(&self, now: u32) -> bool {
        let State { rate_controller, stats, .. } = &*self.state.lock().unwrap();
        rate_controller.as_ref().is_none_or(|controller| controller.has_left(now, stats.admitted_bytes))
    }

    /// Records a request for a key that DRAM missed: every such request, or those of a sample of the keys.
    pub fn missed(&self, key: FlashHash) {
        if let Some(history) = &self.history {
            history.missed(key);
        }
    }

    pub fn offer(&self, offer: &Offer, now: u32) -> Decision {
        let mut state = self.state.lock().unwrap();
        let decision = self.decide(&mut state, offer, now);
        let stats = &mut state.stats;
        match decision {
            Decision::Admit => {
                stats.admitted += 1;
                stats.admitted_bytes += offer.bytes as u64;
            }
            Decision::Refuse(Reason::ExpiresSoon) => stats.refused_expires_soon += 1,
            Decision::Refuse(Reason::TooSmall) => stats.refused_too_small += 1,
            Decision::Refuse(Reason::Policy) => stats.refused_by_policy += 1,
            Decision::Refuse(Reason::Budget) => stats.refused_by_budget += 1,
        }
        decision
    }

    /// Called about once a second, with the bytes written to the device since the start.
    pub fn maintain(&self, now: u32, written_bytes: u64) {
        if let Some(history) = &self.history {
            history.maintain(now);
        }
        let mut state = self.state.lock().unwrap();
        let State { rate_controller: Some(rate_controller), threshold, stats, .. } = &mut *state else { return };
        if rate_controller.observe(now, written_bytes, stats.admitted_bytes) {
            threshold.adjust(rate_controller.share());
        }
    }

    pub fn stats(&self) -> AdmissionStats {
        let state = self.state.lock().unwrap();
        AdmissionStats { share: state.rate_controller.as_ref().map_or(1.0, RateController::share), ..state.stats }
    }

    /// Bytes of all filters and samples.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.options.memory_bytes()
    }

    pub(super) fn decide(&self, state: &mut State, offer: &Offer, now: u32) -> Decision {
        if let Some(reason) = self.limits().refuse(offer, now) {
            return Decision::Refuse(reason);
        }
        let mut share = state.rate_controller.as_ref().map_or(1.0, RateController::share);
        let passes = match (self.options.policy, &mut state.reject_first, &self.history) {
            (AdmissionPolicy::Probability(probability), ..) => self.draw(probability),
            (_, Some(reject_first), _) => reject_first.offer(offer.key),
            (AdmissionPolicy::History { min_reads, .. }, _, Some(history)) => {
                let reads = history.offer(offer.key, now);
                let passes = reads >= min_reads * state.relative_size(offer.bytes) * soft_minimum(offer.key);
                if passes && state.rate_controller.is_some() {
                    share = state.threshold.offer(reads, offer.bytes);
                }
                passes
            }
            _ => true,
        };
        match (passes, self.draw(share)) {
            (false, _) => Decision::Refuse(Reason::Policy),
            (true, false) => Decision::Refuse(Reason::Budget),
            (true, true) => Decision::Admit,
        }
    }

    pub(super) fn draw(&self, probability: f64) -> bool {
        let draw = mix(self.random_state.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed));
        ((draw >> 11) as f64) < probability * (1_u64 << 53) as f64
    }
}

impl Limits {
    /// Why an object is refused, if it is.
    pub fn refuse(&self, offer: &Offer, now: u32) -> Option<Reason> {
        if offer.expiry != 0 && offer.expiry.saturating_sub(now) < self.min_ttl_seconds {
            return Some(Reason::ExpiresSoon);
        }
        (offer.value_bytes < self.min_value_bytes as usize).then_some(Reason::TooSmall)
    }
}

impl State {
    /// Ratio of the length of an offered object to the mean, after the mean is updated with it.
    pub(super) fn relative_size(&mut self, bytes: usize) -> f64 {
        let weight = if self.mean_bytes == 0.0 { 1.0 } else { MEAN_WEIGHT };
        self.mean_bytes += (bytes as f64 - self.mean_bytes) * weight;
        bytes as f64 / self.mean_bytes
    }
}

/// The fraction of the minimum reads that is enough for a key. It is a hash of the key, so among keys with slightly
/// fewer reads the same ones always pass. If it were drawn anew with each offer, all of them would pass in the end,
/// each with a write, and on a full flash each would displace another object.
pub(super) fn soft_minimum(key: FlashHash) -> f64 {
    let drawn = ((mix(!key.0) >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    drawn.powf(1.0 / STEEPNESS)
}
