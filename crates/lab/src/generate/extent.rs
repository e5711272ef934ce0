use super::clock::DailyClock;

/// Length, seed and clock, which every kind of workload takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct TraceExtent {
    pub(super) requests: u64,
    pub(super) seed: u64,
    pub(super) clock: DailyClock,
}
