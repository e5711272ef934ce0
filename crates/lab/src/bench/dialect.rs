use super::objects::Objects;
use super::resp;
use crate::keys::KeyBuffer;
use ebbtide_protocol::client;

/// What the server speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Dialect {
    /// The classic text protocol: get, set and delete.
    #[default]
    Memcached,
    /// RESP: GET, MGET, SET and DEL.
    Redis,
}

impl Dialect {
    /// The name as `--protocol` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Dialect::Memcached => "memcached",
            Dialect::Redis => "redis",
        }
    }

    pub(super) fn write_set(self, out: &mut Vec<u8>, objects: &Objects, number: u64, buffer: &mut KeyBuffer) {
        let set = match self {
            Dialect::Memcached => client::set,
            Dialect::Redis => resp::set,
        };
        let key = objects.write_key(number, buffer);
        set(out, key, objects.ttl_seconds(number), objects.value_size(number));
    }

    pub(super) fn write_delete(self, out: &mut Vec<u8>, key: &[u8]) {
        match self {
            Dialect::Memcached => client::delete(out, key),
            Dialect::Redis => resp::delete(out, key),
        }
    }

    /// Begins a get of so many keys; they follow, each with `add_key`, and then `end_get`.
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
