//! Values of hits: owned and shared, or borrowed.
//!
//! A value of less than 4 KiB is copied: a copy is cheaper than a pin. A longer one is pinned: its segment is not
//! reused while the value exists. When pins hold as much memory as they may, a longer value is copied, too. So a value
//! always exists, however long the caller keeps it.

use crate::lookup::{Handle, Item};
use std::cell::OnceCell;
use std::fmt::{Debug, Formatter};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// Shorter values are copied.
const MIN_PINNED_BYTES: usize = 4096;

/// An owned value: it may be kept, cloned and sent to other threads, and derefs to its bytes. Clones share the bytes.
///
/// A value is a snapshot: later writes of its key do not change it. It never stops another thread's write, but a long
/// value that is kept for long pins memory: at most a quarter of the cache, after which values are copies.
///
/// ```
/// # use ebbtide::{ByteSize, Cache};
/// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
/// cache.insert("k", "v")?;
/// let value = cache.get("k").expect("it was just written");
/// cache.remove("k");
/// let length = std::thread::spawn(move || value.len()).join().unwrap();
/// assert_eq!(length, 1);
/// # Ok::<(), ebbtide::Error>(())
/// ```
#[derive(Clone)]
pub struct Value(Bytes);

#[derive(Clone)]
enum Bytes {
    Copied(Arc<[u8]>),
    Pinned(Arc<Pinned>),
}

struct Pinned {
    handle: Handle,
    /// The pieces of a value that is longer than a segment, joined at the first look.
    joined: OnceLock<Box<[u8]>>,
}

impl Value {
    pub(super) fn of(item: &Item<'_>) -> Self {
        if item.len() >= MIN_PINNED_BYTES
            && let Ok(handle) = item.to_handle()
        {
            return Self(Bytes::Pinned(Arc::new(Pinned { handle, joined: OnceLock::new() })));
        }
        Self(Bytes::Copied(item.contiguous().map_or_else(|| item.to_vec().into(), Arc::from)))
    }
}

impl Value {
    /// The bytes, not pinned: a pinned value is copied.
    pub(super) fn to_shared(&self) -> Arc<[u8]> {
        match &self.0 {
            Bytes::Copied(bytes) => Arc::clone(bytes),
            Bytes::Pinned(pinned) => pinned.bytes().into(),
        }
    }
}

impl Pinned {
    fn bytes(&self) -> &[u8] {
        let first = self.handle.slice_at(0);
        if first.len() == self.handle.len() {
            return first;
        }
        self.joined.get_or_init(|| {
            let mut joined = Vec::with_capacity(self.handle.len());
            while joined.len() < self.handle.len() {
                joined.extend_from_slice(self.handle.slice_at(joined.len()));
            }
            joined.into()
        })
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Copied(bytes) => bytes,
            Bytes::Pinned(pinned) => pinned.bytes(),
        }
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Arc<[u8]>> for Value {
    fn from(bytes: Arc<[u8]>) -> Self {
        Self(Bytes::Copied(bytes))
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self(Bytes::Copied(bytes.into()))
    }
}

impl<const N: usize> From<[u8; N]> for Value {
    fn from(bytes: [u8; N]) -> Self {
        Self(Bytes::Copied(bytes.as_slice().into()))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        text.as_bytes().into()
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        text.into_bytes().into()
    }
}

impl From<Box<[u8]>> for Value {
    fn from(bytes: Box<[u8]>) -> Self {
        Self(Bytes::Copied(bytes.into()))
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Bytes::Copied(bytes.into()))
    }
}

impl From<Value> for Vec<u8> {
    fn from(value: Value) -> Self {
        value.to_vec()
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Value {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl Eq for Value {}

impl Debug for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Value").field("bytes", &self.len()).finish_non_exhaustive()
    }
}

/// A value that is borrowed from the cache, without a copy; derefs to its bytes.
///
/// **A thread that holds one cannot evict, and holds up all others.** When the cache is full its own writes fail with
/// [`crate::Error::OutOfMemory`]. What other threads evict is not used again before it is dropped, however small the
/// value is: their writes wait for two seconds then, and fail with the same error. So hold one for microseconds, and
/// take a [`Value`] ([`ValueRef::to_value`], [`crate::Pool::get`]) for anything longer: it holds up nobody.
pub struct ValueRef<'a> {
    item: Item<'a>,
    joined: OnceCell<Vec<u8>>,
}

impl<'a> ValueRef<'a> {
    pub(super) fn new(item: Item<'a>) -> Self {
        Self { item, joined: OnceCell::new() }
    }

    /// An owned value with the same bytes.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// cache.insert("k", "v")?;
    /// let value = cache.get_ref("k").expect("it was just written").to_value();
    /// cache.insert("k", "new")?;
    /// assert_eq!(value, "v");
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn to_value(&self) -> Value {
        Value::of(&self.item)
    }

    /// Remaining life; `None` if it never expires.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # use std::time::Duration;
    /// cache.insert_with("k", "v", InsertOptions::new().ttl(Duration::from_secs(60)))?;
    /// let left = cache.get_ref("k").expect("it was just written").ttl();
    /// assert!(left <= Some(Duration::from_secs(60)));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn ttl(&self) -> Option<std::time::Duration> {
        self.item.ttl()
    }
}

impl Deref for ValueRef<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.item.contiguous().unwrap_or_else(|| self.joined.get_or_init(|| self.item.to_vec()))
    }
}

impl AsRef<[u8]> for ValueRef<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Debug for ValueRef<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ValueRef").field("bytes", &self.item.len()).finish_non_exhaustive()
    }
}
