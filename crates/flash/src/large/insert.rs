//! Inserts.

use super::LargeLog;
use super::address::Address;
use super::buffers::ReservedSlots;
use super::format::{ObjectHeader, object_bytes, part_hash};
use super::index::IndexKey;
use super::open_region::{AppendError, Appended, ObjectDraft};
use super::options::expiry_group_of;
use super::stats::LargeDrop;
use crate::{FlashHash, Object, Token};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Attempts of an insert to get a region: other threads may take the regions that it frees.
const ATTEMPTS: usize = 8;
const KEY_BYTES_LIMIT: usize = 250;
/// Objects of at most one part in this many of a region are never cut: on average they leave less than a 32nd of a
/// region empty, and a lookup of a cut object takes two reads.
const SHARE_OF_WHOLE: usize = 16;

/// The result of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inserted {
    pub token: Token,
    /// A version of the key, or another key with the same hash bits, was replaced but may still be on the device. The
    /// caller must log a removal with the hash and `order`.
    pub replaced: bool,
    pub order: u64,
}

impl LargeLog {
    /// Stores a copy of an object in place of any older version of its key. Lookups find it at once. `now` is the Unix
    /// time in seconds. May wait for a buffer, and reclaims regions if none is free, both as
    /// [`super::Options::max_buffer_wait`] allows.
    ///
    /// # Errors
    ///
    /// Why the object was not stored, which is counted. An older version stays: the caller removes it first if the
    /// value has changed.
    pub fn insert(self: &Arc<Self>, object: &Object<'_>, now: u32) -> Result<Inserted, LargeDrop> {
        let result = self.try_insert(object, self.observe_time(now));
        match &result {
            Ok(inserted) => {
                let bytes = object.key.bytes.len() + object.value_bytes();
                self.reinsertion_value.inserted(bytes);
                self.counters.inserts.one();
                self.counters.inserted_bytes.add(bytes as u64);
                self.counters.replaced.add(u64::from(inserted.replaced));
            }
            Err(dropped) => self.counters.drop_one(*dropped),
        }
        result
    }

    /// Whether to refuse a new object because copies of hit objects take its space ([`super::Reinsertion::Auto`]).
    pub fn prefers_copies(&self, object: &Object<'_>) -> bool {
        let bytes = object_bytes(object.key.bytes.len(), object.value_bytes());
        self.open_error(object).is_none() && self.reinsertion_value.refuses_insert(object.key.hash, bytes)
    }

    /// Tells that an object of this length may be inserted: maintenance keeps regions free for it, which
    /// [`LargeLog::has_space`] waits for.
    pub fn expect(&self, key_bytes: usize, value_bytes: usize) {
        let is_long = value_bytes as u64 > self.geometry.value_bytes_limit(self.log_regions().len());
        let regions = self.geometry.regions_of(object_bytes(key_bytes, value_bytes));
        if regions > 1 && !is_long {
            self.wanted.fetch_max(regions, Relaxed);
        }
    }

    /// Why an object of this kind is not accepted.
    fn open_error(&self, object: &Object<'_>) -> Option<LargeDrop> {
        let key_bytes = object.key.bytes.len();
        let is_long = object.value_bytes() as u64 > self.geometry.value_bytes_limit(self.log_regions().len());
        if is_long || key_bytes == 0 || key_bytes > KEY_BYTES_LIMIT {
            return Some(LargeDrop::TooLarge);
        }
        self.memory_bound.is_reached(self.index.bytes()).then_some(LargeDrop::Memory)
    }

    fn try_insert(self: &Arc<Self>, object: &Object<'_>, now: u32) -> Result<Inserted, LargeDrop> {
        if object.is_expired(now) {
            return Err(LargeDrop::Expired);
        }
        let (key, total) = (object.key, object.value_bytes());
        if let Some(dropped) = self.open_error(object) {
            return Err(dropped);
        }
        let mut reserved = ReservedSlots { log: self, slots: Vec::new() };
        if !self.may_reclaim_for_inserts() {
            reserved.slots = self.reserve_buffers(object_bytes(key.bytes.len(), total))?;
        }
        let identity = IndexKey::of(key.hash);
        let _writer = self.writers[usize::from(identity.shard)].lock().unwrap();
        // Acquire: with `checkpoint`.
        if self.is_closed.load(Acquire) {
            return Err(LargeDrop::Closed);
        }
        let order = self.next_order.fetch_add(1, Relaxed);
        let header = ObjectHeader {
            sequence: 0,
            order,
            value_bytes: total as u32,
            total_bytes: total as u32,
            position: 0,
            expiry: object.expiry,
            client_flags: object.client_flags,
            is_annotated: object.is_annotated,
            part: 0,
            pool: key.pool,
            key_bytes: key.bytes.len() as u8,
        };
        let may_cut = self.may_cut(header.object_bytes());
        let draft = ObjectDraft {
            hash: key.hash,
            header,
            key: key.bytes,
            value: object.value,
            from: 0,
            may_cut,
            is_copy: false,
        };
        let expiry_group = self.expiry_group(object.expiry, now);
        let head = self.address(expiry_group, &draft, &mut reserved.slots, now)?;
        if head.value_bytes < total {
            let add = |part: &ObjectDraft<'_>| self.address(expiry_group, part, &mut reserved.slots, now);
            self.add_rest(&draft, head.value_bytes, add)?;
        }
        let replaced = self.publish(key.hash, head).ok_or(LargeDrop::Overtaken)?.is_some() || self.is_unclean();
        Ok(Inserted { token: Token(head.sequence << 24 | u64::from(head.position)), replaced, order })
    }

    /// Whether an object may be cut where the open region ends. An object that fits a region is cut only if the next
    /// region and its buffer are free: otherwise its first part would be written in vain.
    fn may_cut(&self, object_bytes: usize) -> bool {
        if object_bytes <= self.geometry.region_bytes / SHARE_OF_WHOLE {
            return false;
        }
        let free_lists = self.free_lists();
        let has_next = !free_lists.free.is_empty() && !free_lists.free_slots.is_empty();
        has_next || object_bytes > self.geometry.object_bytes_limit()
    }

    /// For inserts that never wait: checks that a multi-region object finds enough regions and buffers before its first
    /// part takes any. The next maintenance frees this number of regions. Returns reserved buffers if the shared ones
    /// are too few.
    fn reserve_buffers(&self, bytes: usize) -> Result<Vec<u16>, LargeDrop> {
        let regions = self.geometry.regions_of(bytes);
        if regions == 1 {
            return Ok(Vec::new());
        }
        self.wanted.fetch_max(regions, Relaxed);
        let mut free_lists = self.free_lists();
        if free_lists.free.len() < regions {
            return Err(LargeDrop::NoRegion);
        }
        if free_lists.free_slots.len() + 1 >= regions {
            return Ok(Vec::new());
        }
        let rest = free_lists.free_long_slots.len().checked_sub(regions);
        rest.map(|rest| free_lists.free_long_slots.split_off(rest)).ok_or(LargeDrop::Behind)
    }

    /// Stores the later parts of an object after its first part. They are published before the first part.
    fn add_rest(
        &self,
        head: &ObjectDraft<'_>,
        from: usize,
        mut add: impl FnMut(&ObjectDraft<'_>) -> Result<Appended, LargeDrop>,
    ) -> Result<(), LargeDrop> {
        let total = head.header.total_bytes as usize;
        let (mut from, mut part) = (from, 1);
        while from < total {
            let hash = part_hash(head.hash, head.header.order, part);
            let key = hash.0.to_le_bytes();
            let value_bytes = (total - from) as u32;
            let header = ObjectHeader { part, key_bytes: key.len() as u8, value_bytes, ..head.header };
            let appended = add(&ObjectDraft { hash, header, key: &key, from, ..*head })?;
            if self.publish_part(hash, appended).is_none() {
                return Err(LargeDrop::Overtaken);
            }
            self.counters.later_parts.one();
            from += appended.value_bytes;
            part += 1;
        }
        Ok(())
    }

    /// Appends a draft, waiting for a buffer and reclaiming regions as needed. Holds only the writer's lock.
    fn address(
        self: &Arc<Self>,
        expiry_group: usize,
        draft: &ObjectDraft<'_>,
        reserved: &mut Vec<u16>,
        now: u32,
    ) -> Result<Appended, LargeDrop> {
        let mut dropped = LargeDrop::NoRegion;
        for _ in 0..ATTEMPTS {
            dropped = match self.add(expiry_group, draft, reserved, now) {
                Ok(appended) => return Ok(appended),
                Err(AppendError::Buffers) if self.wait_for_buffer(0, self.options.max_buffer_wait) => LargeDrop::Behind,
                Err(AppendError::Buffers) => return Err(LargeDrop::Behind),
                Err(AppendError::Regions) if self.may_reclaim_for_inserts() && self.reclaim(now, 1) => {
                    LargeDrop::NoRegion
                }
                Err(AppendError::Regions) => return Err(LargeDrop::NoRegion),
            };
        }
        Err(dropped)
    }

    /// Makes an appended object the current one of its hash. `None` if its region is flushed or emptied; otherwise the
    /// replaced address. In a failed region the object is in the index, like all objects published there, but not
    /// found.
    fn publish(&self, hash: FlashHash, appended: Appended) -> Option<Option<Address>> {
        let identity = IndexKey::of(hash);
        let mut shard = self.index.lock(identity.shard);
        let address = self.publishable(appended)?;
        Some(shard.insert(identity.tag, address))
    }

    /// As [`LargeLog::publish`], for a later part, which is not logged as a removal. A replaced object with the same
    /// tag makes its region unclean: a restart that does not find the part could find that object.
    fn publish_part(&self, hash: FlashHash, appended: Appended) -> Option<()> {
        let identity = IndexKey::of(hash);
        let mut shard = self.index.lock(identity.shard);
        let address = self.publishable(appended)?;
        if let Some(other) = shard.insert(identity.tag, address) {
            self.set_unclean(self.geometry.split(other.unit()).0, true);
        }
        Some(())
    }

    /// The address of an appended object. Only under the lock of a shard: the sweep locks the shard after the region's
    /// state has changed, so either this thread sees the change or the sweep sees the address.
    pub(super) fn publishable(&self, appended: Appended) -> Option<Address> {
        let region = &self.regions[appended.region as usize];
        let fits = region.takes_objects_of(appended.sequence) && appended.sequence >= self.floor.load(Acquire);
        fits.then(|| Address::new(self.geometry.unit(appended.region, appended.position), appended.bytes))
    }

    /// The group for an expiry.
    pub(super) fn expiry_group(&self, expiry: u32, now: u32) -> usize {
        let seconds = (expiry != 0).then(|| expiry.saturating_sub(now));
        expiry_group_of(seconds, self.options.expiry_groups)
    }
}
