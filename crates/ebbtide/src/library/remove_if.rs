//! Removals by a predicate: of one key, and of all entries of a pool.

use super::entry_kind::EntryKind;
use super::pool::{Pool, has_value, with_bytes};
use crate::error::Error;
use crate::lookup::Item;

impl Pool {
    /// Removes a key if the predicate is true of its value, as one operation: the value that the predicate saw last is
    /// the one that is removed, and no newer one. False, with nothing changed, if the key is absent or its value is
    /// kept. The predicate is called again if the value changes meanwhile. It should be brief, and must not write to
    /// the cache: see [`Pool::with`]. If only flash may have the key, the calling thread waits for the device.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// cache.insert("session", "v1 Ada")?;
    /// assert!(!cache.remove_if("session", |value| value.starts_with(b"v0"))?);
    /// assert!(cache.remove_if("session", |value| value.starts_with(b"v1"))?);
    /// assert!(cache.get("session").is_none());
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `KeyLength`; `Closed`; `PoolRemoved`; `OutOfMemory` if other threads evict the key again and again: nothing is
    /// changed.
    pub fn remove_if(&self, key: impl AsRef<[u8]>, predicate: impl Fn(&[u8]) -> bool) -> Result<bool, Error> {
        let accepts = |item: &Item<'_>| has_value(item) && with_bytes(item, &predicate);
        self.commands.0.delete_accepted(key.as_ref(), &accepts)
    }

    /// As [`Pool::remove_if`]. If only flash may have the key, the task waits for the device; its value is then copied
    /// to memory first.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # let task = async {
    /// cache.insert_async("lock", "me").await?;
    /// assert!(cache.remove_if_async("lock", |owner| owner == b"me").await?);
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Pool::remove_if`]; `OutOfMemory` also if flash has the value and memory has no place for it.
    pub async fn remove_if_async(
        &self,
        key: impl AsRef<[u8]>,
        predicate: impl Fn(&[u8]) -> bool,
    ) -> Result<bool, Error> {
        let key = key.as_ref();
        self.change_async(key, |pool| pool.remove_if(key, &predicate)).await
    }

    /// Removes all entries of which `keeps` is false, given the key and the value, in memory and on flash. Returns how
    /// many it has removed.
    ///
    /// It walks through the pool as [`Pool::iter`] does, beside all other operations: an entry that exists during the
    /// whole walk is seen, one that is written meanwhile may be seen or not. Each removal is a [`Pool::remove_if`]: a
    /// newer value is removed only if `keeps` is false of it, too. So `keeps` is called more than once for some
    /// entries. It should be brief, and must not write to the cache. Flash is read from its beginning to its end.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// cache.insert("user:1", "Ada")?;
    /// cache.insert("page:1", "html")?;
    /// assert_eq!(cache.retain(|key, _| !key.starts_with(b"user:"))?, 1);
    /// assert!(cache.contains_key("page:1") && !cache.contains_key("user:1"));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `ScanLimit`: at most eight walks at a time. As `remove_if`: the entries removed before stay removed.
    pub fn retain(&self, keeps: impl Fn(&[u8], &[u8]) -> bool) -> Result<u64, Error> {
        let (mut scan, mut rejected, mut removed) = (self.commands.scan()?, Vec::<Box<[u8]>>::new(), 0);
        loop {
            // A thread that changes the cache must hold no item: the removals follow each step of the walk.
            let goes_on = scan.advance(|entry| {
                if !EntryKind::of_annotation(entry.annotation()).has_value() {
                    return;
                }
                let is_kept = match entry.item() {
                    Some(item) => with_bytes(item, |value| keeps(entry.key(), value)),
                    None => entry.to_vec().is_none_or(|value| keeps(entry.key(), &value)),
                };
                if !is_kept {
                    rejected.push(entry.key().into());
                }
            });
            for key in rejected.drain(..) {
                removed += u64::from(self.remove_if(&key, |value| !keeps(&key, value))?);
            }
            if !goes_on {
                return Ok(removed);
            }
        }
    }
}
