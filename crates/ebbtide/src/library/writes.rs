//! Writes: the methods of a pool that change what a key maps to.

use super::entry_kind::EntryKind;
use super::insert_options::InsertOptions;
use super::pool::{Pool, has_value};
use super::value::Value;
use crate::edit::Decide;
use crate::error::Error;
use crate::lookup::Item;
use crate::memcached;
use ebbtide_store::{Change, Changed, Count, Edit, Editable, Mode, Stored, Ttl};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Number of times that a change of a number is tried again although a value is there. Only a key whose negative result
/// and number take turns needs more than one.
const MAX_REFUSALS: u32 = 3;

/// Writes. A write that needs memory evicts; it waits for other threads within bounds, for ten seconds at most.
impl Pool {
    /// Writes a value with the cache's default TTL.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// cache.insert("k", "v")?;
    /// cache.insert(42_u64.to_be_bytes(), vec![0; 1000])?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `KeyLength`, `ValueTooLarge`; `OutOfMemory` if nothing can be evicted; `PoolRemoved`. After an error the key is
    /// absent: no old value stays.
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.insert_with(key, value, InsertOptions::new())
    }

    /// Writes a value with options.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let a_minute = InsertOptions::new().ttl(std::time::Duration::from_secs(60));
    /// cache.insert_with("session", "42", a_minute)?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `insert`.
    pub fn insert_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: InsertOptions,
    ) -> Result<(), Error> {
        self.write(key.as_ref(), value.as_ref(), options, Mode::Set).map(drop)
    }

    /// Writes many values with the cache's default TTL, in their order, and answers for each. One call for a hundred
    /// values is faster than a hundred calls, as memory is read for several keys at once; others may see some of the
    /// values before the call ends.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, Error};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// cache.insert_many(&[("a", "1"), ("b", "2")]).into_iter().collect::<Result<(), _>>()?;
    /// assert_eq!(cache.get("b").unwrap(), "2");
    /// let results = cache.insert_many(&[("", "no key"), ("c", "3")]);
    /// assert!(matches!(results[0], Err(Error::KeyLength { .. })) && results[1].is_ok());
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// Each as of [`Pool::insert`]; the other values are written.
    pub fn insert_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, entries: &[(K, V)]) -> Vec<Result<(), Error>> {
        self.insert_many_with(entries, InsertOptions::new())
    }

    /// Writes many values with options: see [`Pool::insert_many`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let a_minute = InsertOptions::new().ttl(std::time::Duration::from_secs(60));
    /// let results = cache.insert_many_with(&[("a", "1"), ("b", "2")], a_minute);
    /// assert!(results.iter().all(Result::is_ok));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `insert_many`.
    pub fn insert_many_with<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        entries: &[(K, V)],
        options: InsertOptions,
    ) -> Vec<Result<(), Error>> {
        let (life, mut results) = (self.life(options), Vec::with_capacity(entries.len()));
        for run in entries.chunks(memcached::Pool::WRITE_BATCH) {
            self.prefetch_writes(run);
            let write = |(key, value): &(K, V)| life.write(&self.commands, key.as_ref(), value.as_ref(), Mode::Set);
            results.extend(run.iter().map(|entry| write(entry).map(drop)));
        }
        results
    }

    /// Writes a value if the key is absent. False, with nothing changed, if it is present.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// assert!(cache.insert_if_absent("lock", "me", InsertOptions::new())?);
    /// assert!(!cache.insert_if_absent("lock", "you", InsertOptions::new())?);
    /// assert_eq!(cache.get("lock").unwrap(), "me");
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `insert`; nothing is changed.
    pub fn insert_if_absent(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: InsertOptions,
    ) -> Result<bool, Error> {
        let (key, value) = (key.as_ref(), value.as_ref());
        // Ends: each round follows a change by another thread.
        loop {
            if self.write(key, value, options, Mode::Add)? == Stored::Stored {
                return Ok(true);
            }
            let written = match self.occupant(key)? {
                Occupant::Value => return Ok(false),
                Occupant::Negative(_) => {
                    self.life(options).insert(&self.commands, key, value).replace_if(|item| !has_value(item))?
                }
                Occupant::Nothing => Stored::NotFound,
            };
            match written {
                Stored::Stored => return Ok(true),
                Stored::NotStored => return Ok(false),
                Stored::NotFound | Stored::Exists => {}
            }
        }
    }

    /// Writes `new` if the value of the key is `expected` at that moment. False, with nothing changed, if the key has
    /// another value or none.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// cache.insert("leader", "a")?;
    /// assert!(cache.compare_and_swap("leader", "a", "b", InsertOptions::new())?);
    /// assert!(!cache.compare_and_swap("leader", "a", "c", InsertOptions::new())?);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `insert`; nothing is changed.
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: impl AsRef<[u8]>,
        new: impl AsRef<[u8]>,
        options: InsertOptions,
    ) -> Result<bool, Error> {
        let (key, expected) = (key.as_ref(), expected.as_ref());
        let is_expected =
            |item: &Item<'_>| has_value(item) && item.len() == expected.len() && item.slices().flatten().eq(expected);
        Ok(self.life(options).insert(&self.commands, key, new.as_ref()).replace_if(is_expected)? == Stored::Stored)
    }

    /// Removes a key. False if it was absent, or the cache is closed. If only flash may have the key, the calling
    /// thread waits for the device.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// cache.insert("k", "v")?;
    /// assert!(cache.remove("k") && !cache.remove("k"));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn remove(&self, key: impl AsRef<[u8]>) -> bool {
        self.commands.delete(key.as_ref())
    }

    /// Removes a key and returns its value, as one operation: of several callers one gets the value. As with `remove`,
    /// a remembered negative result is forgotten.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// cache.insert("ticket", "7")?;
    /// assert_eq!(cache.take("ticket")?.unwrap(), "7");
    /// assert!(cache.take("ticket")?.is_none());
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `KeyLength`; `PoolRemoved`; `OutOfMemory` if flash has the value and memory has no place for it: nothing is
    /// changed.
    pub fn take(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>, Error> {
        let taken = self.commands.get_and_touch(key.as_ref(), Ttl::Expired)?;
        Ok(taken.item().filter(|item| has_value(item)).map(Value::of))
    }

    /// Removes all entries: they are absent when this returns. Their memory is freed in the background. A closed cache
    /// keeps them.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// cache.insert("k", "v")?;
    /// cache.invalidate_all();
    /// assert!(cache.get("k").is_none());
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn invalidate_all(&self) {
        self.commands.flush(Duration::ZERO);
    }

    /// The TTL of an entry that expires when the wall clock reaches `end`, rounded down to a whole second. The entry is
    /// never served after it and not lost before it, however long it lives, unless the wall clock is set meanwhile. For
    /// a manual clock 1970 is a second before the start.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// use std::time::{Duration, SystemTime};
    /// let closing = SystemTime::now() + Duration::from_secs(8 * 3600);
    /// cache.insert_with("menu", "soup", InsertOptions::new().ttl(cache.ttl_until(closing)))?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn ttl_until(&self, end: SystemTime) -> Ttl {
        let unix = end.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.commands.0.pool.clock.until(unix.as_secs())
    }

    /// Gives an entry a new TTL, from now on. False if the key is absent, also if a negative result is remembered. The
    /// cache's `time_to_idle` does not hold for the entry any more: it has a TTL of its own. An entry with a
    /// `stale_while_revalidate` then ends with this TTL, and is reloaded as if its TTL had not changed.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// use std::time::Duration;
    /// cache.insert("session", "42")?;
    /// assert!(cache.touch("session", Duration::from_secs(600))?);
    /// assert!(!cache.touch("absent", Duration::from_secs(600))?);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `OutOfMemory`: nothing is changed.
    pub fn touch(&self, key: impl AsRef<[u8]>, ttl: impl Into<Ttl>) -> Result<bool, Error> {
        self.commands.touch_if(key.as_ref(), ttl.into(), |flags| match EntryKind::of_flags(flags) {
            EntryKind::Idle => Some(EntryKind::without_kind(flags)),
            kind => kind.has_value().then_some(flags),
        })
    }

    /// Adds to the decimal number that is the value of a key, modulo 2^64, and returns the sum. `None` if the key is
    /// absent. The TTL stays.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// cache.insert("visits", "41")?;
    /// assert_eq!(cache.increment("visits", 1)?, Some(42));
    /// assert_eq!(cache.increment("absent", 1)?, None);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotNumeric` if the value is no decimal number; `OutOfMemory`.
    pub fn increment(&self, key: impl AsRef<[u8]>, delta: u64) -> Result<Option<u64>, Error> {
        let key = key.as_ref();
        self.change_number(key, || self.commands.increment(key, delta), |_| Ok(Some(None)))
    }

    /// Subtracts from the decimal number that is the value of a key, down to 0, and returns the difference. `None` if
    /// the key is absent. The TTL stays, and so does the length of the text: a shorter number is followed by blanks, as
    /// in memcached.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// cache.insert("left", "2")?;
    /// assert_eq!(cache.decrement("left", 1)?, Some(1));
    /// assert_eq!(cache.decrement("left", 5)?, Some(0));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `increment`.
    pub fn decrement(&self, key: impl AsRef<[u8]>, delta: u64) -> Result<Option<u64>, Error> {
        let key = key.as_ref();
        self.change_number(key, || self.commands.decrement(key, delta), |_| Ok(Some(None)))
    }

    /// Adds to a number, or writes `initial` if the key is absent. Of several threads that count an absent key, one
    /// creates it and the others add. The options are those of a created entry; a present one keeps its TTL.
    ///
    /// ```
    /// use std::time::Duration;
    /// # use ebbtide::{ByteSize, Cache, InsertOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let a_minute = InsertOptions::new().ttl(Duration::from_secs(60));
    /// assert_eq!(cache.increment_or_insert("calls", 1, 1, a_minute)?, 1);
    /// assert_eq!(cache.increment_or_insert("calls", 1, 1, a_minute)?, 2);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `increment`, and `KeyLength`.
    pub fn increment_or_insert(
        &self,
        key: impl AsRef<[u8]>,
        delta: u64,
        initial: u64,
        options: InsertOptions,
    ) -> Result<u64, Error> {
        let key = key.as_ref();
        let count = Count { initial: Some((initial, self.life(options).ttl)), ..Count::plain(Change::Add(delta)) };
        let change = || match self.commands.count(key, &count)? {
            Changed::Done(number) => Ok(number.value),
            _ => unreachable!("an absent number is created, and no token is compared"),
        };
        // Only another load of the key can store a new negative result.
        self.change_number(key, change, |token| self.commands.delete_if(key, token).map(|_| None))
    }

    /// Edits the value of a key: see `crate::edit`. The options are those of a new entry. A remembered negative result
    /// is an absent key: an edit that creates a value takes its place, another one leaves it. An edit of an entry past
    /// half of its time to idle begins that anew, as a lookup does.
    pub(crate) fn edit(&self, key: &[u8], options: InsertOptions, decide: &mut Decide<'_>) -> Result<(), Error> {
        let entry = self.life(options).new_entry();
        // Ends: each round follows a negative result, which it removes.
        loop {
            let (mut is_in_the_way, mut is_idle) = (false, false);
            self.commands.0.edit(key, entry, &mut |found| {
                is_idle = found.as_ref().is_some_and(|found| self.is_edit_of_half_idle(found));
                let is_value = |found: &Editable<'_>| EntryKind::of_flags(found.flags).has_value();
                let is_negative = found.as_ref().is_some_and(|found| !is_value(found));
                let decision = decide(found.filter(|_| !is_negative));
                is_in_the_way = is_negative && matches!(decision, Edit::Store { .. });
                if is_in_the_way { Edit::Keep } else { decision }
            })?;
            if !is_in_the_way {
                if is_idle {
                    self.touch_idle(&self.commands, key);
                }
                return Ok(());
            }
            if let Occupant::Negative(token) = self.occupant(key)? {
                self.commands.delete_if(key, token)?;
            }
        }
    }

    fn is_edit_of_half_idle(&self, found: &Editable<'_>) -> bool {
        let Some(idle) = self.settings.time_to_idle else { return false };
        let now = self.commands.0.pool.clock.now_ms() / 1000;
        let ends_within = |end: u64| Duration::from_secs(end.saturating_sub(now)) < idle / 2;
        EntryKind::of_flags(found.flags) == EntryKind::Idle && found.expiry_seconds.is_some_and(ends_within)
    }

    /// As [`memcached::Pool::prefetch_writes`], of a run of entries.
    pub(super) fn prefetch_writes<K: AsRef<[u8]>, V>(&self, entries: &[(K, V)]) {
        memcached::Pool::prefetch_writes(entries.iter().map(|(key, _)| (&self.commands, key.as_ref())));
    }

    fn write(&self, key: &[u8], value: &[u8], options: InsertOptions, mode: Mode) -> Result<Stored, Error> {
        self.life(options).write(&self.commands, key, value, mode)
    }

    /// Looks up why a change of an absent key was refused.
    fn occupant(&self, key: &[u8]) -> Result<Occupant, Error> {
        let of = |item: &Item<'_>| if has_value(item) { Occupant::Value } else { Occupant::Negative(item.cas()) };
        match self.commands.peek(key).hit() {
            Some(item) => Ok(of(&item)),
            // It may have been evicted to flash since.
            None => Ok(self.commands.0.find(key)?.hit().as_ref().map_or(Occupant::Nothing, of)),
        }
    }

    /// Changes a number. For a remembered negative result, which has no value, `on_negative` gets its token and gives
    /// the answer, or `None` to try again.
    fn change_number<T>(
        &self,
        key: &[u8],
        mut change: impl FnMut() -> Result<T, Error>,
        mut on_negative: impl FnMut(u64) -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        let mut refusals = 0;
        // Ends: a round follows a change by another thread, or is one of few in which a value was there.
        loop {
            match change() {
                Err(Error::NotNumeric) => match self.occupant(key)? {
                    // A number may have taken the place of a negative result since the refusal.
                    Occupant::Value if refusals < MAX_REFUSALS => refusals += 1,
                    Occupant::Value => return Err(Error::NotNumeric),
                    Occupant::Nothing => {}
                    Occupant::Negative(token) => {
                        if let Some(answer) = on_negative(token)? {
                            return Ok(answer);
                        }
                    }
                },
                changed => return changed,
            }
        }
    }
}

/// The present entry of a key.
enum Occupant {
    /// A remembered negative result with this token. Writes take it for an absent key.
    Negative(u64),
    Value,
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ByteSize, Cache};

    #[test]
    fn a_number_that_replaces_a_negative_result_counts() {
        let cache = Cache::builder().memory(ByteSize::mib(4)).build().unwrap();
        let pool = cache.pool("default").unwrap();
        let mut calls = 0;
        let change = || {
            calls += 1;
            // Another thread writes the number between the refusal and the look at the key.
            if calls == 1 {
                pool.insert("n", "41")?;
                return Err(Error::NotNumeric);
            }
            pool.commands.increment(b"n", 1)
        };
        assert_eq!(pool.change_number(b"n", change, |_| Ok(Some(None))), Ok(Some(42)));
        pool.insert("n", "text").unwrap();
        assert_eq!(pool.increment("n", 1), Err(Error::NotNumeric));
    }
}
