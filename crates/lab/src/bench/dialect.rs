use super::args::Dialect;
use super::load_kind::LoadKind;
use super::objects::Objects;
use super::resp;
use crate::keys::KeyBuffer;
use ebbtide_protocol::client;

impl Dialect {
    /// Writes a request of any kind but a get.
    pub(super) fn write(
        self,
        kind: LoadKind,
        out: &mut Vec<u8>,
        objects: &Objects,
        number: u64,
        buffer: &mut KeyBuffer,
    ) {
        let key = objects.write_key(number, buffer);
        let (ttl_seconds, value) = (objects.ttl_seconds(number), objects.value(number, kind));
        match (self, kind) {
            (Dialect::Memcached, LoadKind::Delete) => client::delete(out, key),
            (Dialect::Memcached, _) if kind.counts() => client::count(out, kind.name(), key),
            (Dialect::Memcached, _) => client::store(out, kind.name(), key, ttl_seconds, value),
            (Dialect::Redis, LoadKind::Delete) => resp::of_key(out, "DEL", key),
            (Dialect::Redis, LoadKind::Incr) => resp::of_key(out, "INCR", key),
            (Dialect::Redis, LoadKind::Decr) => resp::of_key(out, "DECR", key),
            (Dialect::Redis, _) if kind.extends() => resp::append(out, key, value),
            (Dialect::Redis, LoadKind::Add) => resp::set(out, key, Some("NX"), ttl_seconds, value),
            (Dialect::Redis, LoadKind::Replace) => resp::set(out, key, Some("XX"), ttl_seconds, value),
            (Dialect::Redis, _) => resp::set(out, key, None, ttl_seconds, value),
        }
    }

    /// Starts a get of `keys` keys; they follow, each with `add_key`, and then `end_get`.
    pub(super) fn begin_get(self, out: &mut Vec<u8>, keys: u16) {
        match self {
            Dialect::Memcached => client::begin_get(out),
            Dialect::Redis => resp::begin_get(out, keys),
        }
    }

    pub(super) fn add_key(self, out: &mut Vec<u8>, key: &[u8]) {
        match self {
            Dialect::Memcached => client::add_key(out, key),
            Dialect::Redis => resp::add_key(out, key),
        }
    }

    pub(super) fn end_get(self, out: &mut Vec<u8>) {
        match self {
            Dialect::Memcached => client::end_line(out),
            Dialect::Redis => {}
        }
    }
}
