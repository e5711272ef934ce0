//! The lines of the log, as memcached writes them: `ts=seconds.microseconds gid=number type=...`, the microseconds
//! without leading zeros, and no line end of their own.

use std::io::Write;

use ebbtide::memcached::Removal;
use ebbtide_protocol::encoding::uri_encode;

use crate::unix_time::unix_now;

/// Result of the lookup of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchResult {
    /// With the bytes of the value, where they are known.
    Hit(usize),
    Miss,
}

/// The kind of command that looked a key up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchVerb {
    Get,
    Touch,
    Arithmetic,
    Delete,
}

/// Details of a lookup, only for watchers with `sample=N`.
#[derive(Clone, Copy, Debug)]
pub struct FetchDetail {
    pub verb: FetchVerb,
    /// Zero for never, and for a miss.
    pub ttl_seconds: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreVerb {
    Add,
    Set,
    Replace,
    Append,
    Prepend,
    Cas,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreStatus {
    NotStored,
    Stored,
    Exists,
    NotFound,
    TooLarge,
    NoMemory,
}

/// A storage command and its result.
pub struct StoreEvent {
    pub command: StoreVerb,
    pub status: StoreStatus,
    /// Zero for never.
    pub ttl_seconds: u32,
    pub length: usize,
}

/// Command by which a client removed an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteCommand {
    Delete,
    MetaDelete,
}

/// Why a connection was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    Error,
    Normal,
    IdleTimeout,
    Shutdown,
}

macro_rules! write_to {
    ($line:expr, $($format:tt)*) => {
        write!($line, $($format)*).expect("a Vec takes all that is written to it")
    };
}

pub fn begin(line: &mut Vec<u8>, number: u64) {
    let now = unix_now();
    write_to!(line, "ts={}.{} gid={number} ", now.as_secs(), now.subsec_micros());
}

fn modify(line: &mut Vec<u8>, what: &str, key: &[u8]) {
    write_to!(line, "type={what} key=");
    uri_encode(line, key);
}

pub fn item_get(line: &mut Vec<u8>, key: &[u8], connection: usize, fetched: FetchResult) {
    modify(line, "item_get", key);
    let (status, class, length) = match fetched {
        FetchResult::Hit(length) => ("found", 1, length),
        FetchResult::Miss => ("not_found", 0, 0),
    };
    write_to!(line, " status={status} clsid={class} cfd={connection} size={length}");
}

/// Ends a line of `item_get` for a watcher with `sample=N`.
pub fn fetch_detail(line: &mut Vec<u8>, detail: &FetchDetail) {
    let command = match detail.verb {
        FetchVerb::Get => "get",
        FetchVerb::Touch => "touch",
        FetchVerb::Arithmetic => "incr",
        FetchVerb::Delete => "delete",
    };
    write_to!(line, " ttl={} cmd={command}", detail.ttl_seconds);
}

pub fn item_store(line: &mut Vec<u8>, key: &[u8], connection: usize, store: &StoreEvent) {
    modify(line, "item_store", key);
    let status = match store.status {
        StoreStatus::NotStored => "not_stored",
        StoreStatus::Stored => "stored",
        StoreStatus::Exists => "exists",
        StoreStatus::NotFound => "not_found",
        StoreStatus::TooLarge => "too_large",
        StoreStatus::NoMemory => "no_memory",
    };
    let command = match store.command {
        StoreVerb::Add => "add",
        StoreVerb::Set => "set",
        StoreVerb::Replace => "replace",
        StoreVerb::Append => "append",
        StoreVerb::Prepend => "prepend",
        StoreVerb::Cas => "cas",
    };
    let (ttl, length) = (store.ttl_seconds, store.length);
    write_to!(line, " status={status} cmd={command} ttl={ttl} clsid=1 cfd={connection} size={length}");
}

pub fn deleted(line: &mut Vec<u8>, key: &[u8], command: DeleteCommand, length: usize) {
    modify(line, "deleted", key);
    let command = match command {
        DeleteCommand::Delete => "delete",
        DeleteCommand::MetaDelete => "md",
    };
    write_to!(line, " cmd={command} clsid=1 size={length}");
}

/// `type=extwrite` is memcached's word for an object that went to flash. There it tells the bucket, and not the size.
pub fn eviction(line: &mut Vec<u8>, removal: &Removal<'_>) {
    modify(line, if removal.is_demoted() { "extwrite" } else { "eviction" }, removal.key());
    let fetched = if removal.is_unread() { "no" } else { "yes" };
    let ttl = removal.ttl().map_or(-1, |ttl| ttl.as_secs() as i64);
    let (idle, length) = (removal.idle().as_secs(), removal.len());
    write_to!(line, " fetch={fetched} ttl={ttl} la={idle} clsid=1");
    match removal.is_demoted() {
        true => write_to!(line, " bucket=0"),
        false => write_to!(line, " size={length}"),
    }
}

/// `reason` for a connection that is closed, none for a new one. `peer` is the name that `stats conns` shows.
pub fn connection(line: &mut Vec<u8>, peer: &str, connection: usize, reason: Option<CloseReason>) {
    let what = if reason.is_some() { "conn_close" } else { "conn_new" };
    let (address, port, transport) = match peer.split_once(':') {
        Some(("tcp" | "tcp6", address)) => {
            let (address, port) = address.rsplit_once(':').unwrap_or((address, "0"));
            (address.trim_matches(['[', ']']), port, "tcp")
        }
        _ => ("unix", "0", "local"),
    };
    write_to!(line, "type={what} rip={address} rport={port} transport={transport}");
    if let Some(reason) = reason {
        let reason = match reason {
            CloseReason::Error => "error",
            CloseReason::Normal => "normal",
            CloseReason::IdleTimeout => "idle_timeout",
            CloseReason::Shutdown => "shutdown",
        };
        write_to!(line, " reason={reason}");
    }
    write_to!(line, " cfd={connection}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut line = Vec::new();
        write(&mut line);
        String::from_utf8(line).expect("text")
    }

    #[test]
    fn connections_are_named_by_address_and_port() {
        for (peer, expected) in [
            ("tcp:10.0.0.1:7", "rip=10.0.0.1 rport=7 transport=tcp"),
            ("tcp6:[::1]:7", "rip=::1 rport=7 transport=tcp"),
            ("unix:/run/x", "rip=unix rport=0 transport=local"),
        ] {
            assert_eq!(text(|line| connection(line, peer, 3, None)), format!("type=conn_new {expected} cfd=3"));
        }
        let closed = text(|line| connection(line, "unix:x", 3, Some(CloseReason::IdleTimeout)));
        assert_eq!(closed, "type=conn_close rip=unix rport=0 transport=local reason=idle_timeout cfd=3");
    }

    #[test]
    fn stores_tell_their_command_and_its_outcome() {
        let store = StoreEvent { command: StoreVerb::Cas, status: StoreStatus::Exists, ttl_seconds: 9, length: 4 };
        let line = text(|line| item_store(line, b"a b", 5, &store));
        assert_eq!(line, "type=item_store key=a%20b status=exists cmd=cas ttl=9 clsid=1 cfd=5 size=4");
    }
}
