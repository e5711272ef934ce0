//! An exact model of the cache's content: version and expiry of every written key.
//!
//! A value of version v begins with 16 bytes that follow from key and version (a mix of both, then the key's number),
//! cut off where the value is shorter. So an answer shows which key and which write it belongs to: surely in 16 bytes,
//! and in 1 byte still with 255 of 256 wrong values. A hit at or past the modelled expiry, on an absent key, or with
//! other bytes or another length than the last write left, breaks a promise of the cache. A miss of a modelled object
//! does too, if nothing was evicted in the whole replay and the object had more life left than the cache may take
//! from it (1 s or 1.6 % of its TTL, whichever is more).
//!
//! append and prepend keep the expiry; so do incr and decr, after which only the expiry is known.

use std::collections::HashMap;

use crate::trace::Request;
use crate::workload::mix;

/// Bytes of the head of a value.
pub(super) const HEAD: usize = 16;

/// A value that the cache returned, as the audit checks it.
pub(super) struct LastAnswer<'a> {
    pub(super) length: usize,
    /// At least the first [`HEAD`] bytes, or all.
    pub(super) head: &'a [u8],
}

/// Findings of the audit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    /// Hits on objects past their expiry.
    pub(super) late_hits: u64,
    /// Hits with the bytes of another key or version, or on a key that holds nothing.
    pub(super) wrong_values: u64,
    /// Misses of objects before their expiry, including evicted objects.
    pub(super) early_misses: u64,
    /// Longest remaining life of such an object, in milliseconds.
    pub(super) early_milliseconds: u64,
    /// Misses of objects that never expire, or whose remaining life exceeds the tolerance.
    pub(super) lost: u64,
}

impl Findings {
    pub(super) fn add(&mut self, other: &Findings) {
        self.late_hits += other.late_hits;
        self.wrong_values += other.wrong_values;
        self.early_misses += other.early_misses;
        self.early_milliseconds = self.early_milliseconds.max(other.early_milliseconds);
        self.lost += other.lost;
    }
}

#[derive(Clone, Copy, Debug)]
struct AuditModel {
    version: u64,
    /// Bytes of the piece that begins with the head.
    piece: u32,
    length: u64,
    /// The value is a number that the cache has formatted, or was joined to one: only its expiry is known.
    counter: bool,
    ttl_seconds: u32,
    /// `None` if it never expires.
    expiry_milliseconds: Option<u64>,
}

/// Where a piece joined its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joined {
    Before,
    Behind,
}

/// Number and length distinguish keys, as in the cache.
type Id = (u64, u16);

/// The model of all keys of one thread.
#[derive(Default)]
pub(super) struct Audit {
    models: HashMap<Id, AuditModel>,
    versions: u64,
    pub(super) findings: Findings,
}

impl Audit {
    /// The head of the next value that is written for this key; a call below records the result of the write.
    pub(super) fn next_head(&mut self, key: u64) -> [u8; HEAD] {
        self.versions += 1;
        head_of(key, self.versions)
    }

    /// The key now holds the value with the last head.
    pub(super) fn written(&mut self, id: Id, request: &Request, now: u64) {
        let ttl_seconds = request.ttl_seconds;
        let life = u64::from(ttl_seconds) * 1000;
        self.models.insert(
            id,
            AuditModel {
                version: self.versions,
                piece: request.value_size,
                length: u64::from(request.value_size),
                counter: false,
                ttl_seconds,
                expiry_milliseconds: (ttl_seconds > 0).then(|| now + life),
            },
        );
    }

    /// Records that the value with the last head was appended or prepended to the value of the key.
    pub(super) fn joined(&mut self, id: Id, request: &Request, place: Joined) {
        let version = self.versions;
        let Some(model) = self.models.get_mut(&id) else {
            self.findings.wrong_values += 1;
            return;
        };
        model.length += u64::from(request.value_size);
        if place == Joined::Before {
            model.version = version;
            model.piece = request.value_size;
        }
    }

    /// Records that the key holds a number instead of the value with the last head; its expiry is unchanged.
    pub(super) fn counted(&mut self, id: Id) {
        match self.models.get_mut(&id) {
            Some(model) => model.counter = true,
            None => self.findings.wrong_values += 1,
        }
    }

    /// The key holds nothing: it was deleted, or a write failed.
    pub(super) fn removed(&mut self, id: Id) {
        self.models.remove(&id);
    }

    /// The cache returned a value.
    pub(super) fn hit(&mut self, id: Id, answer: &LastAnswer<'_>, now: u64) {
        let Some(model) = self.models.get(&id) else {
            self.findings.wrong_values += 1;
            return;
        };
        if model.expiry_milliseconds.is_some_and(|expiry| now >= expiry) {
            self.findings.late_hits += 1;
        }
        if model.counter {
            return;
        }
        let head = head_of(id.0, model.version);
        let known = HEAD.min(model.piece as usize);
        if answer.length as u64 != model.length || answer.head.get(..known) != Some(&head[..known]) {
            self.findings.wrong_values += 1;
        }
    }

    /// The cache returned nothing, so it holds nothing from now on.
    pub(super) fn missed(&mut self, id: Id, now: u64) {
        let Some(model) = self.models.remove(&id) else {
            return;
        };
        let Some(expiry) = model.expiry_milliseconds else {
            self.findings.early_misses += 1;
            self.findings.lost += 1;
            return;
        };
        let left = expiry.saturating_sub(now);
        if left > 0 {
            self.findings.early_misses += 1;
            self.findings.early_milliseconds = self.findings.early_milliseconds.max(left);
            self.findings.lost += u64::from(left > allowance_milliseconds(model.ttl_seconds));
        }
    }
}

/// Time by which an object may expire early: 1 s or 1.6 % of its TTL, the larger.
fn allowance_milliseconds(ttl_seconds: u32) -> u64 {
    (u64::from(ttl_seconds) * 16).max(1000)
}

fn head_of(key: u64, version: u64) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(&mix(mix(key) ^ version).to_le_bytes());
    head[8..].copy_from_slice(&key.to_le_bytes());
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Op;

    const ID: Id = (5, 8);

    fn request(value_size: u32, ttl_seconds: u32) -> Request {
        Request { time_seconds: 0, key: ID.0, key_size: u32::from(ID.1), value_size, op: Op::Set, ttl_seconds }
    }

    fn written(value_size: u32, ttl_seconds: u32) -> (Audit, [u8; HEAD]) {
        let mut audit = Audit::default();
        let head = audit.next_head(ID.0);
        audit.written(ID, &request(value_size, ttl_seconds), 0);
        (audit, head)
    }

    fn hit(audit: &mut Audit, head: &[u8], length: usize, now: u64) -> Findings {
        audit.hit(ID, &LastAnswer { length, head }, now);
        audit.findings
    }

    #[test]
    fn a_hit_is_late_at_the_expiry() {
        let (mut audit, head) = written(100, 10);
        assert_eq!(hit(&mut audit, &head, 100, 9_999), Findings::default());
        assert_eq!(hit(&mut audit, &head, 100, 10_000).late_hits, 1);
    }

    #[test]
    fn wrong_versions_lengths_and_keys_are_found() {
        let (mut audit, old) = written(100, 0);
        let new = audit.next_head(ID.0);
        audit.written(ID, &request(100, 0), 0);
        assert_eq!(hit(&mut audit, &new, 100, 0).wrong_values, 0);
        assert_eq!(hit(&mut audit, &old, 100, 0).wrong_values, 1);
        assert_eq!(hit(&mut audit, &new, 99, 0).wrong_values, 2);
        audit.removed(ID);
        assert_eq!(hit(&mut audit, &new, 100, 0).wrong_values, 3);
    }

    #[test]
    fn a_short_value_is_checked_completely() {
        let (mut audit, head) = written(3, 0);
        assert_eq!(hit(&mut audit, &head[..3], 3, 0).wrong_values, 0);
        assert_eq!(hit(&mut audit, &[!head[0], head[1], head[2]], 3, 0).wrong_values, 1);
    }

    #[test]
    fn joined_pieces_count_into_the_length() {
        let (mut audit, first) = written(100, 0);
        audit.next_head(ID.0);
        audit.joined(ID, &request(10, 0), Joined::Behind);
        assert_eq!(hit(&mut audit, &first, 110, 0).wrong_values, 0);
        let before = audit.next_head(ID.0);
        audit.joined(ID, &request(20, 0), Joined::Before);
        assert_eq!(hit(&mut audit, &before, 130, 0).wrong_values, 0);
        assert_eq!(hit(&mut audit, &first, 130, 0).wrong_values, 1);
    }

    #[test]
    fn misses_within_the_expiry_tolerance_are_allowed() {
        for (ttl, now, lost, early) in [
            (10, 9_000, 0, 1_000),
            (10, 8_999, 1, 1_001),
            (10, 10_000, 0, 0),
            (1000, 984_000, 0, 16_000),
            (1000, 983_999, 1, 16_001),
        ] {
            let (mut audit, _) = written(100, ttl);
            audit.missed(ID, now);
            assert_eq!(audit.findings.lost, lost, "ttl {ttl} at {now}");
            assert_eq!(audit.findings.early_milliseconds, early);
        }
        let (mut audit, _) = written(100, 0);
        audit.missed(ID, 1);
        audit.missed(ID, 2);
        assert_eq!(audit.findings.lost, 1);
    }
}
