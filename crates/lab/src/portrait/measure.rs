//! All measures of a trace together.

use super::{arrivals, churn, objects, popularity};
use crate::trace::loaded::{LoadedTrace, is_get};

/// Results of all measures.
pub(super) struct Portrait {
    pub(super) objects: objects::ObjectStatistics,
    pub(super) law: Option<popularity::ZipfFit>,
    pub(super) churn: churn::Churn,
    pub(super) ttls: objects::Ttls,
    pub(super) arrivals: arrivals::ArrivalDispersion,
}

impl Portrait {
    pub(super) fn of(trace: &LoadedTrace) -> Self {
        // A trace of writes alone has a portrait, too.
        let any = trace.gets() == 0;
        let requests = trace.steps.iter().filter(|step| any || is_get(step.op)).map(|step| (step.key, step.time));
        let seconds: Vec<u32> = trace.steps.iter().map(|step| step.time).collect();
        let objects = objects::objects(trace);
        Self {
            law: popularity::ZipfFit::of(&objects.requests),
            churn: churn::churn(requests),
            ttls: objects::ttls(trace),
            arrivals: arrivals::arrivals(&seconds, trace.origin_seconds),
            objects,
        }
    }
}
