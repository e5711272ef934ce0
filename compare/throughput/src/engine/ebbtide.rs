//! Ebbtide with its defaults: everything is in its one memory number.

use std::time::Duration;

use ebbtide::memcached::{ByteSize, Cache, Lookup, Ttl};

use super::{BATCH, Engine, Size};
use crate::workload::Key;

pub struct Ebbtide(Cache);

impl Engine for Ebbtide {
    fn build(size: &Size) -> Result<Self, String> {
        let memory = ByteSize::bytes(size.capacity_bytes);
        Cache::builder().memory(memory).build().map(Self).map_err(|error| error.to_string())
    }

    #[inline(always)]
    fn look<R>(&self, key: &Key, look: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let item = self.0.get(key).hit()?;
        item.slices().next().map(look)
    }

    #[inline(always)]
    fn set(&self, key: &Key, value: &[u8]) -> bool {
        self.0.insert(key, value).apply().is_ok()
    }

    #[inline(always)]
    fn set_with_ttl(&self, key: &Key, value: &[u8], ttl: Duration) -> bool {
        self.0.insert(key, value).ttl(Ttl::Seconds(ttl.as_secs() as u32)).apply().is_ok()
    }

    #[inline(always)]
    fn get(&self, key: &Key, out: &mut Vec<u8>) -> bool {
        match self.0.get(key) {
            Lookup::Hit(item) => {
                out.clear();
                item.copy_to(out);
                true
            }
            Lookup::Miss => false,
        }
    }

    #[inline(always)]
    fn get_batch(&self, keys: &[Key], out: &mut Vec<u8>, mut answer: impl FnMut(usize, Option<&[u8]>)) {
        let mut slices: [&[u8]; BATCH] = [&[]; BATCH];
        for (slice, key) in slices.iter_mut().zip(keys) {
            *slice = key;
        }
        self.0.get_batch(&slices[..keys.len()], |i, lookup| match lookup {
            Lookup::Hit(item) => {
                out.clear();
                item.copy_to(out);
                answer(i, Some(out));
            }
            Lookup::Miss => answer(i, None),
        });
    }
}
