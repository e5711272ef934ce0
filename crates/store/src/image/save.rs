//! Writes the image of a store.

use super::words::Put;
use super::{MAGIC, VERSION, checksum};
use crate::chains::Seal;
use crate::epoch::Participant;
use crate::index::{BUCKET_SLOTS, Bucket, Items};
use crate::item::{ItemAt, Kind};
use crate::segment::{HeaderWords, Location, SegmentId, State};
use crate::store::{Store, token_base};
use crate::sync::Ordering;
use std::io::{self, Write};

/// Bytes of buckets that are written at once.
const CHUNK_BYTES: usize = 256 << 10;

/// Content of a saved image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    pub items: u64,
    /// Bytes of segments and index in it.
    pub bytes: u64,
}

impl Store {
    /// Writes the image of the store to `out`. Jobs are finished and all segments sealed first. `keep` gets the bytes
    /// of each segment, with their offset in the memory of the engine.
    ///
    /// No other thread may change the store meanwhile: see [`Store::refuse_changes`]. Reads are no changes. Uploads
    /// that are not finished are not in the image.
    ///
    /// # Errors
    /// Those of `out` and `keep`.
    pub fn save(
        &self,
        participant: &Participant,
        now_ms: u64,
        out: &mut impl Write,
        keep: &mut impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<Saved> {
        let moment = self.moment(now_ms);
        self.finish_jobs(participant, now_ms);
        self.seal_open(Seal::All);
        self.save_head(moment.ms, out)?;
        let mut bytes = 0;
        let mut chained = Vec::new();
        self.chains.each_chain(&self.segments, |_, chain| chained.extend_from_slice(chain));
        for &segment in &chained {
            assert_eq!(self.segments.header(segment).state(), State::Sealed, "{segment:?} of a quiet store");
            bytes += self.save_segment(segment, out, keep)?;
        }
        for segment in self.bodies(participant, &chained) {
            bytes += self.save_segment(segment, out, keep)?;
        }
        out.write_all(&0_u32.to_le_bytes())?;
        bytes += self.save_buckets(out)?;
        Ok(Saved { items: self.counters.items(), bytes })
    }

    /// The body segments of all values. Those of an upload, which its owner may drop now, are in no value. Only
    /// segments that count bytes in bodies are walked.
    fn bodies(&self, participant: &Participant, sealed: &[SegmentId]) -> Vec<SegmentId> {
        let _pin = participant.pin();
        let mut bodies = Vec::new();
        for &segment in sealed.iter().filter(|segment| self.segments.header(**segment).body_bytes() > 0) {
            let (mut offset, end) = (0, self.segments.header(segment).write_offset());
            // Ends: an item has at least one byte.
            while offset < end {
                // SAFETY: items lie one after the other up to the write offset, and the store is quiet.
                let item = unsafe { ItemAt::read(&self.segments.arena, Location::new(segment, offset)) };
                offset += item.header.size();
                if item.header.kind() == Kind::Chained
                    && self.index.find(self.hash_at(item.at), |slot| slot.location() == item.at).is_some()
                {
                    // SAFETY: as above.
                    let chained = unsafe { item.chained(&self.segments.arena) };
                    bodies
                        .extend(std::iter::successors(Some(chained.first_body), |body| self.segments.next_body(*body)));
                }
            }
        }
        bodies
    }

    fn save_head(&self, now_ms: u64, out: &mut impl Write) -> io::Result<()> {
        let options = &self.options;
        assert_eq!(self.token_base, token_base(options.seed), "an image has no base of adopted tokens");
        let memory_max = u64::from(self.segments.max_segments()) * u64::from(self.segments.segment_bytes());
        let mut put = Put::default();
        put.bytes(&MAGIC).u32(VERSION).u32(self.options.effective_segment_size());
        put.u64(options.seed).u64(self.hash(&MAGIC));
        put.u64(options.layout_bytes()).u64(memory_max).u64(self.memory_bytes());
        put.u32(self.segments.limit()).u32(self.segments.limit() - self.segments.usable());
        put.u64(self.index.split().word()).u64(self.index.paid_buckets());
        let (quantum, quantum_ms) = self.clock.quantum();
        put.u64(now_ms).u32(quantum).u32(quantum_ms);
        put.u64(self.generation.load(Ordering::Relaxed)).u64(self.clock.flush_at_ms().load(Ordering::Relaxed));
        put.u64(self.chains.last_stamp());
        self.counters.sums().iter().for_each(|sum| _ = put.u64(*sum));
        let (kind, words) = self.policy_state.history().words();
        put.u32(kind).u32(words.len() as u32);
        words.iter().for_each(|word| _ = put.u64(*word));
        let frames = self.segments.frame_numbers();
        put.u32(frames.len() as u32);
        frames.iter().for_each(|frame| _ = put.u32(*frame));
        put.write_to(out)
    }

    fn save_buckets(&self, out: &mut impl Write) -> io::Result<u64> {
        let length = self.index.length();
        let mut put = Put::default();
        for first in (0..length).step_by(CHUNK_BYTES / size_of::<Bucket>()) {
            for bucket in first..length.min(first + CHUNK_BYTES / size_of::<Bucket>()) {
                let words: [u64; BUCKET_SLOTS + 1] = self.index.locked_words(bucket);
                words.iter().for_each(|word| _ = put.u64(*word));
            }
            put.write_to(out)?;
        }
        Ok((length * size_of::<Bucket>()) as u64)
    }

    fn save_segment(
        &self,
        segment: SegmentId,
        out: &mut impl Write,
        keep: &mut impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<u64> {
        let header = self.segments.header(segment);
        let length = match header.state() {
            State::Body => self.segments.segment_bytes(),
            _ => header.write_offset(),
        };
        // SAFETY: the bytes of a sealed segment up to its write offset and those of a body are published; the store
        // is quiet.
        let bytes = unsafe { self.segments.arena.slice(Location::new(segment, 0), length as usize) };
        keep(segment.index() as u64 * u64::from(self.segments.segment_bytes()), bytes)?;
        let mut put = Put::default();
        put.u32(segment.number()).u8(header.state() as u8);
        put_header(&header.words(), &mut put);
        put.u64(checksum(segment, bytes)).write_to(out)?;
        Ok(u64::from(length))
    }
}

fn put_header(words: &HeaderWords, put: &mut Put) {
    put.u8(words.shift).u8(words.rounds).u8(0).u32(words.ttl_bucket.into()).u32(words.next);
    put.u64(words.origin_seconds).u64(words.generation).u64(words.opened_ms).u64(words.stamp).u64(words.owner_hash);
    put.u32(words.write_offset).u32(words.written_items).u64(words.latest_expiry_seconds);
    put.u64(words.next_expiry_seconds).u64(words.expired_bytes);
    put.u32(words.live_items).u32(words.live_bytes).u64(words.body_bytes);
}
