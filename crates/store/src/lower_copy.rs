//! What the store keeps of a copy in the lower tier, for as long as a change takes.

/// A copy in the lower tier, as a search has found it. The store only hands it back to the tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LowerCopy {
    /// The hash of the key in the lower tier.
    pub hash: u64,
    /// No two copies of a key have the same.
    pub token: u64,
}
