use super::clock::DailyClock;

/// What every kind of workload is told.
#[derive(Clone, Copy, Debug)]
pub(super) struct TraceExtent {
    pub(super) requests: u64,
    pub(super) seed: u64,
    pub(super) clock: DailyClock,
}
