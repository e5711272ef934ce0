//! The eviction policy of a live pool: which candidate misses least, by a model of each.
//!
//! ```text
//! access samples -> models of the candidates (live_models.rs) --+
//! hits and evictions of the pool -------------------------------+-> PolicyChoice -> PoolController -> set_policy
//! ```
//! A pool's candidates are the policies that the builder allows and the policy that the pool has. All mathematics is in
//! `ebbtide_control::PolicyChoice`.

use crate::error::Error;
use crate::pool_state::PoolState;
use crate::profile::CacheProfile;
use ebbtide_control::{PolicyChange, PolicyChoice, PolicyDecision, PolicyKeepReason, PolicyReading};
use ebbtide_store::Policy;

/// Another policy for a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolPolicyChange {
    pub pool: String,
    pub change: PolicyChange,
}

impl std::fmt::Display for PoolPolicyChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.pool, self.change)
    }
}

/// The choice for one pool.
#[derive(Debug)]
pub(crate) struct PoolPolicy {
    candidates: Vec<Policy>,
    choice: PolicyChoice,
    /// Why the policy stays.
    state: PolicyKeepReason,
}

impl PoolPolicy {
    /// A choice among these policies and the present one.
    pub fn new(allowed: &[Policy], present: Policy) -> Self {
        let mut candidates = vec![present];
        for policy in allowed {
            if !candidates.contains(policy) {
                candidates.push(*policy);
            }
        }
        let names = candidates.iter().map(|policy| policy.name().to_owned()).collect();
        Self { candidates, choice: PolicyChoice::new(names), state: PolicyKeepReason::Measuring }
    }

    /// The policy that the pool shall have instead of its present one, with the reason.
    pub fn decide(
        &mut self,
        pool: &PoolState,
        profile: &mut CacheProfile,
        now_ms: u64,
    ) -> Option<(Policy, PolicyChange)> {
        let policy = pool.store.policy();
        let present = match self.candidates.iter().position(|candidate| *candidate == policy) {
            Some(present) => present,
            None => {
                // A reload gave it a policy that was no candidate.
                *self = Self::new(&self.candidates, policy);
                0
            }
        };
        profile.compare(&self.candidates);
        let counts = profile.candidate_counts()?;
        // A candidate that does not work in this memory has no model.
        let hits = |policy: &Policy| counts.hits.iter().find(|(counted, _)| counted == policy).map(|(_, hits)| *hits);
        let model_hits: Vec<u64> = self.candidates.iter().map(|policy| hits(policy).unwrap_or(0)).collect();
        hits(&policy)?;
        let counters = pool.store.counter_snapshot();
        let (gets, hits) = profile.sampled();
        let decision = self.choice.decide(&PolicyReading {
            now_seconds: now_ms as f64 / 1000.0,
            present,
            gets,
            hits,
            // Also those that flash took: a trial of a policy takes as long as memory takes to change.
            evictions: counters.displaced(),
            objects: counters.items,
            model_set: counts.set,
            model_gets: counts.gets,
            model_hits: &model_hits,
        });
        match decision {
            PolicyDecision::Keep(reason) => {
                self.state = reason;
                None
            }
            PolicyDecision::Change(change) => {
                self.state = PolicyKeepReason::OnTrial;
                let to = self.candidates.iter().find(|candidate| candidate.name() == change.to)?;
                Some((*to, change))
            }
        }
    }

    /// The last change was not applied.
    pub fn forget_change(&mut self) {
        self.choice.forget_change();
    }

    /// Notes whether the pool took the last change. Returns the error of a pool that refused it: the policy waits.
    ///
    /// # Errors
    /// `Closed`.
    pub fn note_applied(&mut self, applied: Result<(), Error>, now_ms: u64) -> Result<Option<Error>, Error> {
        match applied {
            Ok(()) => Ok(None),
            Err(Error::Closed) => Err(Error::Closed),
            Err(error) => {
                self.choice.refuse_change(now_ms as f64 / 1000.0);
                self.state = PolicyKeepReason::Measuring;
                Ok(Some(error))
            }
        }
    }

    pub fn state(&self) -> &PolicyKeepReason {
        &self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_policies_do_not_end_controller_steps() {
        let mut policy = PoolPolicy::new(&[Policy::Lru], Policy::S3Fifo);
        let refused = Error::Configuration { option: "memory", value: "1".to_owned(), reason: "no".to_owned() };
        let removed = Error::PoolRemoved { name: "a".to_owned() };
        for error in [refused, removed] {
            assert_eq!(policy.note_applied(Err(error.clone()), 1000), Ok(Some(error)));
        }
        assert_eq!(policy.note_applied(Err(Error::Closed), 1000), Err(Error::Closed));
        assert_eq!(policy.note_applied(Ok(()), 1000), Ok(None));
    }
}
