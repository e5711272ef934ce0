//! One line of a watched server: `ts=1795713526.950019 gid=3 type=item_get key=a status=found ... size=3`.

/// Events that a server writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventStream {
    /// Ebbtide: the server samples, and writes the command and the TTL of each lookup.
    Detailed,
    /// memcached with `watch deletions`, as 1.6.45 has and 1.6.18 has not: also successful deletes.
    WithDeletions,
    /// memcached: `fetchers` and `mutations`.
    Plain,
}

/// Fields of a line, borrowed from it. The key is still encoded.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Event<'a> {
    pub(super) kind: EventKind,
    /// Unix time in seconds.
    pub(super) seconds: u64,
    pub(super) key: &'a [u8],
    pub(super) status: &'a [u8],
    pub(super) command: &'a [u8],
    pub(super) connection: u64,
    pub(super) ttl_seconds: Option<u32>,
    pub(super) size: u32,
    /// Number of lines that the server dropped, for a line that reports it.
    pub(super) skipped: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum EventKind {
    Fetch,
    Store,
    Delete,
    Skipped,
    /// An event of no interest, or no event.
    #[default]
    Other,
}

pub(super) fn parse(line: &[u8]) -> Event<'_> {
    let mut event = Event::default();
    for word in line.trim_ascii().split(|&byte| byte == b' ') {
        let Some(at) = word.iter().position(|&byte| byte == b'=') else { continue };
        let (name, value) = (&word[..at], &word[at + 1..]);
        match name {
            b"ts" => event.seconds = number(value.split(|&byte| byte == b'.').next().unwrap_or_default()).unwrap_or(0),
            b"type" => {
                event.kind = match value {
                    b"item_get" => EventKind::Fetch,
                    b"item_store" => EventKind::Store,
                    b"deleted" => EventKind::Delete,
                    _ => EventKind::Other,
                }
            }
            b"key" => event.key = value,
            b"status" => event.status = value,
            b"cmd" => event.command = value,
            b"cfd" => event.connection = number(value).unwrap_or(0),
            // A TTL that is over already is negative.
            b"ttl" => event.ttl_seconds = Some(number(value).unwrap_or(1)),
            b"size" => event.size = number(value).unwrap_or(0),
            b"skipped" => (event.kind, event.skipped) = (EventKind::Skipped, number(value).unwrap_or(0)),
            _ => {}
        }
    }
    event
}

fn number<N: std::str::FromStr>(text: &[u8]) -> Option<N> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The bytes of a key that is URI-encoded.
pub(super) fn decoded(key: &[u8], into: &mut Vec<u8>) {
    into.clear();
    let digit = |byte: Option<&u8>| byte.and_then(|&byte| (byte as char).to_digit(16));
    let mut at = 0;
    while at < key.len() {
        match (key[at], digit(key.get(at + 1)), digit(key.get(at + 2))) {
            (b'%', Some(high), Some(low)) => {
                into.push((high * 16 + low) as u8);
                at += 3;
            }
            (byte, ..) => {
                into.push(byte);
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_memcached_are_understood() {
        let found = parse(b"ts=17.5 gid=3 type=item_get key=a%20b status=found clsid=1 cfd=24 size=7\r\n");
        assert_eq!((found.kind, found.seconds, found.key), (EventKind::Fetch, 17, &b"a%20b"[..]));
        assert_eq!((found.connection, found.size, found.ttl_seconds), (24, 7, None));
        let store = parse(b"ts=17.6 gid=4 type=item_store key=k status=stored cmd=add ttl=100 clsid=1 cfd=24 size=3\n");
        assert_eq!((store.kind, store.command, store.ttl_seconds), (EventKind::Store, &b"add"[..], Some(100)));
        assert_eq!(parse(b"ts=17.6 gid=4 type=deleted key=k cmd=delete clsid=1 size=3").kind, EventKind::Delete);
        let skipped = parse(b"skipped=12\n");
        assert_eq!((skipped.kind, skipped.skipped), (EventKind::Skipped, 12));
        for nothing in [&b""[..], b"OK", b"ts=x type=", b"=", b"type=conn_new rip=::1"] {
            assert_eq!(parse(nothing).kind, EventKind::Other);
        }
    }

    #[test]
    fn keys_are_decoded() {
        let mut key = Vec::new();
        for (encoded, plain) in [("a%20b%25", "a b%"), ("100%", "100%"), ("%zz%4", "%zz%4"), ("", "")] {
            decoded(encoded.as_bytes(), &mut key);
            assert_eq!(key, plain.as_bytes());
        }
    }
}
