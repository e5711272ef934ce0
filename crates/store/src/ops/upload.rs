//! Values longer than a segment: they arrive in pieces, fill body segments that no reader sees, and are published as a
//! whole.
//!
//! The bodies take the first bytes of the value. The last bytes, if they fit, are the tail in the head item, which
//! shares its segment with other items. The head holds the key; the bodies hold its hash, so that their value can be
//! found.

use super::write::{Mode, Terms, Write, Written, check_key};
use crate::condition::Outcome;
use crate::epoch::Participant;
use crate::error::Error;
use crate::flags::Flags;
use crate::item::{CHAINED_PREFIX_BYTES, Extension, FIRST_BODY_OFFSET, Kind};
use crate::ops::read::Item;
use crate::publish::NewItem;
use crate::segment::{Location, Purpose, SegmentId, State};
use crate::store::{Head, Store};
use crate::sync::Ordering;
use crate::ttl::Ttl;
use std::ops::Deref;
use std::sync::Arc;

/// The share of the memory that unfinished uploads may hold.
const UPLOAD_SHARE: u64 = 2;

/// An upload in progress. Dropping it frees its memory. It borrows the store or shares it.
pub struct Upload<S: Deref<Target = Store>> {
    store: S,
    key: Box<[u8]>,
    hash: u64,
    flags: Flags,
    /// Bytes in bodies, and in the tail.
    in_bodies: u64,
    in_tail: u32,
    received: u64,
    first: Option<SegmentId>,
    last: Option<SegmentId>,
    tail: Vec<u8>,
}

impl Store {
    /// Begins a value of exactly `length` bytes.
    pub fn upload(
        self: &Arc<Self>,
        key: &[u8],
        hash: u64,
        flags: Flags,
        length: u64,
    ) -> Result<Upload<Arc<Self>>, Error> {
        Upload::begin(Arc::clone(self), key, hash, flags, length)
    }

    /// Stores a value that does not fit a segment.
    pub(super) fn write_chained(
        &self,
        participant: &Participant,
        write: &Write<'_>,
        now_ms: u64,
    ) -> Result<Written, Error> {
        let mut upload = Upload::begin(self, write.key, write.hash, write.flags, write.value.len() as u64)?;
        let need = upload.need()?;
        let mut whole = || {
            upload.write(&mut &*write.value)?;
            upload.finish(participant, write.ttl, write.mode, write.token, now_ms)
        };
        whole().map_err(|error| at_once(error, need))
    }

    /// Writes a value that does not fit a segment and publishes it, once.
    pub(super) fn write_chained_once(
        &self,
        participant: &Participant,
        write: &Write<'_>,
        terms: &Terms,
        now_ms: u64,
    ) -> Result<Outcome, Error> {
        let mut upload = Upload::begin(self, write.key, write.hash, write.flags, write.value.len() as u64)?;
        let need = upload.need()?;
        let mut whole = || {
            upload.write(&mut &*write.value)?;
            upload.publish(participant, terms, now_ms)
        };
        whole().map_err(|error| at_once(error, need))
    }

    /// append and prepend with a result that does not fit a segment.
    pub(super) fn extend_chained(
        &self,
        participant: &Participant,
        write: &Write<'_>,
        item: Item<'_>,
        now_ms: u64,
    ) -> Result<Outcome, Error> {
        let length = (item.len() + write.value.len()) as u64;
        let mut upload = Upload::begin(self, write.key, write.hash, item.flags(), length)?;
        let need = upload.need()?;
        let mut whole = || {
            if !write.mode.appends() {
                upload.write(&mut &*write.value)?;
            }
            let mut copied = Ok(());
            item.each_slice(|mut slice| {
                if copied.is_ok() {
                    copied = upload.write(&mut slice);
                }
            });
            copied?;
            if write.mode.appends() {
                upload.write(&mut &*write.value)?;
            }
            let life = Some(self.lifetime_until(item.expiry_seconds(), self.moment(now_ms)));
            let extension = Extension { token: write.token, ..Extension::default() };
            let terms = Terms { condition: item.unchanged_for(write.mode), life, extension };
            upload.publish(participant, &terms, now_ms)
        };
        whole().map_err(|error| at_once(error, need))
    }
}

/// The error of an attempt that fails when a segment is missing: the value needs all its segments at once, or the next
/// attempt fails, too.
fn at_once(error: Error, count: u32) -> Error {
    if error == Error::NeedSegment { Error::NeedSegments { count } } else { error }
}

impl<S: Deref<Target = Store>> Upload<S> {
    fn begin(store: S, key: &[u8], hash: u64, flags: Flags, length: u64) -> Result<Self, Error> {
        check_key(key)?;
        if length > store.options.value_bytes_max {
            return Err(Error::TooLarge { bytes: length, limit: store.options.value_bytes_max });
        }
        let segment_bytes = u64::from(store.segments.segment_bytes());
        let rest = length % segment_bytes;
        let value_length = CHAINED_PREFIX_BYTES + rest as u32;
        let (extension, kind) = (Extension::default(), Kind::Chained);
        let head = Head { key, flags, extension, exact: None, kind, value_length };
        let has_tail = length > segment_bytes && head.fits(store.segments.segment_bytes());
        let in_tail = if has_tail { rest } else { 0 };
        let in_bodies = length - in_tail;
        let held = store.body_bytes(in_bodies as u32);
        let limit = store.budget.memory_bytes() / UPLOAD_SHARE;
        // The first upload always passes. One that waits for memory and tries again does not hinder others.
        let check = |held_bytes| match held_bytes + held > limit.max(held) {
            true => Err(Error::UploadLimit { held_bytes, limit }),
            false => Ok(()),
        };
        check(store.upload_bytes.load(Ordering::Relaxed))?;
        let held_before = store.upload_bytes.fetch_add(held, Ordering::Relaxed);
        let upload = Self {
            store,
            key: key.into(),
            hash,
            flags,
            in_bodies,
            in_tail: in_tail as u32,
            received: 0,
            first: None,
            last: None,
            tail: Vec::with_capacity(in_tail as usize),
        };
        // Dropping a refused upload returns its share.
        check(held_before).map(|()| upload)
    }

    /// The segments of the whole value, with that of its head, if that many are free.
    fn need(&self) -> Result<u32, Error> {
        let bodies = self.in_bodies.div_ceil(self.store.segments.segment_bytes().into());
        let count = bodies as u32 + 1;
        if self.store.segments.free_for_writers() < count { Err(Error::NeedSegments { count }) } else { Ok(count) }
    }

    /// Bytes that have not arrived.
    pub fn missing(&self) -> u64 {
        self.in_bodies + u64::from(self.in_tail) - self.received
    }

    /// Takes bytes from the front of `bytes`, all of them unless it fails.
    ///
    /// # Errors
    /// `NeedSegment`: run `Store::evict` and continue with the rest.
    pub fn write(&mut self, bytes: &mut &[u8]) -> Result<(), Error> {
        assert!(bytes.len() as u64 <= self.missing(), "more bytes than were announced");
        let segment_bytes = u64::from(self.store.segments.segment_bytes());
        while !bytes.is_empty() {
            let taken = if self.received < self.in_bodies {
                let offset = self.received % segment_bytes;
                if offset == 0 {
                    self.add_body()?;
                }
                let space = (segment_bytes - offset).min(self.in_bodies - self.received) as usize;
                let taken = space.min(bytes.len());
                let body = self.last.expect("a body was added");
                // SAFETY: the upload owns its bodies until it is published.
                unsafe { self.store.segments.arena.write(Location::new(body, offset as u32), &bytes[..taken]) };
                taken
            } else {
                self.tail.extend_from_slice(bytes);
                bytes.len()
            };
            self.received += taken as u64;
            *bytes = &bytes[taken..];
        }
        Ok(())
    }

    fn add_body(&mut self) -> Result<(), Error> {
        let segments = &self.store.segments;
        let body = segments.take(Purpose::Write).ok_or(Error::NeedSegment)?;
        let header = segments.header(body);
        header.is_body.store(1, Ordering::Relaxed);
        header.owner_hash.store(self.hash, Ordering::Relaxed);
        match self.last {
            Some(last) => segments.header(last).next.store(body.number(), Ordering::Relaxed),
            None => self.first = Some(body),
        }
        self.last = Some(body);
        Ok(())
    }

    /// Publishes the value, with this CAS token or one of the store. Its lifetime begins now. The upload is done
    /// when it is stored; before it may be finished again.
    pub fn finish(
        &mut self,
        participant: &Participant,
        ttl: Ttl,
        mode: Mode,
        token: Option<u64>,
        now_ms: u64,
    ) -> Result<Written, Error> {
        assert_eq!(self.missing(), 0, "all announced bytes have arrived");
        let moment = self.store.moment(now_ms);
        loop {
            let _pin = mode.reads_first().then(|| participant.pin());
            let terms = match self.store.terms((&self.key, self.hash), mode, ttl, token, moment) {
                Ok(terms) => terms,
                Err(refused) => return Ok(refused.into()),
            };
            let outcome = match terms.life {
                Some(_) => self.publish(participant, &terms, now_ms)?,
                None => self.store.write_expired(participant, (&self.key, self.hash), terms, moment),
            };
            if outcome == Outcome::Present && mode.reads_first() {
                continue;
            }
            return Ok(self.store.written(participant, mode, outcome));
        }
    }

    fn publish(&mut self, participant: &Participant, terms: &Terms, now_ms: u64) -> Result<Outcome, Error> {
        let store = &*self.store;
        let moment = store.moment(now_ms);
        let target = (&*self.key, self.hash);
        let life = terms.life.expect("an expired value is not published");
        if life.is_over(moment.ms) {
            // It ended while the value was copied.
            return Ok(store.write_expired(participant, target, *terms, moment));
        }
        let first = self.first.expect("a value longer than a segment has a body");
        let value_length = CHAINED_PREFIX_BYTES + self.in_tail;
        let (extension, kind) = (terms.extension, Kind::Chained);
        let head = Head { key: &self.key, flags: self.flags, extension, exact: life.exact, kind, value_length };
        let size = head.size() as u32;
        loop {
            let Some(reserved) = store.reserve(participant, size, life, moment) else { return Err(Error::NeedSegment) };
            let value_at = store.write_head(&reserved, &head);
            let total = self.in_bodies as u32 + self.in_tail;
            // SAFETY: the reservation owns the range.
            unsafe {
                let arena = &store.segments.arena;
                arena.write(value_at, &total.to_le_bytes());
                arena.write(value_at.plus(FIRST_BODY_OFFSET), &first.number().to_le_bytes());
                arena.write(value_at.plus(CHAINED_PREFIX_BYTES), &self.tail);
            }
            for body in self.bodies().into_iter().map(|body| store.segments.header(body)) {
                if body.state() == State::Open {
                    body.pass_to(State::Body);
                }
            }
            let body_bytes = store.body_bytes(self.in_bodies as u32);
            let at = Location::new(reserved.segment, reserved.offset);
            let new = NewItem { at, size, body_bytes, token: extension.token, is_copy: false, keeps_token: false };
            let outcome = store.publish(participant, target, terms.condition, new, reserved, moment)?;
            if outcome == Outcome::Flushed {
                continue;
            }
            if outcome.is_done() {
                self.first = None;
            }
            return Ok(outcome);
        }
    }

    fn bodies(&self) -> Vec<SegmentId> {
        std::iter::successors(self.first, |body| self.store.segments.next_body(*body)).collect()
    }
}

impl<S: Deref<Target = Store>> Drop for Upload<S> {
    fn drop(&mut self) {
        self.store.upload_bytes.fetch_sub(self.store.body_bytes(self.in_bodies as u32), Ordering::Relaxed);
        self.store.uploads_ended.fetch_add(1, Ordering::Relaxed);
        if let Some(first) = self.first {
            self.store.segments.retire(first);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::condition::Condition;
    use crate::options::Options;

    const KEY: &[u8] = b"key";

    #[test]
    fn a_ttl_ending_during_upload_removes_the_key() {
        let store = Arc::new(
            Store::new(Options { memory_bytes: 32 << 20, value_bytes_max: 4 << 20, ..Options::default() }).unwrap(),
        );
        let (participant, hash) = (store.participate(), store.hash(KEY));
        let set = |value: &[u8], now_ms| {
            let write =
                Write { key: KEY, hash, value, flags: 0.into(), ttl: Ttl::Seconds(1), mode: Mode::Set, token: None };
            store.write(&participant, &write, now_ms).unwrap();
        };
        set(b"old", 1000);
        let mut upload = store.upload(KEY, hash, 0.into(), 3 << 20).unwrap();
        upload.write(&mut &vec![7; 3 << 20][..]).unwrap();
        let life = store.lifetime(Ttl::Seconds(1), store.moment(1000));
        let terms = Terms { condition: Condition::Always, life, extension: Extension::default() };
        assert!(upload.publish(&participant, &terms, 6000).unwrap().is_done());
        drop(upload);
        assert!(store.peek(&participant, KEY, hash, 6000).is_none());
        set(b"new", 6000);
        assert!(store.peek(&participant, KEY, hash, 6000).is_some());
        store.verify(&participant, 6000);
    }
}
