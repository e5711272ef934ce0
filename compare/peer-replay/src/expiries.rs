//! Index of keys by expiry, with which a cache removes every object on time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::trace::NEVER;

/// Keys by expiry. An entry stays when its object is removed or gets another expiry: the caller compares.
#[derive(Debug, Default)]
pub struct Expiries(BinaryHeap<Reverse<(u32, u32)>>);

impl Expiries {
    pub fn add(&mut self, key: u32, expiry: u32) {
        if expiry != NEVER {
            self.0.push(Reverse((expiry, key)));
        }
    }

    /// A key and its expiry, if that is not after `now`.
    pub fn take(&mut self, now: u32) -> Option<(u32, u32)> {
        let &Reverse((expiry, key)) = self.0.peek()?;
        (expiry <= now).then(|| {
            self.0.pop();
            (key, expiry)
        })
    }
}
