//! Ebbtide with its defaults and a manual clock: all of its work is done by the caller's thread.

use std::time::Duration;

use ebbtide::Policy;
use ebbtide::memcached::{ByteSize, Cache, Clock, Error, Lookup, Mode, Ttl};

use super::Engine;

pub struct Ebbtide(Cache);

impl Ebbtide {
    pub fn new(memory: u64, policy: Policy) -> Result<Self, String> {
        let builder = Cache::builder().memory(ByteSize::bytes(memory)).policy(policy).clock(Clock::Manual);
        builder.build().map(Self).map_err(|error| error.to_string())
    }

    /// A value of several segments.
    fn upload(&self, key: &[u8], value: &[u8], ttl: Ttl) -> Result<(), Error> {
        let mut upload = self.0.upload(key, value.len() as u64, 0, ttl, Mode::Set)?;
        value.chunks(self.0.contiguous_limit()).try_for_each(|piece| upload.write(piece))?;
        upload.finish().map(drop)
    }
}

impl Engine for Ebbtide {
    fn advance(&mut self, now: u32) {
        self.0.maintain(Duration::from_secs(now.into()));
    }

    #[inline(always)]
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> bool {
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
    fn set(&mut self, key: &[u8], value: &[u8], ttl: u32) {
        let ttl = if ttl == 0 { Ttl::Never } else { Ttl::Seconds(ttl) };
        let _ = if value.len() <= self.0.contiguous_limit() {
            self.0.insert(key, value).ttl(ttl).apply().map(drop)
        } else {
            self.upload(key, value, ttl)
        };
    }

    fn delete(&mut self, key: &[u8]) {
        self.0.delete(key);
    }
}
