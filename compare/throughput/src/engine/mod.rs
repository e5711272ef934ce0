//! The engines behind one trait. Each is set up as its own documentation advises for speed; the file says how.

mod ebbtide;
mod foyer;
mod map;
mod moka;
mod quick_cache;
mod segcache;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

pub use self::ebbtide::Ebbtide;
pub use self::foyer::Foyer;
pub use self::map::Map;
pub use self::moka::Moka;
pub use self::quick_cache::QuickCache;
pub use self::segcache::Segcache;
use crate::workload::Key;

/// Keys of a batch.
pub const BATCH: usize = 16;

/// Size of a cache and of its load.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// In the engine's own count.
    pub capacity_bytes: u64,
    pub value_bytes: u32,
    /// Number of objects that fit without overhead, for engines that need an estimate.
    pub objects: u64,
    pub threads: u32,
}

/// A cache as the measurement sees it. Values are at least 8 bytes long.
pub trait Engine: Send + Sync + Sized {
    /// # Errors
    /// Why it does not start.
    fn build(size: &Size) -> Result<Self, String>;

    /// Calls `look` with the value where it lies, or with a reference to it.
    fn look<R>(&self, key: &Key, look: impl FnOnce(&[u8]) -> R) -> Option<R>;

    /// False if the engine could not store it.
    fn set(&self, key: &Key, value: &[u8]) -> bool;

    /// A set of an object that expires. Asked for only where `EngineName::expires`.
    #[inline(always)]
    fn set_with_ttl(&self, key: &Key, value: &[u8], _ttl: Duration) -> bool {
        self.set(key, value)
    }

    /// Copies the value to `out`, which is reused. False on a miss.
    #[inline(always)]
    fn get(&self, key: &Key, out: &mut Vec<u8>) -> bool {
        self.look(key, |value| copy(value, out)).is_some()
    }

    /// Copies one value after the other to `out`, and calls `answer` for each.
    #[inline(always)]
    fn get_batch(&self, keys: &[Key], out: &mut Vec<u8>, mut answer: impl FnMut(usize, Option<&[u8]>)) {
        for (i, key) in keys.iter().enumerate() {
            let hit = self.get(key, out);
            answer(i, hit.then_some(out));
        }
    }
}

#[inline(always)]
fn copy(value: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(value);
}

/// How gets are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Get,
    Batch,
    ZeroCopy,
}

impl Mode {
    pub const ALL: [Self; 3] = [Self::Get, Self::Batch, Self::ZeroCopy];
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Get => "get",
            Self::Batch => "batch",
            Self::ZeroCopy => "zero-copy",
        })
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|mode| mode.to_string() == text);
        found.ok_or_else(|| format!("`{text}` is none of get, batch, zero-copy"))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineName {
    Ebbtide,
    Segcache,
    QuickCache,
    Moka,
    Foyer,
    Map,
}

impl EngineName {
    pub const ALL: [Self; 6] = [Self::Ebbtide, Self::Segcache, Self::QuickCache, Self::Moka, Self::Foyer, Self::Map];

    /// Whether it keeps to a capacity.
    pub fn evicts(self) -> bool {
        self != Self::Map
    }

    /// Whether its objects are set with a TTL each.
    pub fn expires(self) -> bool {
        matches!(self, Self::Ebbtide | Self::Segcache)
    }
}

impl fmt::Display for EngineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ebbtide => "ebbtide",
            Self::Segcache => "segcache",
            Self::QuickCache => "quick_cache",
            Self::Moka => "moka",
            Self::Foyer => "foyer",
            Self::Map => "map",
        })
    }
}

impl FromStr for EngineName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|engine| engine.to_string() == text);
        found.ok_or_else(|| format!("`{text}` is none of {}", Self::ALL.map(|engine| engine.to_string()).join(", ")))
    }
}
