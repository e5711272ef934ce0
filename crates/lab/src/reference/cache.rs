//! The trait of policies by object.

/// A cache under a policy.
pub trait Cache: Send {
    /// Asks for an object, which is inserted if it is not there. `next` is the number of the request that asks for the
    /// key again, `u64::MAX` if none does; only clairvoyant policies may look at it. True for a hit.
    fn get(&mut self, key: u64, bytes: u64, next: u64) -> bool;

    /// Removes an object that died.
    fn remove(&mut self, key: u64);

    /// Size of an object that is there.
    fn bytes_of(&self, key: u64) -> Option<u64>;
}
