//! Iteration over all entries.

use super::entry_kind::EntryKind;
use super::value::Value;
use crate::scan::Scan;
use std::collections::VecDeque;
use std::fmt::{Debug, Formatter};

/// Iterates over the keys and values of a pool, in no order, beside all other operations. Made by
/// [`crate::Pool::iter`].
///
/// An entry that exists during the whole iteration is met at least once. An entry that is written or removed meanwhile
/// may be met or not; one that moves between memory and flash, or in a growing index, may be met twice.
///
/// ```
/// # use ebbtide::{ByteSize, Cache};
/// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
/// cache.insert("k", "v")?;
/// let keys: Vec<_> = cache.iter()?.map(|(key, _)| key).collect();
/// assert_eq!(*keys[0], *b"k");
/// # Ok::<(), ebbtide::Error>(())
/// ```
pub struct Iter {
    scan: Scan,
    is_over: bool,
    /// Entries of the last step.
    ready: VecDeque<(Box<[u8]>, Value)>,
}

impl Iter {
    pub(super) fn new(scan: Scan) -> Self {
        Self { scan, is_over: false, ready: VecDeque::new() }
    }
}

impl Iterator for Iter {
    type Item = (Box<[u8]>, Value);

    fn next(&mut self) -> Option<Self::Item> {
        // Ends, because each round is a step of the scan.
        while self.ready.is_empty() && !self.is_over {
            let ready = &mut self.ready;
            self.is_over = !self.scan.advance(|entry| {
                if !EntryKind::of_annotation(entry.annotation()).has_value() {
                    return;
                }
                let value = match entry.item() {
                    Some(item) => Some(Value::of(item)),
                    None => entry.to_vec().map(Value::from),
                };
                ready.extend(value.map(|value| (entry.key().into(), value)));
            });
        }
        self.ready.pop_front()
    }
}

impl Debug for Iter {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Iter").field("progress", &self.scan.progress()).finish_non_exhaustive()
    }
}
