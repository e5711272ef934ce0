//! How a workload is played.

/// The command that plays a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlayedBy {
    /// `generate`.
    Trace,
    Replay,
    /// `bench` in process.
    Bench,
    /// `bench` on a server.
    RemoteBench,
}

/// The rate of a CacheBench configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pace {
    /// Requests a second.
    pub(crate) rate: f64,
    /// Requests that are due at the start.
    pub(crate) at_once: u64,
}
