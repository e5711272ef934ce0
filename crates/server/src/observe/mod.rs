//! Observation of the server: samples from the workers, and a reading of all counters once a second.
//!
//! | module | holds |
//! |---|---|
//! | `probe` | a worker's side: which commands are sampled |
//! | `histogram` | latencies by command |
//! | `hot_keys`, `watched_keys` | the most requested keys; those of the largest objects |
//! | `snapshot`; `observer` | a reading of all counters; values that the admin thread derives every second |
//! | `events`; `history`, `history_point` | events; points of a week |
//! | `history_file`, `event_record` | both on disk |
//! | `window` | the numbers of the last minute, the same for all displays |
//! | `groups`; `traffic`, `census` | counts by key prefix; of accesses and evictions, of stored objects |
//! | `headline` | the state in one sentence |
//! | `sizing` | whether the cache has the right size |
//! | `wear` | how long the drive below flash will last |
//!
//! All data but the samples is read from existing counters, at no cost for workers. Without an admin interface nothing
//! is sampled.

mod census;
mod event_record;
mod events;
mod groups;
mod headline;
mod histogram;
mod history;
mod history_file;
mod history_point;
mod hot_keys;
mod observer;
mod probe;
mod sizing;
mod snapshot;
mod traffic;
mod watched_keys;
mod wear;
mod window;

pub use census::{Census, CensusClock, LargeObject, SizeClass};
pub use events::EventKind;
pub use groups::{prefix_name, size_range};
pub use headline::{FALL, Facts, GetCounts, Level, headline};
pub use histogram::LatencyHistogram;
pub use history_file::HistoryFile;
pub use hot_keys::{HotKeys, HottestKey, hottest, printable};
pub use observer::Observer;
pub use probe::{Probe, Samples};
pub use sizing::{DEFAULT_POOL, MIN_CURVE_GETS, Sizing};
pub use snapshot::{FlashSnapshot, Snapshot};
pub use traffic::{
    EvictionCounts, EvictionGroups, EvictionSamples, EvictionSketch, TrafficSketch, missed_prefix, ttl_of_group,
};
pub use wear::{DriveWrites, Endurance, FlashRating, WearRate};
pub use window::{PoolWindow, Recent, Window};

use ebbtide_protocol::{MetaCommand, Request, binary};

/// Kind of a command in latencies: its operation, the same for every dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum CommandKind {
    Get,
    GetAndTouch,
    /// Every command that stores a value.
    Set,
    Delete,
    Incr,
    Decr,
    Touch,
    Other,
}

impl CommandKind {
    pub const ALL: [Self; 8] =
        [Self::Get, Self::GetAndTouch, Self::Set, Self::Delete, Self::Incr, Self::Decr, Self::Touch, Self::Other];

    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::GetAndTouch => "gat",
            Self::Set => "set",
            Self::Delete => "delete",
            Self::Incr => "incr",
            Self::Decr => "decr",
            Self::Touch => "touch",
            Self::Other => "other",
        }
    }

    /// The command of a request, and its key.
    pub fn of<'a>(request: &Request<'a>) -> (Self, Option<&'a [u8]>) {
        match request {
            Request::Get(get) if get.touch.is_some() => (Self::GetAndTouch, get.keys.clone().next()),
            Request::Get(get) => (Self::Get, get.keys.clone().next()),
            Request::Store(store) => (Self::Set, Some(store.key)),
            Request::MetaSet(set) => (Self::Set, Some(set.meta.key_word())),
            Request::Meta { command, meta } => {
                let named = match command {
                    MetaCommand::Get if meta.has(b'T') => Self::GetAndTouch,
                    MetaCommand::Get => Self::Get,
                    MetaCommand::Delete => Self::Delete,
                    MetaCommand::Arithmetic if matches!(meta.mode(), Some(b'D' | b'-')) => Self::Decr,
                    MetaCommand::Arithmetic => Self::Incr,
                    MetaCommand::Debug => Self::Other,
                };
                (named, Some(meta.key_word()))
            }
            Request::Delete { key, .. } => (Self::Delete, Some(key)),
            Request::Arithmetic { key, increment: true, .. } => (Self::Incr, Some(key)),
            Request::Arithmetic { key, .. } => (Self::Decr, Some(key)),
            Request::Touch { key, .. } => (Self::Touch, Some(key)),
            _ => (Self::Other, None),
        }
    }

    /// Kind and key of a packet of the binary protocol.
    pub fn of_binary<'a>(command: &binary::BinaryCommand<'a>) -> (Self, Option<&'a [u8]>) {
        match command {
            binary::BinaryCommand::Get { key, .. } => (Self::Get, Some(key)),
            binary::BinaryCommand::Touch { key, answer: binary::Touched::Flags, .. } => (Self::Touch, Some(key)),
            binary::BinaryCommand::Touch { key, .. } => (Self::GetAndTouch, Some(key)),
            binary::BinaryCommand::Put(put) => (Self::Set, Some(put.key)),
            binary::BinaryCommand::Delete { key, .. } => (Self::Delete, Some(key)),
            binary::BinaryCommand::Arithmetic { key, increment: true, .. } => (Self::Incr, Some(key)),
            binary::BinaryCommand::Arithmetic { key, .. } => (Self::Decr, Some(key)),
            _ => (Self::Other, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CommandKind;

    #[test]
    fn commands_are_numbered_as_they_are_listed() {
        for (at, command) in CommandKind::ALL.into_iter().enumerate() {
            assert_eq!(command as usize, at);
        }
    }
}
