//! Changes of keys that arrived in one read: they are executed together, so that the cache misses of their writes
//! overlap, in their order, and each with its own answer.

use ebbtide::memcached::Pool;
use ebbtide_protocol::{MetaCommand, Request};

/// Changes that wait to be executed together.
#[derive(Default)]
pub struct ChangeRun<'a> {
    changes: Vec<PendingChange<'a>>,
}

pub struct PendingChange<'a> {
    pub request: Request<'a>,
    /// Position of its line in the input.
    pub position: usize,
}

/// The key of a change whose value, if it has one, is all in the input.
pub fn changed_key<'a>(request: &Request<'a>) -> Option<&'a [u8]> {
    match request {
        Request::Store(store) => store.value.map(|_| store.key),
        Request::MetaSet(set) => set.value.map(|_| set.meta.key_word()),
        Request::Meta { command: MetaCommand::Delete | MetaCommand::Arithmetic, meta } => Some(meta.key_word()),
        Request::Delete { key, .. } | Request::Arithmetic { key, .. } | Request::Touch { key, .. } => Some(key),
        _ => None,
    }
}

impl<'a> ChangeRun<'a> {
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.changes.len() == Pool::WRITE_BATCH
    }

    pub fn push(&mut self, request: Request<'a>, position: usize) {
        self.changes.push(PendingChange { request, position });
    }

    /// The keys of the changes, as their lines have them: that of a meta command may be encoded.
    pub fn keys(&self) -> impl Iterator<Item = &'a [u8]> + use<'_, 'a> {
        self.changes.iter().filter_map(|change| changed_key(&change.request))
    }

    /// Empties the run.
    pub fn take(&mut self) -> impl Iterator<Item = PendingChange<'a>> + use<'_, 'a> {
        self.changes.drain(..)
    }
}
