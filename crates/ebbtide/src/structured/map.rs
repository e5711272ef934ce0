//! Map: unordered keys and values, found and changed without decoding the whole. The format is that of `sorted_log`.

use super::editor::Editor;
use super::flat::{Flat, bytes_of};
use super::head::Structure;
use super::sorted_log::{Change, MAP_KEY_MAX, SortedLog, encode, records, spare_of};
use crate::error::Error;
use crate::library::{InsertOptions, Pool, Value};
use ebbtide_store::{Edit, Editable};
use std::fmt::Debug;
use std::marker::PhantomData;

/// A map in one value of the cache, at most a segment long; made by [`Pool::map`]. A clone is of the same key.
///
/// ```
/// # use ebbtide::{ByteSize, Cache};
/// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
/// let features = cache.map::<String, [f32; 2]>("user:42");
/// features.insert(&"age".to_owned(), &[0.3, 0.1])?;
/// assert_eq!(features.get(&"age".to_owned())?, Some([0.3, 0.1]));
/// # Ok::<(), ebbtide::Error>(())
/// ```
///
/// The third type says whether the keys have an order: see [`RangeMap`](super::RangeMap).
pub struct Map<K, V, O = WithoutOrder> {
    pub(super) table: Table,
    types: PhantomData<fn(K) -> (V, O)>,
}

/// The keys of a [`Map`] have no order.
#[derive(Debug)]
pub enum WithoutOrder {}

/// A map at one moment.
pub struct MapSnapshot<K, V> {
    table: Table,
    content: Value,
    types: PhantomData<fn(K) -> V>,
}

/// The map of bytes to bytes of one key.
#[derive(Clone, Debug)]
pub(super) struct Table {
    editor: Editor,
    structure: Structure,
    types: [u32; 2],
}

impl Pool {
    /// The map of a key. Nothing is created by this call.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let map = cache.map::<u32, u64>("user");
    /// assert_eq!(map.get(&1)?, None);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn map<K: Flat, V: Flat>(&self, key: impl AsRef<[u8]>) -> Map<K, V> {
        Map::new(self, key.as_ref(), Structure::Map)
    }
}

impl Table {
    pub fn new<K: Flat, V: Flat>(pool: &Pool, key: &[u8], structure: Structure) -> Self {
        Self { editor: Editor::new(pool, key), structure, types: [K::TYPE, V::TYPE] }
    }

    pub fn open<'a>(&self, content: &'a [u8]) -> Result<SortedLog<'a>, Error> {
        SortedLog::open(self.structure, content, self.types)
    }

    pub fn create(&self, options: InsertOptions) -> Result<bool, Error> {
        let content = encode(self.structure, self.types, &[]);
        self.editor.create(options, &content, spare_of(&content))
    }

    pub fn read<R>(&self, read: impl FnOnce(SortedLog<'_>) -> Result<R, Error>) -> Result<Option<R>, Error> {
        self.editor.read(|content| read(self.open(content)?))
    }

    pub fn get<V: Flat>(&self, key: &impl Flat) -> Result<Option<V>, Error> {
        let found = self.read(|map| map.find(&bytes_of(key))?.map(|value| self.value(value)).transpose());
        Ok(found?.flatten())
    }

    /// A key or value of a type.
    pub fn value<T: Flat>(&self, bytes: &[u8]) -> Result<T, Error> {
        T::read(bytes).ok_or_else(|| self.structure.damaged())
    }

    pub fn pair<K: Flat, V: Flat>(&self, (key, value): (&[u8], &[u8])) -> Result<(K, V), Error> {
        Ok((self.value(key)?, self.value(value)?))
    }

    /// Makes changes as one edit, which creates an absent map.
    pub fn change(&self, changes: &[Change<'_>], options: InsertOptions) -> Result<(), Error> {
        check_keys(changes)?;
        self.editor.edit(options, |found| Ok((self.changed(found, changes)?, ())))
    }

    /// Changes one entry by what it is. `None` if the map is absent.
    pub fn update<V: Flat, R>(
        &self,
        key: &impl Flat,
        mut update: impl FnMut(Option<V>) -> (Option<V>, R),
    ) -> Result<Option<R>, Error> {
        let key = bytes_of(key);
        check_keys(&[(&key, None)])?;
        self.editor.edit(InsertOptions::new(), |found| {
            let Some(present) = found else { return Ok((Edit::Keep, None)) };
            let old = self.open(present.content)?.find(&key)?;
            let (new, answer) = update(old.map(|value| self.value(value)).transpose()?);
            let new = new.map(|value| bytes_of(&value));
            let edit = match old == new.as_deref() {
                true => Edit::Keep,
                false => self.changed(found, &[(&key, new.as_deref())])?,
            };
            Ok((edit, Some(answer)))
        })
    }

    pub fn remove(&self, key: &impl Flat) -> Result<bool, Error> {
        let removed = self.update(key, |old: Option<Vec<u8>>| (None, old.is_some()))?;
        Ok(removed.unwrap_or(false))
    }

    pub fn snapshot(&self) -> Result<Option<Value>, Error> {
        let Some(content) = self.editor.snapshot() else { return Ok(None) };
        self.open(&content)?;
        Ok(Some(content))
    }

    fn changed(&self, found: Option<Editable<'_>>, changes: &[Change<'_>]) -> Result<Edit, Error> {
        let Some(found) = found else {
            let content = encode(self.structure, self.types, &[]);
            return self.rewritten(&content, changes);
        };
        self.open(found.content)?;
        let records = records(changes);
        match records.len() <= found.spare {
            true => Ok(Edit::Append(records)),
            false => self.rewritten(found.content, changes),
        }
    }

    fn rewritten(&self, content: &[u8], changes: &[Change<'_>]) -> Result<Edit, Error> {
        let content = self.open(content)?.rewritten(self.types, changes)?;
        let spare = spare_of(&content);
        Ok(Edit::Store { content, spare })
    }
}

fn check_keys(changes: &[Change<'_>]) -> Result<(), Error> {
    match changes.iter().find(|(key, _)| key.is_empty() || key.len() > MAP_KEY_MAX) {
        Some((key, _)) => Err(Error::KeyLength { length: key.len(), limit: MAP_KEY_MAX }),
        None => Ok(()),
    }
}

/// The bytes of entries, for one edit.
fn entry_bytes<'a, K: Flat + 'a, V: Flat + 'a>(
    entries: impl IntoIterator<Item = (&'a K, &'a V)>,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    entries.into_iter().map(|(key, value)| (bytes_of(key), bytes_of(value))).collect()
}

impl<K: Flat, V: Flat, O> Map<K, V, O> {
    pub(super) fn new(pool: &Pool, key: &[u8], structure: Structure) -> Self {
        Self { table: Table::new::<K, V>(pool, key, structure), types: PhantomData }
    }

    /// Stores an empty map if the key is absent. False, with nothing changed, if it is present.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let map = cache.map::<u32, u64>("user");
    /// assert!(map.create(InsertOptions::new())?);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `KeyLength`, `OutOfMemory`.
    pub fn create(&self, options: InsertOptions) -> Result<bool, Error> {
        self.table.create(options)
    }

    /// The value of an entry. `None` if the entry or the map is absent.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let map = cache.map::<u32, u64>("user");
    /// map.insert(&1, &10)?;
    /// assert_eq!((map.get(&1)?, map.get(&2)?), (Some(10), None));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `WrongStructure`.
    pub fn get(&self, key: &K) -> Result<Option<V>, Error> {
        self.table.get(key)
    }

    /// Writes an entry. An absent map is created, with the cache's default TTL.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let map = cache.map::<u32, u64>("user");
    /// map.insert(&1, &10)?;
    /// assert_eq!(map.get(&1)?, Some(10));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `WrongStructure`; `StructureTooLarge`; `KeyLength` if the key has no byte or more than 255; `OutOfMemory`.
    pub fn insert(&self, key: &K, value: &V) -> Result<(), Error> {
        self.insert_many([(key, value)], InsertOptions::new())
    }

    /// Writes entries as one operation: a reader sees none or all. An absent map is created with these options; a
    /// present one keeps its TTL.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let map = cache.map::<u32, u64>("user");
    /// map.insert_many([(&1, &10), (&2, &20)], InsertOptions::new())?;
    /// assert_eq!(map.get(&2)?, Some(20));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `insert`.
    pub fn insert_many<'a>(
        &self,
        entries: impl IntoIterator<Item = (&'a K, &'a V)>,
        options: InsertOptions,
    ) -> Result<(), Error>
    where
        K: 'a,
        V: 'a,
    {
        let entries = entry_bytes(entries);
        let changes: Vec<Change<'_>> = entries.iter().map(|(key, value)| (&key[..], Some(&value[..]))).collect();
        self.table.change(&changes, options)
    }

    /// Replaces an entry by what `update` makes of it, as one operation: `None` is an absent entry. Returns the second
    /// part; `None` if the map is absent. `update` runs again if another edit comes first, and should be brief: see
    /// [`Words::edit`](super::Words::edit).
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let map = cache.map::<u32, u64>("user");
    /// map.insert(&1, &10)?;
    /// let old = map.update(&1, |old| (old.map(|old| old + 1), old))?;
    /// assert_eq!((old, map.get(&1)?), (Some(Some(10)), Some(11)));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `insert`.
    pub fn update<R>(&self, key: &K, update: impl FnMut(Option<V>) -> (Option<V>, R)) -> Result<Option<R>, Error> {
        self.table.update(key, update)
    }

    /// Removes an entry. False if it was absent.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let map = cache.map::<u32, u64>("user");
    /// map.insert(&1, &10)?;
    /// assert!(map.remove(&1)? && !map.remove(&1)?);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `insert`.
    pub fn remove(&self, key: &K) -> Result<bool, Error> {
        self.table.remove(key)
    }

    /// The map at this moment: later edits do not change it. `None` if the map is absent.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let map = cache.map::<u32, u64>("user");
    /// map.insert(&1, &10)?;
    /// let snapshot = map.snapshot()?.expect("it was just written");
    /// map.insert(&1, &11)?;
    /// assert_eq!(snapshot.get(&1)?, Some(10));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `WrongStructure`.
    pub fn snapshot(&self) -> Result<Option<MapSnapshot<K, V>>, Error> {
        let content = self.table.snapshot()?;
        Ok(content.map(|content| MapSnapshot { table: self.table.clone(), content, types: PhantomData }))
    }
}

impl<K: Flat, V: Flat> MapSnapshot<K, V> {
    /// The value of an entry.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let map = cache.map::<u32, u64>("user");
    /// map.insert(&1, &10)?;
    /// let snapshot = map.snapshot()?.expect("it was just written");
    /// assert_eq!(snapshot.get(&2)?, None);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `WrongStructure` if the value is damaged.
    pub fn get(&self, key: &K) -> Result<Option<V>, Error> {
        let found = self.table.open(&self.content)?.find(&bytes_of(key))?;
        found.map(|value| self.table.value(value)).transpose()
    }

    /// All entries, in the order of their keys' bytes.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let map = cache.map::<u32, u64>("user");
    /// map.insert(&1, &10)?;
    /// let snapshot = map.snapshot()?.expect("it was just written");
    /// assert_eq!(snapshot.entries()?, [(1, 10)]);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `get`.
    pub fn entries(&self) -> Result<Vec<(K, V)>, Error> {
        self.table.open(&self.content)?.entries()?.into_iter().map(|entry| self.table.pair(entry)).collect()
    }

    /// How many entries there are.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let map = cache.map::<u32, u64>("user");
    /// map.insert(&1, &10)?;
    /// let snapshot = map.snapshot()?.expect("it was just written");
    /// assert_eq!(snapshot.len()?, 1);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `get`.
    pub fn len(&self) -> Result<usize, Error> {
        Ok(self.table.open(&self.content)?.entries()?.len())
    }

    /// Whether there are none.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let map = cache.map::<u32, u64>("user");
    /// map.insert(&1, &10)?;
    /// let snapshot = map.snapshot()?.expect("it was just written");
    /// assert!(!snapshot.is_empty()?);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `get`.
    pub fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.len()? == 0)
    }
}

impl<K, V, O> Clone for Map<K, V, O> {
    fn clone(&self) -> Self {
        Self { table: self.table.clone(), types: PhantomData }
    }
}

impl<K, V, O> Debug for Map<K, V, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Map").field("table", &self.table).finish_non_exhaustive()
    }
}

impl<K, V> Debug for MapSnapshot<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MapSnapshot").field("bytes", &self.content.len()).finish_non_exhaustive()
    }
}
