//! The server of a captured trace, in words of the first comment of the file:
//! `server_items_before=50000 server_evictions=0 server_bytes=27400000 server_memory=268435456 server_hits=44990
//! server_misses=10`.
//!
//! A capture begins at any moment in the life of a server. The first get of a key within the capture is no compulsory
//! miss if the server had the object; these numbers say how much memory it had it in.

use std::fmt;

/// Memory that an engine takes at most to hold the items of a server, as a multiple of their bytes.
const ENGINE_SHARE: f64 = 1.25;

/// Numbers that a server reports of itself; `None` for those that it does not report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CapturedServer {
    /// Objects at the start of the capture.
    pub(crate) items_before: Option<u64>,
    /// Evictions since the start of the server, at the end of the capture.
    pub(crate) evictions: Option<u64>,
    /// Bytes of the items in memory at the end of the capture. `None` with flash, which holds others.
    pub(crate) item_bytes: Option<u64>,
    /// Limit of the memory.
    pub(crate) memory_bytes: Option<u64>,
    /// Gets of all keys within the capture, sampled or not.
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

impl CapturedServer {
    /// The numbers that the first comment of a captured trace holds; `None` without any.
    pub(crate) fn of_comment(comment: &str) -> Option<Self> {
        let number = |name: &str| {
            let words = comment.split_whitespace();
            words.filter_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse::<u64>().ok()).next()
        };
        let server = Self {
            items_before: number("server_items_before"),
            evictions: number("server_evictions"),
            item_bytes: number("server_bytes"),
            memory_bytes: number("server_memory"),
            hits: number("server_hits").unwrap_or(0),
            misses: number("server_misses").unwrap_or(0),
        };
        (server != Self::default()).then_some(server)
    }

    /// Hits of its gets within the capture; `None` without gets.
    pub(crate) fn hit_ratio(&self) -> Option<f64> {
        let gets = self.hits + self.misses;
        (gets > 0).then(|| self.hits as f64 / gets as f64)
    }

    /// Memory in which an engine holds all that the server holds; `None` if the server does not report its items.
    pub(crate) fn held_bytes(&self) -> Option<u64> {
        let held = self.item_bytes.filter(|&bytes| bytes > 0)? as f64 * ENGINE_SHARE;
        Some(self.memory_bytes.filter(|&bytes| bytes > 0).map_or(held as u64, |limit| limit.min(held as u64)))
    }

    /// Whether a key that the server did not have was never there: it began empty, or has evicted nothing.
    pub(crate) fn has_forgotten_nothing(&self) -> bool {
        self.items_before == Some(0) || self.evictions == Some(0)
    }
}

/// The words of the comment, each after a space.
impl fmt::Display for CapturedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [
            ("items_before", self.items_before),
            ("evictions", self.evictions),
            ("bytes", self.item_bytes),
            ("memory", self.memory_bytes),
            ("hits", Some(self.hits)),
            ("misses", Some(self.misses)),
        ];
        let known = words.iter().filter_map(|(name, number)| Some((name, (*number)?)));
        known.into_iter().try_for_each(|(name, number)| write!(f, " server_{name}={number}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_the_comment() {
        let server = CapturedServer { items_before: Some(7), item_bytes: Some(800), hits: 3, ..Default::default() };
        let comment = format!(" ebbtide capture: sample=4 seconds=60{server}");
        assert_eq!(CapturedServer::of_comment(&comment), Some(server));
        assert_eq!(CapturedServer::of_comment(" ebbtide capture: sample=4 seconds=60"), None);
    }

    #[test]
    fn held_memory_is_within_the_limit() {
        let held =
            |item_bytes, memory_bytes| CapturedServer { item_bytes, memory_bytes, ..Default::default() }.held_bytes();
        assert_eq!(held(Some(800), Some(10_000)), Some(1000));
        assert_eq!(held(Some(800), Some(900)), Some(900));
        assert_eq!((held(Some(800), None), held(None, Some(900)), held(Some(0), Some(900))), (Some(1000), None, None));
    }
}
