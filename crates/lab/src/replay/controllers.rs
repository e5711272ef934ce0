//! The controllers of a replay: of the memory of pools (`--divide auto`), and of policies (`--controller-policies`).

use std::time::Duration;

use ebbtide::memcached::Cache;

use super::auto_division::AutoDivision;
use super::auto_policy::AutoPolicies;
use super::decision::Decision;
use super::player::ReplayCounts;
use crate::Error;
use crate::trace::Request;

/// The active controllers, and their decisions.
#[derive(Default)]
pub(super) struct Controllers {
    pub(super) division: Option<AutoDivision>,
    pub(super) policies: Option<AutoPolicies>,
    decisions: Vec<Decision>,
}

impl Controllers {
    pub(super) fn is_off(&self) -> bool {
        self.division.is_none() && self.policies.is_none()
    }

    /// A request of this pool is about to be played.
    pub(super) fn observe(&mut self, request: &Request, pool: usize, now: Duration) {
        let of_division = self.division.as_mut();
        of_division.into_iter().for_each(|division| division.observe(request, pool, now.as_secs()));
        let of_policies = self.policies.as_mut();
        of_policies.into_iter().for_each(|policies| policies.observe(request, pool, now.as_millis() as u64));
    }

    /// Decides, when it is time, and changes memory and policies of the caches.
    pub(super) fn advance(&mut self, now: Duration, caches: &[Cache], counts: &[&ReplayCounts]) -> Result<(), Error> {
        let before = self.decisions.len();
        if let Some(policies) = &mut self.policies {
            self.decisions.extend(policies.advance(now, caches, counts)?);
        }
        let Some(division) = &mut self.division else { return Ok(()) };
        if self.decisions.len() > before {
            // The hits of another policy do not measure a move of memory.
            division.measure_anew();
        }
        self.decisions.extend(division.advance(now, caches, counts)?);
        Ok(())
    }

    /// The decisions in order of time.
    pub(super) fn into_decisions(self) -> Vec<Decision> {
        self.decisions
    }
}
