//! Options of one write.

use ebbtide_store::Ttl;

/// Options of one write, for [`crate::Pool::insert_with`] and its relatives.
///
/// ```
/// use std::time::Duration;
/// # use ebbtide::{ByteSize, Cache, InsertOptions};
/// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
/// cache.insert_with("session", "42", InsertOptions::new().ttl(Duration::from_secs(60)))?;
/// # Ok::<(), ebbtide::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InsertOptions {
    ttl: Option<Ttl>,
}

impl InsertOptions {
    /// The cache's default TTL.
    pub fn new() -> Self {
        Self::default()
    }

    /// How long the entry lives: a `Duration`, rounded up to whole seconds, or a [`Ttl`]. An entry with a TTL of zero
    /// is absent at once.
    pub fn ttl(mut self, ttl: impl Into<Ttl>) -> Self {
        self.ttl = Some(ttl.into());
        self
    }

    pub(super) fn ttl_or(self, default: Ttl) -> Ttl {
        self.ttl.unwrap_or(default)
    }
}
