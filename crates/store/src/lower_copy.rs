//! How the store names a copy in the lower tier while a change runs.

/// A copy in the lower tier, as a search has found it. The store only hands it back to the tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LowerCopy {
    /// The hash of the key in the lower tier.
    pub hash: u64,
    /// No two copies of a key have the same.
    pub token: u64,
}
