//! Writing values whose bytes do not matter.

use ebbtide::memcached::{Error, Mode, Pool, Stored, Ttl};

/// The TTL of a trace or a flag: 0 is no expiry.
pub(crate) fn ttl_of(seconds: u32) -> Ttl {
    match seconds {
        0 => Ttl::Never,
        _ => Ttl::Seconds(seconds),
    }
}

/// Writes values of any length up to the cache's limit out of one buffer, which never grows past the largest value that
/// the cache accepts in one piece.
#[derive(Default)]
pub(crate) struct ValueWriter {
    filler: Vec<u8>,
}

impl ValueWriter {
    /// Stores `length` bytes that begin with `head` (or with as much of it as there is space for).
    pub(crate) fn store(
        &mut self,
        cache: &Pool,
        key: &[u8],
        head: &[u8],
        length: usize,
        ttl: Ttl,
        mode: Mode,
    ) -> Result<Stored, Error> {
        let piece = length.min(cache.contiguous_limit());
        if self.filler.len() < piece {
            self.filler.resize(piece, b'.');
        }
        let head = &head[..head.len().min(piece)];
        self.filler[..head.len()].copy_from_slice(head);
        if length == piece {
            let value = &self.filler[..piece];
            return cache.insert(key, value).ttl(ttl).mode(mode).apply();
        }
        let mut upload = cache.upload(key, length as u64, 0, ttl, mode)?;
        let mut left = length;
        while left > 0 {
            let next = left.min(piece);
            upload.write(&self.filler[..next])?;
            left -= next;
        }
        upload.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide::memcached::{ByteSize, Cache, Lookup};

    #[test]
    fn values_longer_than_one_piece_are_uploaded() {
        let cache = Cache::builder().memory(ByteSize::mib(64)).max_value(ByteSize::mib(8)).build().unwrap();
        let mut writer = ValueWriter::default();
        let length = cache.contiguous_limit() + 4711;
        let stored = writer.store(&cache, b"k", b"head", length, Ttl::Never, Mode::Set);
        assert_eq!(stored, Ok(Stored::Stored));
        match cache.get(b"k") {
            Lookup::Hit(item) => {
                assert_eq!(item.len(), length);
                assert!(item.to_vec().starts_with(b"head...."));
            }
            Lookup::Miss => panic!("the value is gone"),
        }
        cache.verify();
    }
}
