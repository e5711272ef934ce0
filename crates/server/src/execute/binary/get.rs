//! get and getk, quiet or not.
//!
//! Consecutive gets of one read form runs of up to [`RUN_KEYS`] keys, and each run is one batch for the cache. When the
//! output is full in the middle of a run, the caller gets the input offset of the first unanswered packet, sends the
//! output, and continues at this packet. The same holds if flash must be read first (`execute/flash_reads.rs`).

use std::ops::ControlFlow;

use ebbtide::memcached::{FlashProbe, Item, Lookup};
use ebbtide_protocol::binary::PacketHead;
use ebbtide_protocol::binary::reply::{self, Status};

use crate::execute::Executor;
use crate::execute::flash_reads::FlashOutcome;
use crate::execute::get::RUN_KEYS;
use crate::execute::payload::{Payload, payload};
use crate::output::Output;

/// Gets that wait to be executed together.
pub struct BinaryRun<'a> {
    keys: [&'a [u8]; RUN_KEYS],
    packets: [PacketInfo; RUN_KEYS],
    length: usize,
}

#[derive(Clone, Copy)]
struct PacketInfo {
    /// Where in the input the packet begins.
    position: u32,
    head: PacketHead,
    with_key: bool,
}

/// Why a batch of a run ended before the run did: at the key of this number.
enum PacketStop {
    Full(usize),
    OnFlash(usize, FlashProbe),
}

impl<'a> BinaryRun<'a> {
    pub fn new() -> Self {
        let head = PacketHead { opcode: 0, quiet: false, opaque: [0; 4] };
        let packet = PacketInfo { position: 0, head, with_key: false };
        Self { keys: [&[]; RUN_KEYS], packets: [packet; RUN_KEYS], length: 0 }
    }

    pub fn is_full(&self) -> bool {
        self.length == RUN_KEYS
    }

    pub fn push(&mut self, head: PacketHead, key: &'a [u8], with_key: bool, position: usize) {
        self.keys[self.length] = key;
        self.packets[self.length] = PacketInfo { position: position as u32, head, with_key };
        self.length += 1;
    }

    fn name(&self, index: usize) -> &'a [u8] {
        if self.packets[index].with_key { self.keys[index] } else { &[] }
    }

    /// Keeps the packets from this one on unanswered. Returns its offset in the input.
    fn stop_at(&mut self, index: usize) -> usize {
        self.length = 0;
        self.packets[index].position as usize
    }
}

impl Executor {
    /// Answers a run and empties it. An error is the input offset of the first unanswered packet.
    pub fn binary_run(&self, run: &mut BinaryRun<'_>, output: &mut Output) -> Result<(), usize> {
        let mut from = 0;
        // The first key was looked for on flash: memory decides.
        let mut memory_decides = false;
        while from < run.length {
            match self.binary_batch(run, from, std::mem::take(&mut memory_decides), output) {
                None => break,
                Some(PacketStop::OnFlash(index, probe)) => {
                    match self.read_from_flash(probe, &run.keys[index..run.length], true) {
                        FlashOutcome::MemoryDecides | FlashOutcome::NoMemory => (memory_decides, from) = (true, index),
                        FlashOutcome::Served(item) => {
                            self.answer_served_packet(run, index, &item, output);
                            from = index + 1;
                        }
                        FlashOutcome::Parked => return Err(run.stop_at(index)),
                    }
                }
                Some(PacketStop::Full(index)) => return Err(run.stop_at(index)),
            }
        }
        if run.length > 0 && self.probe.is_sampling() {
            self.probe.note_gets(self.samples(), &run.keys[..run.length], run.length, |key| self.is_in_memory(key));
        }
        run.length = 0;
        Ok(())
    }

    /// Answers the keys of a run from `from` on, as one batch.
    fn binary_batch(
        &self,
        run: &BinaryRun<'_>,
        from: usize,
        memory_decides: bool,
        output: &mut Output,
    ) -> Option<PacketStop> {
        if output.is_full() {
            return Some(PacketStop::Full(from));
        }
        let (keys, packets) = (&run.keys[..run.length], &run.packets[..run.length]);
        let mut stop = None;
        let noted = self.notes_gets();
        self.answer_batch(&keys[from..], |index, lookup| {
            let index = from + index;
            let head = packets[index].head;
            if !lookup.is_hit()
                && (index > from || !memory_decides)
                && let Some(probe) = self.probe_flash(keys[index])
            {
                stop = Some(PacketStop::OnFlash(index, probe));
                return ControlFlow::Break(None);
            }
            let name = run.name(index);
            if noted {
                self.note_get(keys[index], lookup.item().map(Item::len));
            }
            match &lookup {
                Lookup::Hit(item) => write_hit(head, name, item, output),
                Lookup::Miss => write_miss(head, name, output),
            }
            // Before the next lookup, which would count as a use of a key that is not answered.
            if output.is_full() && index + 1 < run.length {
                stop = Some(PacketStop::Full(index + 1));
                return ControlFlow::Break(Some(lookup.is_hit()));
            }
            ControlFlow::Continue(Some(lookup.is_hit()))
        });
        stop
    }

    /// Answers the packet of a run that flash has answered.
    fn answer_served_packet(&self, run: &BinaryRun<'_>, index: usize, item: &Item<'_>, output: &mut Output) {
        if self.notes_gets() {
            self.note_get(run.keys[index], Some(item.len()));
        }
        write_hit(run.packets[index].head, run.name(index), item, output);
        self.count_get(run.keys[index], true);
    }
}

/// `name` is the key, if the answer names it. A value that flash has answered has the token that is kept for it, or
/// none that is valid.
pub fn write_hit(head: PacketHead, name: &[u8], item: &Item<'_>, output: &mut Output) {
    let payload = payload(item);
    if let Payload::Refused = payload {
        return reply::error(output.bytes(), head, Status::OutOfMemory);
    }
    reply::hit(output.bytes(), head, name, item.flags(), item.len() as u32, item.cas());
    match payload {
        Payload::Stream(handle) => output.push_value(handle),
        Payload::Copy | Payload::Refused => item.copy_to(output.bytes()),
    }
}

/// `name` as in [`write_hit`].
pub fn write_miss(head: PacketHead, name: &[u8], output: &mut Output) {
    match name {
        _ if head.quiet => {}
        [] => reply::error(output.bytes(), head, Status::NotFound),
        key => reply::missing_key(output.bytes(), head, key),
    }
}
