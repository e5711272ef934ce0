//! The trait of policies by object.

/// A cache under a policy.
pub trait Cache: Send {
    /// Gets an object, and inserts it on a miss. `next`: number of the next request for the key, `u64::MAX` if there is
    /// none; only clairvoyant policies may read it. True for a hit.
    fn get(&mut self, key: u64, bytes: u64, next: u64) -> bool;

    /// Removes an object that died.
    fn remove(&mut self, key: u64);

    /// Size of a cached object.
    fn bytes_of(&self, key: u64) -> Option<u64>;
}
